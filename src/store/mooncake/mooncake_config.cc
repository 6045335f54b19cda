#include "src/store/mooncake/mooncake_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "src/base/units.h"
#include "src/store/store_options.h"

namespace embercache::mooncake {
namespace {

constexpr const char* kFileVariable = "MOONCAKE_CONFIG_PATH";
// What SGLang's nodes call having none.
constexpr std::string_view kNoTenant = "default";
// What only owners of a segment need.
constexpr std::string_view kSegmentSize = "global_segment_size";

struct TextSetting {
  const char* name;  // in options and in Mooncake's file
  const char* variable;
  std::string MooncakeConfig::* value;
};

constexpr TextSetting kTexts[] = {
    {"master_server_address", "MOONCAKE_MASTER", &MooncakeConfig::master_server_address},
    {"local_hostname", "MOONCAKE_LOCAL_HOSTNAME", &MooncakeConfig::local_hostname},
    {"metadata_server", "MOONCAKE_TE_META_DATA_SERVER", &MooncakeConfig::metadata_server},
    {"protocol", "MOONCAKE_PROTOCOL", &MooncakeConfig::protocol},
    {"device_name", "MOONCAKE_DEVICE", &MooncakeConfig::device_name},
    {"tenant_id", "MOONCAKE_TENANT_ID", &MooncakeConfig::tenant_id},
};
constexpr const char* kLibraryVariable = "MOONCAKE_STORE_LIBRARY";
constexpr const char* kBufferSize = "local_buffer_size";
constexpr const char* kBufferVariable = "MOONCAKE_LOCAL_BUFFER_SIZE";

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<uint64_t> ParseSize(std::string_view source, const std::string& text) {
  auto bytes = ParseBytes(text);
  if (bytes.ok()) return bytes;
  return Status::Invalid(fmt::format("mooncake: {}: {}", source, bytes.status().message()));
}

Result<nlohmann::json> ReadFile(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && text.empty()) {
    return Status::Invalid(
        fmt::format("mooncake: {} names '{}', which cannot be read", kFileVariable, path));
  }
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_object()) return json;
  return Status::Invalid(
      fmt::format("mooncake: {} names '{}', which is no JSON object", kFileVariable, path));
}

Status ApplyFile(const std::string& path, MooncakeConfig& config) {
  EMBERCACHE_ASSIGN_OR_RETURN(const nlohmann::json json, ReadFile(path));
  for (const TextSetting& setting : kTexts) {
    const auto found = json.find(setting.name);
    if (found == json.end() || found->is_null()) continue;
    if (!found->is_string()) {
      return Status::Invalid(fmt::format("mooncake: '{}' in '{}' has to be a string, not {}",
                                         setting.name, path, found->dump()));
    }
    config.*setting.value = found->get<std::string>();
  }
  if (const auto found = json.find(kBufferSize); found != json.end()) {
    const std::string text = found->is_string() ? found->get<std::string>() : found->dump();
    EMBERCACHE_ASSIGN_OR_RETURN(config.local_buffer_size,
                                ParseSize(fmt::format("'{}' in '{}'", kBufferSize, path), text));
  }
  if (json.contains(kSegmentSize)) {
    config.ignored.push_back(fmt::format("'{}' in '{}'", kSegmentSize, path));
  }
  return Status::Ok();
}

Status ApplyVariables(MooncakeConfig& config) {
  for (const TextSetting& setting : kTexts) {
    if (std::string value = Variable(setting.variable); !value.empty()) {
      config.*setting.value = std::move(value);
    }
  }
  if (const std::string value = Variable(kBufferVariable); !value.empty()) {
    EMBERCACHE_ASSIGN_OR_RETURN(config.local_buffer_size, ParseSize(kBufferVariable, value));
  }
  if (std::string value = Variable(kLibraryVariable); !value.empty()) {
    config.library = std::move(value);
    config.library_named = true;
  }
  for (const char* name : {"MOONCAKE_GLOBAL_SEGMENT_SIZE", "MOONCAKE_CLIENT"}) {
    if (!Variable(name).empty()) config.ignored.emplace_back(name);
  }
  return Status::Ok();
}

Status Check(const MooncakeConfig& config) {
  const std::string& master = config.master_server_address;
  const size_t colon = master.rfind(':');
  const std::string port = colon == std::string::npos ? "" : master.substr(colon + 1);
  if (colon == 0 || port.empty() || port.size() > 5 ||
      !std::all_of(port.begin(), port.end(),
                   [](unsigned char c) { return std::isdigit(c) != 0; }) ||
      std::stoi(port) == 0 || std::stoi(port) > 65535) {
    return Status::Invalid(fmt::format(
        "mooncake: master_server_address is '{}'; it has to be host:port, such as 10.0.0.1:50051",
        master));
  }
  constexpr std::array kProtocols = {"tcp", "rdma", "efa"};
  if (std::find(kProtocols.begin(), kProtocols.end(), config.protocol) == kProtocols.end()) {
    return Status::Invalid(fmt::format("mooncake: protocol is '{}'; there are: {}", config.protocol,
                                       fmt::join(kProtocols, ", ")));
  }
  constexpr std::array kBridges = {"auto", "wheel", "library", "in_process"};
  if (std::find(kBridges.begin(), kBridges.end(), config.bridge) == kBridges.end()) {
    return Status::Invalid(fmt::format("mooncake: bridge is '{}'; there are: {}", config.bridge,
                                       fmt::join(kBridges, ", ")));
  }
  if (config.library.empty()) return Status::Invalid("mooncake: library is empty");
  if (config.bridge_timeout < std::chrono::seconds(1)) {
    return Status::Invalid("mooncake: bridge_timeout has to be 1s or more");
  }
  return Status::Ok();
}

}  // namespace

Result<MooncakeConfig> MooncakeConfig::Parse(std::string_view json) {
  MooncakeConfig config;
  if (const std::string path = Variable(kFileVariable); !path.empty()) {
    EMBERCACHE_RETURN_IF_ERROR(ApplyFile(path, config));
  }
  EMBERCACHE_RETURN_IF_ERROR(ApplyVariables(config));
  StoreOptions options("mooncake", json);
  for (const TextSetting& setting : kTexts) options.Read(setting.name, &(config.*setting.value));
  options.ReadBytes(kBufferSize, &config.local_buffer_size);
  const std::string library = config.library;
  options.Read("bridge", &config.bridge);
  options.Read("library", &config.library);
  config.library_named = config.library_named || config.library != library;
  std::string format = "envelope";
  options.Read("format", &format);
  options.Read("python", &config.python);
  options.ReadDuration("bridge_timeout", &config.bridge_timeout);
  EMBERCACHE_RETURN_IF_ERROR(options.Finish());
  if (format != "envelope" && format != "raw") {
    return Status::Invalid(
        fmt::format("mooncake: format is '{}'; there are: envelope, raw", format));
  }
  config.raw = format == "raw";
  EMBERCACHE_RETURN_IF_ERROR(Check(config));
  if (config.tenant_id == kNoTenant) config.tenant_id.clear();
  return config;
}

std::string_view NameOf(Way way) {
  switch (way) {
    case Way::kWheel:
      return "wheel";
    case Way::kLibrary:
      return "library";
    case Way::kInProcess:
      break;
  }
  return "in_process";
}

std::vector<Way> MooncakeConfig::Ways() const {
  for (const Way way : {Way::kWheel, Way::kLibrary, Way::kInProcess}) {
    if (bridge == NameOf(way)) return {way};
  }
  // The wheel gathers and scatters, which the library cannot.
  if (library_named) return {Way::kLibrary, Way::kWheel};
  return {Way::kWheel, Way::kLibrary};
}

std::string MooncakeConfig::SetUpJson() const {
  nlohmann::json json = {{kBufferSize, local_buffer_size}, {"library", library}};
  for (const TextSetting& setting : kTexts) json[setting.name] = this->*setting.value;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace embercache::mooncake

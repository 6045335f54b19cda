#include "src/encode/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/encode/onnx_file.h"

namespace embercache {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTomlName = "embercache.toml";
constexpr const char* kConfigName = "preprocessor_config.json";

Result<std::string> ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::FromErrno(errno, path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

struct Choice {
  std::string model;
  std::string output;
};

Result<toml::table> ParseToml(const fs::path& path) {
  EMBERCACHE_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return Status::Invalid(fmt::format("{}: line {}: {}", path.string(), error.source().begin.line,
                                       error.description()));
  }
}

Result<Choice> ReadToml(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return Choice{};
  EMBERCACHE_ASSIGN_OR_RETURN(const toml::table table, ParseToml(path));
  Choice choice;
  for (const auto& [key, value] : table) {
    std::string* to = key == "model" ? &choice.model : key == "output" ? &choice.output : nullptr;
    if (to == nullptr) {
      return Status::Invalid(
          fmt::format("{}: unknown entry {}; known are model, output", path.string(), key.str()));
    }
    const auto string = value.value_exact<std::string>();
    if (!string || string->empty()) {
      return Status::Invalid(
          fmt::format("{}: entry {} has to be a string", path.string(), key.str()));
    }
    *to = *string;
  }
  return choice;
}

void AddModels(const fs::path& dir, std::vector<std::string>& models) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".onnx") models.push_back(it->path().string());
  }
}

Result<std::string> FindModel(const fs::path& dir, const std::string& chosen) {
  std::error_code error;
  if (!chosen.empty()) {
    const fs::path path = dir / chosen;
    if (fs::is_regular_file(path, error)) return path.string();
    return Status::NotFound(fmt::format("{} names the model {}, which is not there",
                                        (dir / kTomlName).string(), chosen));
  }
  if (fs::is_regular_file(dir / "model.onnx", error)) return (dir / "model.onnx").string();
  std::vector<std::string> models;
  AddModels(dir, models);
  AddModels(dir / "onnx", models);
  std::sort(models.begin(), models.end());
  if (models.size() == 1) return models.front();
  if (models.empty()) {
    return Status::NotFound(
        fmt::format("no model.onnx, and no other *.onnx, in {} or its folder onnx", dir.string()));
  }
  return Status::Invalid(
      fmt::format("several models in {}: {}; choose one by the entry model in {}", dir.string(),
                  fmt::join(models, ", "), (dir / kTomlName).string()));
}

// External data has to lie beside the model, or in folders there.
Status FindDataFiles(ModelFolder& folder) {
  EMBERCACHE_ASSIGN_OR_RETURN(const std::vector<std::string> locations,
                              ExternalDataLocations(folder.model_path));
  const fs::path parent = fs::path(folder.model_path).parent_path();
  for (const std::string& location : locations) {
    const fs::path relative(location);
    if (relative.empty() || relative.is_absolute() ||
        std::find(relative.begin(), relative.end(), "..") != relative.end()) {
      return Status::Invalid(fmt::format("{} names the data file {}, outside its folder",
                                         folder.model_path, location));
    }
    std::error_code error;
    if (!fs::is_regular_file(parent / relative, error)) {
      return Status::NotFound(fmt::format("{} names the data file {}, which is not there",
                                          folder.model_path, location));
    }
    folder.data_files.push_back({location, (parent / relative).string()});
  }
  return Status::Ok();
}

class Hasher {
 public:
  Hasher(uint64_t total, const std::function<void(const LoadProgress&)>& progress)
      : progress_(progress) {
    state_.total = total;
  }

  Result<Digest256> File(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return Status::FromErrno(errno, path);
    Sha256 sha;
    std::vector<char> piece(size_t{1} << 20);
    while (file) {
      file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      const std::span got(piece.data(), static_cast<size_t>(file.gcount()));
      sha.Update(std::as_bytes(got));
      state_.done += got.size();
      if (progress_) progress_(state_);
    }
    if (file.bad()) return Status::FromErrno(EIO, path);
    return sha.Finish();
  }

 private:
  LoadProgress state_{.stage = "reading weights"};
  const std::function<void(const LoadProgress&)>& progress_;
};

uint64_t FileBytes(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

}  // namespace

Result<ModelFolder> OpenModelFolder(const std::string& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    return Status::NotFound(fmt::format("the model folder {} is not there", dir));
  }
  EMBERCACHE_ASSIGN_OR_RETURN(const Choice choice, ReadToml(fs::path(dir) / kTomlName));
  ModelFolder folder;
  folder.output = choice.output;
  EMBERCACHE_ASSIGN_OR_RETURN(folder.model_path, FindModel(dir, choice.model));
  const fs::path config = fs::path(dir) / kConfigName;
  if (!fs::is_regular_file(config, error)) {
    return Status::NotFound(fmt::format("{} is not there", config.string()));
  }
  EMBERCACHE_ASSIGN_OR_RETURN(folder.preprocessor_config, ReadText(config));
  EMBERCACHE_RETURN_IF_ERROR(FindDataFiles(folder));
  return folder;
}

Result<Digest256> DigestWeights(const ModelFolder& folder,
                                const std::function<void(const LoadProgress&)>& progress) {
  uint64_t total = FileBytes(folder.model_path);
  for (const auto& file : folder.data_files) total += FileBytes(file.path);
  Hasher hasher(total, progress);
  EMBERCACHE_ASSIGN_OR_RETURN(const Digest256 model, hasher.File(folder.model_path));
  if (folder.data_files.empty()) return model;
  Sha256 all;
  all.Update(model.bytes);
  for (const auto& file : folder.data_files) {
    EMBERCACHE_ASSIGN_OR_RETURN(const Digest256 digest, hasher.File(file.path));
    all.Update(Sha256Of(file.location).bytes);
    all.Update(digest.bytes);
  }
  return all.Finish();
}

}  // namespace embercache

// Results are printed and written in the order of the files, however many are under way.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <thread>

#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/encode_client.h"
#include "src/cli/media_files.h"
#include "src/cli/progress_line.h"
#include "src/cli/report.h"
#include "src/cli/serve_flags.h"
#include "src/cli/store_verb.h"
#include "src/cli/tensor_file.h"

namespace embercache {
namespace {

using Json = nlohmann::ordered_json;

// Enough for what is under way, and little enough to be ready at once.
constexpr uint64_t kDefaultPoolBytes = uint64_t{256} << 20;
constexpr Duration kItemTime = std::chrono::hours(1);
constexpr Duration kPublishTime = std::chrono::seconds(60);
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

struct EncodeVerb {
  ServeFlags node;
  std::vector<std::string> words;
  std::string output;
  std::string format;
  bool json = false;
};

// What is to be done, and how far it is.
struct EncodeRun {
  const EncodeVerb& verb;
  std::vector<MediaFile> files;
  std::vector<std::string> outputs;  // as many, or none
  ProgressLine progress;
  size_t done = 0;
  size_t failed = 0;
};

Result<EncodeServerOptions> NodeOptions(CLI::App& command, EncodeVerb& verb) {
  const auto settings = ResolveSettings(command, ServeSettingNames());
  if (!settings.ok()) return settings.status();
  EMBERCACHE_RETURN_IF_ERROR(SetLogFormat(verb.node.log_format));
  EMBERCACHE_RETURN_IF_ERROR(SetLogLevel(verb.node.log_level));
  if (verb.node.store.any()) verb.node.enable_global_cache = true;
  EMBERCACHE_ASSIGN_OR_RETURN(EncodeServerOptions options, ServerOptionsFrom(verb.node));
  if (options.models.size() != 1) return Status::Invalid("encode takes one --model");
  if (!verb.node.size_gb) options.pool_bytes = kDefaultPoolBytes;
  options.limits.request_timeout = kItemTime;
  options.limits.max_body_bytes = kMaxFileBytes;
  return options;
}

std::string Extension(const EncodeVerb& verb) {
  return verb.format == "npy" ? ".npy" : ".safetensors";
}

// What the server says of the one item of a request.
Json ItemOf(const HttpResponse& response) {
  if (response.status != 200) {
    const Json body = Json::parse(response.text, nullptr, false);
    if (body.is_object() && body.contains("items")) return body["items"][0];
    return body.is_object() && body.contains("error") ? Json{{"error", body["error"]}}
                                                      : Json{{"error", {{"message", ""}}}};
  }
  constexpr size_t kLengthBytes = 8;
  const Json head = Json::parse(response.text.substr(kLengthBytes), nullptr, false);
  return Json::parse(head["__metadata__"]["items"].get<std::string>())[0];
}

Status Write(const std::string& path, const HttpResponse& response, const Json& item) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) {
    return Status::Unavailable(fmt::format("{}: {}", folder.string(), error.message()));
  }
  const EmbeddingInfo& info = response.pins.front().info();
  TensorView tensor;
  tensor.dtype = info.spec.dtype;
  tensor.shape = {info.tokens, info.spec.hidden};
  tensor.bytes = response.payload;
  tensor.metadata = {{"key", info.key.digest.ToHex()},
                     {"namespace", info.spec.namespace_digest.ToHex()},
                     {"metadata", DumpJson(item["metadata"])}};
  EMBERCACHE_ASSIGN_OR_RETURN(const TensorFormat format, TensorFormatOf(path));
  return WriteTensorFile(path, format, tensor);
}

void PrintItem(const EncodeRun& run, Json item) {
  const std::string& path = run.files[run.done].path;
  if (run.verb.json) {
    Json line = {{"file", path}};
    line.update(item);
    if (!run.outputs.empty() && !item.contains("error")) line["output"] = run.outputs[run.done];
    fmt::print("{}{}", run.done == 0 ? "\n" : ",\n", DumpJson(line));
  } else if (!item.contains("error")) {
    fmt::print("{}  {}  {} x {} {}  {}\n", item["key"].get<std::string>(),
               item["source"].get<std::string>(), item["shape"][0].get<uint64_t>(),
               item["shape"][1].get<uint64_t>(), item["dtype"].get<std::string>(), path);
  }
}

void Take(EncodeRun& run, Result<std::future<HttpResponse>> answer) {
  Json item;
  if (answer.ok()) {
    const HttpResponse response = answer->get();
    item = ItemOf(response);
    if (!item.contains("error") && !run.outputs.empty()) {
      const Status written = Write(run.outputs[run.done], response, item);
      if (!written.ok()) item = {{"error", {{"message", written.message()}}}};
    }
  } else {
    item = {{"error",
             {{"code", StatusCodeName(answer.status().code())},
              {"message", answer.status().message()}}}};
  }
  run.progress.Clear();
  PrintItem(run, item);
  if (item.contains("error")) {
    ++run.failed;
    std::string message = item["error"].value("message", "");
    // The server counts items of a request; here each is a file.
    if (message.starts_with("item 0: ")) message.erase(0, sizeof("item 0: ") - 1);
    Fail(Status::Unavailable(fmt::format("{}: {}", run.files[run.done].path, message)),
         kExitFailed);
  }
  ++run.done;
  run.progress.Show("encoding", run.done, run.files.size());
}

int EncodeAll(EncodeRun& run, EncodeServer& server) {
  const EncodeClient client(&server);
  const size_t window = 2 * std::max<size_t>(1, std::thread::hardware_concurrency());
  std::deque<Result<std::future<HttpResponse>>> under_way;
  if (run.verb.json) fmt::print("{{\"items\":[");
  for (const MediaFile& file : run.files) {
    if (under_way.size() == window) {
      Take(run, std::move(under_way.front()));
      under_way.pop_front();
    }
    under_way.push_back(client.Encode(file.path));
  }
  for (auto& answer : under_way) Take(run, std::move(answer));
  run.progress.Clear();
  if (run.verb.json) {
    fmt::print("],\n\"encoded\":{},\"failed\":{}}}\n", run.done - run.failed, run.failed);
  }
  return run.failed == 0 ? kExitFine : kExitFailed;
}

int Encode(CLI::App& command, EncodeVerb& verb) {
  auto options = NodeOptions(command, verb);
  if (!options.ok()) return Fail(options.status(), kExitUsage);
  auto files = FindMediaFiles(verb.words);
  if (!files.ok()) return Fail(files.status(), ExitCodeOf(files.status()));
  EncodeRun run{.verb = verb, .files = *std::move(files), .outputs = {}, .progress = {}};
  if (!verb.output.empty()) {
    auto outputs = OutputPaths(run.files, verb.output, Extension(verb));
    if (!outputs.ok()) return Fail(outputs.status(), kExitUsage);
    run.outputs = *std::move(outputs);
  }
  options->progress = [&run](std::string_view stage, uint64_t done, uint64_t total) {
    run.progress.Show(stage, done, total);
  };
  const auto server = EncodeServer::InProcess(*std::move(options));
  if (!server.ok()) return Fail(server.status(), OpenExitCode(server.status()));
  const Status loaded = (*server)->Load();
  run.progress.Clear();
  if (!loaded.ok()) return Fail(loaded, kExitFailed);
  const int exit_code = EncodeAll(run, **server);
  const Status stopped = (*server)->Stop(SteadyClock().Now() + kPublishTime);
  if (stopped.ok()) return exit_code;
  Fail(stopped, kExitFailed);
  std::fflush(stdout);
  _exit(kExitFailed);  // threads that were left behind still use what destructors would take
}

}  // namespace

void AddEncodeCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand(
      "encode", "Compute embeddings of files, with a store for those that are known already");
  const auto verb = std::make_shared<EncodeVerb>();
  command->add_option("FILE", verb->words, "Images, folders of images, or patterns in quotes")
      ->required();
  command
      ->add_option("-o,--output", verb->output,
                   "What to write: a .safetensors or .npy file, or a folder for several")
      ->type_name("PATH")
      ->configurable(false);
  command->add_option("--format", verb->format, "Of the files in a folder (safetensors)")
      ->type_name("safetensors|npy")
      ->check(CLI::IsMember({"safetensors", "npy"}))
      ->configurable(false);
  command->add_flag("--json", verb->json, "Print JSON")->configurable(false);
  verb->node.log_level = "warning";
  AddNodeFlags(*command, &verb->node);
  SetExamples(*command,
              {"embercache encode photo.jpg --model MODEL -o photo.safetensors",
               "embercache encode photos --model MODEL -o embeddings --format npy",
               "embercache encode 'photos/*.jpg' --model MODEL --file-store-dir store --json"});
  command->callback([command, verb, exit_code] { *exit_code = Encode(*command, *verb); });
}

}  // namespace embercache

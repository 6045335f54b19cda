#include <fmt/format.h>

#include <memory>

#include "src/cli/commands.h"
#include "src/cli/report.h"
#include "src/cli/store_verb.h"
#include "src/cli/stored_object_json.h"
#include "src/cli/tensor_file.h"

namespace embercache {
namespace {

struct KeyVerb : StoreVerb {
  std::string key;
  std::string output;
};

void AddKeyVerbFlags(CLI::App& command, KeyVerb* verb) {
  command.add_option("KEY", verb->key, "64 hex digits as in answers of the server, or an id of ls")
      ->required();
  AddStoreVerbFlags(command, verb);
}

// OK when the object is good.
Status Refusal(const std::string& key, const StoredObject& object) {
  if (object.state == ObjectState::kGood) return Status::Ok();
  if (object.state == ObjectState::kAbsent) {
    return Status::NotFound(fmt::format("the store has no object '{}'", key));
  }
  return Status(object.status.code(),
                fmt::format("object '{}' is {}: {}", key, ObjectStateName(object.state),
                            object.status.message()));
}

void PrintDescription(const nlohmann::ordered_json& description, bool json) {
  if (json) return PrintJson(description);
  for (const auto& [name, value] : description.items()) {
    fmt::print("{:<13} {}\n", name, value.is_string() ? value.get<std::string>() : DumpJson(value));
  }
}

Status WriteObject(const KeyVerb& verb, TensorFormat format, const StoredObject& object) {
  const Trailer& trailer = object.trailer;
  const EmbeddingInfo& info = trailer.info;
  TensorView tensor;
  tensor.dtype = trailer.shape_unknown ? DType::kU8 : info.spec.dtype;
  tensor.shape = trailer.shape_unknown ? std::vector<uint64_t>{trailer.payload_bytes}
                                       : std::vector<uint64_t>{info.tokens, info.spec.hidden};
  tensor.bytes = {&object.payload, 1};
  tensor.metadata = {{"key", info.key.digest.ToHex()},
                     {"namespace", info.spec.namespace_digest.ToHex()},
                     {"metadata", info.metadata.empty() ? "{}" : info.metadata}};
  return WriteTensorFile(verb.output, format, tensor);
}

int Get(CLI::App& command, const KeyVerb& verb) {
  const auto format = TensorFormatOf(verb.output);
  if (!format.ok()) return Fail(format.status(), kExitUsage);
  return WithStore(command, verb, [&](EmbeddingStore& store) {
    const std::string key = KeyText(verb.key);
    ObjectMemory memory;
    const StoredObject object = ReadStoredObject(store, key, CallLimits(), &memory);
    Status status = Refusal(key, object);
    if (status.ok()) status = WriteObject(verb, *format, object);
    if (!status.ok()) return Fail(status, ExitCodeOf(status));
    if (verb.json) {
      auto description = DescribeObject(key, object);
      description["output"] = verb.output;
      PrintJson(description);
    }
    return kExitFine;
  });
}

int Stat(CLI::App& command, const KeyVerb& verb) {
  return WithStore(command, verb, [&](EmbeddingStore& store) {
    const std::string key = KeyText(verb.key);
    ObjectMemory memory;
    const StoredObject object = ReadStoredObject(store, key, CallLimits(), &memory);
    const Status status = Refusal(key, object);
    const bool there = status.ok() || object.object_bytes > 0;
    if (there) PrintDescription(DescribeObject(key, object), verb.json);
    return status.ok() ? kExitFine : Fail(status, ExitCodeOf(status));
  });
}

}  // namespace

void AddGetCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("get", "Write an embedding of a store to a file, once it is verified");
  const auto verb = std::make_shared<KeyVerb>();
  AddKeyVerbFlags(*command, verb.get());
  command->add_option("-o,--output", verb->output, "File to write: .safetensors or .npy")
      ->type_name("FILE")
      ->configurable(false)
      ->required();
  SetExamples(*command, {"embercache get KEY -o embedding.safetensors --file-store-dir store",
                         "embercache get KEY -o embedding.npy --file-store-dir store --json"});
  command->callback([command, verb, exit_code] { *exit_code = Get(*command, *verb); });
}

void AddStatCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("stat", "Tell what an object of a store is, and whether it is intact");
  const auto verb = std::make_shared<KeyVerb>();
  AddKeyVerbFlags(*command, verb.get());
  SetExamples(*command, {"embercache stat KEY --file-store-dir store",
                         "embercache stat KEY --file-store-dir store --json"});
  command->callback([command, verb, exit_code] { *exit_code = Stat(*command, *verb); });
}

}  // namespace embercache

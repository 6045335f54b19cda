#include <fmt/format.h>

#include <memory>

#include "src/base/units.h"
#include "src/cli/commands.h"
#include "src/cli/report.h"
#include "src/cli/store_verb.h"
#include "src/cli/walk_store.h"

namespace embercache {
namespace {

// Prints as it goes: a store may have millions of objects.
int List(EmbeddingStore& store, bool json) {
  uint64_t objects = 0;
  uint64_t bytes = 0;
  if (json) fmt::print("{{\"objects\":[");
  const Status status = WalkStore(store, [&](const ListedObject& object) {
    if (json) {
      const nlohmann::ordered_json line = {{"id", object.id}, {"object_bytes", object.bytes}};
      fmt::print("{}{}", objects == 0 ? "\n" : ",\n", DumpJson(line));
    } else {
      fmt::print("{} {}\n", object.id, object.bytes);
    }
    ++objects;
    bytes += object.bytes;
    return Status::Ok();
  });
  if (json) fmt::print("],\n\"count\":{},\"bytes\":{}}}\n", objects, bytes);
  if (!status.ok()) return Fail(status, kExitFailed);
  if (!json)
    fmt::print("{} {}, {}\n", objects, objects == 1 ? "object" : "objects", FormatBytes(bytes));
  return kExitFine;
}

}  // namespace

void AddLsCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand("ls", "List the objects of a store, with sizes");
  const auto verb = std::make_shared<StoreVerb>();
  AddStoreVerbFlags(*command, verb.get());
  SetExamples(*command, {"embercache ls --file-store-dir store",
                         "embercache ls --file-store-dir store --json"});
  command->callback([command, verb, exit_code] {
    *exit_code =
        WithStore(*command, *verb, [&](EmbeddingStore& store) { return List(store, verb->json); });
  });
}

}  // namespace embercache

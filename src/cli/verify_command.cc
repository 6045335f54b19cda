// `verify` reads every object and tells which are not what was written; `scrub` removes those.
// An object is bad when it is so on two reads, as when it is served, and is removed only where it
// is still the one that was read. Objects of other origin are never touched.

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "src/base/units.h"
#include "src/cli/commands.h"
#include "src/cli/progress_line.h"
#include "src/cli/report.h"
#include "src/cli/store_verb.h"
#include "src/cli/stored_object_json.h"
#include "src/cli/walk_store.h"

namespace embercache {
namespace {

struct VerifyVerb : StoreVerb {
  std::vector<std::string> keys;
  bool remove = false;
};

class Verifier {
 public:
  Verifier(EmbeddingStore& store, const VerifyVerb& verb) : store_(store), verb_(verb) {}

  void Check(const std::string& id);
  int Report();

 private:
  void Found(const std::string& id, const StoredObject& object);
  void Remove(const std::string& id, const StoredObject& object);

  EmbeddingStore& store_;
  const VerifyVerb& verb_;
  ObjectMemory memory_;
  ProgressLine progress_;
  uint64_t good_ = 0, absent_ = 0, corrupt_ = 0, foreign_ = 0, failed_ = 0, removed_ = 0;
  uint64_t bytes_ = 0;
  nlohmann::ordered_json bad_ = nlohmann::ordered_json::array();
};

void Verifier::Check(const std::string& id) {
  StoredObject object = ReadStoredObject(store_, id, CallLimits(), &memory_);
  if (object.state == ObjectState::kCorrupt) {
    object = ReadStoredObject(store_, id, CallLimits(), &memory_);
  }
  bytes_ += object.object_bytes;
  switch (object.state) {
    case ObjectState::kGood:
      ++good_;
      break;
    case ObjectState::kAbsent:  // it went away meanwhile, unless it was named
      ++absent_;
      if (!verb_.keys.empty()) Found(id, object);
      break;
    case ObjectState::kForeign:
      ++foreign_;
      Found(id, object);
      break;
    case ObjectState::kCorrupt:
      ++corrupt_;
      Found(id, object);
      if (verb_.remove) Remove(id, object);
      break;
    case ObjectState::kFailed:
      ++failed_;
      Found(id, object);
      break;
  }
  progress_.Show(fmt::format("{} objects, {}, {} corrupt", good_ + corrupt_ + foreign_ + failed_,
                             FormatBytes(bytes_), corrupt_),
                 0, 0);
}

void Verifier::Found(const std::string& id, const StoredObject& object) {
  bad_.push_back(DescribeObject(id, object));
  if (verb_.json) return;
  progress_.Clear();
  fmt::print("{} {}{}{}\n", id, ObjectStateName(object.state), object.status.ok() ? "" : ": ",
             object.status.message());
}

void Verifier::Remove(const std::string& id, const StoredObject& object) {
  RemoveItem item{id, object.version};
  const RemoveResult result = store_.BatchRemove({&item, 1}, CallLimits()).at(0);
  if (result.outcome == RemoveOutcome::kRemoved) {
    ++removed_;
    bad_.back()["removed"] = true;
  } else if (result.outcome == RemoveOutcome::kFailed) {
    ++failed_;
    bad_.back()["removed"] = false;
    Fail(Status::Unavailable(fmt::format("{} is not removed: {}", id, result.status.message())),
         kExitFailed);
  }
}

int Verifier::Report() {
  progress_.Clear();
  if (verb_.json) {
    PrintJson({{"good", good_},
               {"corrupt", corrupt_},
               {"foreign", foreign_},
               {"failed", failed_},
               {"absent", absent_},
               {"removed", removed_},
               {"bytes", bytes_},
               {"bad", bad_}});
  } else {
    fmt::print("{} good, {} corrupt, {} foreign, {} failed, {} removed, {} read\n", good_, corrupt_,
               foreign_, failed_, removed_, FormatBytes(bytes_));
  }
  // A store that is clean again is what scrub is for.
  const bool left = corrupt_ > removed_ && !verb_.remove;
  if (left || failed_ > 0) {
    return Fail(Status::Corruption(fmt::format("{} corrupt, {} could not be checked",
                                               corrupt_ - removed_, failed_)),
                kExitFailed);
  }
  if (!verb_.keys.empty() && absent_ > 0) {
    return Fail(Status::NotFound(fmt::format("not there: {}", absent_)), kExitNotFound);
  }
  return kExitFine;
}

int Verify(EmbeddingStore& store, const VerifyVerb& verb) {
  Verifier verifier(store, verb);
  for (const std::string& key : verb.keys) verifier.Check(KeyText(key));
  if (verb.keys.empty()) {
    const Status walked = WalkStore(store, [&](const ListedObject& object) {
      verifier.Check(object.id);
      return Status::Ok();
    });
    if (!walked.ok()) return Fail(walked, kExitFailed);
  }
  return verifier.Report();
}

void AddVerifier(CLI::App& app, const char* name, const char* what, bool remove, int* exit_code) {
  CLI::App* const command = app.add_subcommand(name, what);
  const auto verb = std::make_shared<VerifyVerb>();
  verb->remove = remove;
  command->add_option("KEY", verb->keys, "Keys or ids of ls; all objects where none is given");
  AddStoreVerbFlags(*command, verb.get());
  SetExamples(*command, {fmt::format("embercache {} --file-store-dir store", name),
                         fmt::format("embercache {} KEY --file-store-dir store --json", name)});
  command->callback([command, verb, exit_code] {
    *exit_code =
        WithStore(*command, *verb, [&](EmbeddingStore& store) { return Verify(store, *verb); });
  });
}

}  // namespace

void AddVerifyCommand(CLI::App& app, int* exit_code) {
  AddVerifier(app, "verify", "Read objects of a store and tell which are damaged", false,
              exit_code);
}

void AddScrubCommand(CLI::App& app, int* exit_code) {
  AddVerifier(app, "scrub", "Verify, and remove the objects that are damaged", true, exit_code);
}

}  // namespace embercache

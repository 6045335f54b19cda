// The checks of tests/conformance, which know no test framework, run here on the store that flags
// name. A check that hangs, hangs in the store: the program cannot end it, and ends itself.

#include <fmt/format.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "src/cli/commands.h"
#include "src/cli/option_types.h"
#include "src/cli/probe_traits.h"
#include "src/cli/report.h"
#include "src/cli/store_verb.h"

namespace embercache {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxCheckTimeoutS = 86'400;

struct ConformanceVerb : StoreVerb {
  uint32_t check_timeout_s = 300;
};

// What `task` gives; nothing when it has not ended in time: then it goes on, and may never end.
template <typename Task>
auto RunInTime(std::chrono::seconds time, Task task) -> std::optional<decltype(task())> {
  auto shared = std::make_shared<std::packaged_task<decltype(task())()>>(std::move(task));
  auto result = shared->get_future();
  std::thread([shared] { (*shared)(); }).detach();
  if (result.wait_for(time) == std::future_status::timeout) return std::nullopt;
  return result.get();
}

Status Hangs(std::chrono::seconds time) {
  return Status::DeadlineExceeded(
      fmt::format("it has not ended after {} s: a call of the store hangs", time.count()));
}

// Threads that were left behind still use what destructors would take.
[[noreturn]] void EndNow(int exit_code) {
  std::fflush(stdout);
  _exit(exit_code);
}

std::string_view YesNo(bool yes) {
  return yes ? "yes" : "no";
}

Json TraitsJson(const StoreTraits& traits) {
  return {{"shared", traits.shared},
          {"versions", traits.versions},
          {"lists", traits.lists},
          {"tells_stored", traits.tells_stored}};
}

void PrintTraits(const std::string& backend, const StoreTraits& traits) {
  fmt::print(
      "backend {}: shared between two stores: {}, versions: {}, lists: {}, tells stored from "
      "present: {}\n",
      backend, YesNo(traits.shared), YesNo(traits.versions), YesNo(traits.lists),
      YesNo(traits.tells_stored));
}

class ConformanceReport {
 public:
  ConformanceReport(bool json, const StoreTraits& traits) : json_(json), traits_(traits) {}

  // Named before it runs, so that one that takes the program down is known.
  void Begin(std::string_view check) const {
    if (json_) return;
    fmt::print("{:<46} ", check);
    std::fflush(stdout);
  }
  void End(std::string_view check, const ConformanceOutcome& outcome) {
    const bool ok = outcome.failures.empty();
    (!ok ? failed_ : outcome.offered ? passed_ : not_offered_) += 1;
    checks_.push_back({{"name", check},
                       {"ok", ok},
                       {"offered", outcome.offered},
                       {"failures", outcome.failures}});
    if (json_) return;
    fmt::print("{}\n", !ok ? "FAILED" : outcome.offered ? "ok" : "not offered");
    for (const std::string& failure : outcome.failures) fmt::print("    {}\n", failure);
  }
  int Close() const {
    if (json_) {
      PrintJson({{"offers", TraitsJson(traits_)},
                 {"checks", checks_},
                 {"passed", passed_},
                 {"failed", failed_},
                 {"not_offered", not_offered_}});
    } else {
      fmt::print("{} of {} checks passed, {} not offered\n", passed_, passed_ + failed_,
                 not_offered_);
    }
    if (failed_ == 0) return kExitFine;
    return Fail(
        Status::Corruption(fmt::format("the store does not conform: failed checks: {}", failed_)),
        kExitFailed);
  }

 private:
  const bool json_;
  const StoreTraits traits_;
  size_t passed_ = 0, failed_ = 0, not_offered_ = 0;
  Json checks_ = Json::array();
};

int Conform(CLI::App& command, const ConformanceVerb& verb) {
  const auto choice = ChooseStore(command, verb);
  if (!choice.ok()) return Fail(choice.status(), kExitUsage);
  StoreUnderTest store;
  store.name = choice->backend;
  store.open = [choice = *choice]() { return OpenUp(choice); };
  const std::chrono::seconds time(verb.check_timeout_s);
  const auto probed = RunInTime(time, [open = store.open] { return ProbeTraits(open); });
  if (!probed) EndNow(Fail(Hangs(time), kExitFailed));
  if (!probed->ok()) return Fail(probed->status(), OpenExitCode(probed->status()));
  store.traits = **probed;
  if (!verb.json) PrintTraits(store.name, store.traits);
  ConformanceReport report(verb.json, store.traits);
  for (const ConformanceCheck& check : ConformanceChecks()) {
    report.Begin(check.name);
    const auto outcome =
        RunInTime(time, [check, store] { return RunConformanceCheck(check, store); });
    report.End(check.name, outcome.value_or(ConformanceOutcome{{Hangs(time).message()}}));
    if (!outcome) EndNow(report.Close());
  }
  return report.Close();
}

}  // namespace

void AddConformanceCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand(
      "conformance", "Check that a store, a plugin above all, does what EmberCache relies on");
  const auto verb = std::make_shared<ConformanceVerb>();
  AddStoreVerbFlags(*command, verb.get());
  AddNumber(*command, "--check-timeout-s", verb->check_timeout_s,
            "A check that takes longer has failed, and ends the run", 1, kMaxCheckTimeoutS)
      ->capture_default_str()
      ->configurable(false);
  SetExamples(*command, {"embercache conformance --file-store-dir store",
                         "embercache conformance --mm-global-cache-backend plugin "
                         "--mm-global-cache-config '{\"path\":\"./memory_plugin.so\"}'"});
  command->callback([command, verb, exit_code] { *exit_code = Conform(*command, *verb); });
}

}  // namespace embercache

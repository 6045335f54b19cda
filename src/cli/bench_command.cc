#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <thread>

#include "src/base/units.h"
#include "src/cli/commands.h"
#include "src/cli/option_types.h"
#include "src/cli/progress_line.h"
#include "src/cli/report.h"
#include "src/cli/store_bench.h"
#include "src/cli/store_verb.h"
#include "src/server/version.h"

namespace embercache {
namespace {

using Json = nlohmann::ordered_json;

// More than this at once would measure how the machine swaps.
constexpr uint64_t kMaxTotalBytes = uint64_t{1} << 30;
constexpr Duration kLeastTime = std::chrono::milliseconds(1);
constexpr Duration kMostTime = std::chrono::hours(1);

struct BenchVerb : StoreVerb {
  std::vector<std::string> sizes = {"64KiB", "1MiB", "8MiB"};
  std::vector<uint32_t> batches = {1, 8};
  std::vector<uint32_t> threads = {1, 4};
  std::string time = "500ms";
  std::string json_file;
};

Status CheckLoad(const BenchLoad& load) {
  if (load.bytes == 0 || load.bytes % kBenchRowBytes != 0) {
    return Status::Invalid(
        fmt::format("--sizes: {} bytes are no multiple of {}", load.bytes, kBenchRowBytes));
  }
  if (load.bytes > kMaxTotalBytes || load.total_bytes() > kMaxTotalBytes) {
    return Status::Invalid(fmt::format("{} on {} threads in batches of {} are more than {} at once",
                                       FormatBytes(load.bytes), load.threads, load.batch,
                                       FormatBytes(kMaxTotalBytes)));
  }
  return Status::Ok();
}

Result<std::vector<BenchLoad>> LoadsOf(const BenchVerb& verb) {
  std::vector<BenchLoad> loads;
  for (const std::string& size : verb.sizes) {
    const Result<uint64_t> bytes = ParseBytes(size);
    if (!bytes.ok()) return Status::Invalid("--sizes: " + bytes.status().message());
    for (const uint32_t batch : verb.batches) {
      for (const uint32_t threads : verb.threads) {
        loads.push_back({*bytes, batch, threads});
        EMBERCACHE_RETURN_IF_ERROR(CheckLoad(loads.back()));
      }
    }
  }
  return loads;
}

void PrintHead() {
  fmt::print("{:<10} {:>10} {:>6} {:>8} {:>9} {:>10} {:>10} {:>8} {:>8}\n", "op", "size", "batch",
             "threads", "calls", "p50 ms", "p99 ms", "GB/s", "of copy");
}

void PrintMeasure(const BenchMeasure& measure, double copy_gb_per_s) {
  const bool moves = measure.gb_per_s > 0;
  fmt::print("{:<10} {:>10} {:>6} {:>8} {:>9} {:>10.3f} {:>10} {:>8} {:>8}\n", measure.op,
             FormatBytes(measure.load.bytes), measure.load.batch, measure.load.threads,
             measure.calls, measure.p50_ms,
             measure.p99_ms ? fmt::format("{:.3f}", *measure.p99_ms) : "-",
             moves ? fmt::format("{:.2f}", measure.gb_per_s) : "-",
             moves ? fmt::format("{:.0f} %", 100 * measure.gb_per_s / copy_gb_per_s) : "-");
}

Json JsonOf(const std::vector<BenchMeasure>& measures, std::string_view backend,
            const std::vector<std::string>& text) {
  Json list = Json::array();
  for (const BenchMeasure& measure : measures) {
    list.push_back({{"op", measure.op},
                    {"bytes", measure.load.bytes},
                    {"batch", measure.load.batch},
                    {"threads", measure.load.threads},
                    {"calls", measure.calls},
                    {"p50_ms", measure.p50_ms},
                    {"p99_ms", measure.p99_ms ? Json(*measure.p99_ms) : Json()},
                    {"gb_per_s", measure.gb_per_s}});
  }
  return {{"version", Version()},
          {"backend", backend},
          {"cores", std::thread::hardware_concurrency()},
          {"measures", list},
          {"says", text}};
}

Status WriteJson(const std::string& path, const Json& json) {
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  file.flush();
  return file ? Status::Ok() : Status::Unavailable(fmt::format("cannot write '{}'", path));
}

int Measure(const StoreChoice& choice, const BenchVerb& verb, const std::vector<BenchLoad>& loads,
            Duration time) {
  auto opened = OpenUp(choice);
  if (!opened.ok()) return Fail(opened.status(), OpenExitCode(opened.status()));
  const std::shared_ptr<EmbeddingStore> store = *std::move(opened);
  ProgressLine progress;
  std::vector<BenchMeasure> measures;
  PrintHead();
  for (size_t i = 0; i < loads.size(); ++i) {
    progress.Show("measuring", i, loads.size());
    const auto measured = MeasureStore(store, loads[i], time);
    progress.Clear();
    if (!measured.ok()) return Fail(measured.status(), kExitFailed);
    for (const BenchMeasure& measure : *measured) {
      PrintMeasure(measure, measured->front().gb_per_s);
    }
    std::fflush(stdout);
    measures.insert(measures.end(), measured->begin(), measured->end());
  }
  const std::vector<std::string> text = ExplainBench(measures, choice.backend);
  fmt::print("\n");
  for (const std::string& sentence : text) fmt::print("{}\n", sentence);
  if (verb.json_file.empty()) return kExitFine;
  const Status written = WriteJson(verb.json_file, JsonOf(measures, choice.backend, text));
  return written.ok() ? kExitFine : Fail(written, kExitFailed);
}

int Bench(CLI::App& command, const BenchVerb& verb) {
  const auto choice = ChooseStore(command, verb);
  if (!choice.ok()) return Fail(choice.status(), kExitUsage);
  const auto loads = LoadsOf(verb);
  if (!loads.ok()) return Fail(loads.status(), kExitUsage);
  const auto time = ParseDuration(verb.time);
  if (!time.ok()) return Fail(Status::Invalid("--time: " + time.status().message()), kExitUsage);
  if (*time < kLeastTime || *time > kMostTime) {
    return Fail(Status::Invalid(fmt::format("--time {} has to be 1ms to 1h", Quoted(verb.time))),
                kExitUsage);
  }
  return Measure(*choice, verb, *loads, *time);
}

}  // namespace

void AddBenchCommand(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand(
      "bench", "Measure a store and the cache above it on this machine, beside a bare copy");
  const auto verb = std::make_shared<BenchVerb>();
  AddStoreSourceFlags(*command, verb.get());
  const auto add = [command](const char* name, auto& value, const char* what) {
    return command->add_option(name, value, what)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str()
        ->configurable(false);
  };
  add("--sizes", verb->sizes, "Sizes of embeddings, multiples of 4KiB");
  add("--batches", verb->batches, "Objects of a call")
      ->type_name("N,…")
      ->check(WholeNumber(1, 1024));
  add("--threads", verb->threads, "Threads that call at once")
      ->type_name("N,…")
      ->check(WholeNumber(1, 256));
  command->add_option("--time", verb->time, "How long each line of the table is measured")
      ->capture_default_str()
      ->configurable(false);
  command->add_option("--json", verb->json_file, "Also write the measures to this file")
      ->type_name("FILE")
      ->configurable(false);
  SetExamples(*command,
              {"embercache bench --file-store-dir store --time 50ms",
               "embercache bench --mm-global-cache-backend memory --sizes 1MiB --batches 1 "
               "--threads 1,2 --time 50ms --json bench.json"});
  command->callback([command, verb, exit_code] { *exit_code = Bench(*command, *verb); });
}

}  // namespace embercache

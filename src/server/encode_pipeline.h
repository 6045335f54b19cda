#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "embercache/clock.h"
#include "embercache/embedding.h"
#include "embercache/media.h"
#include "embercache/status.h"
#include "src/base/executor.h"
#include "src/base/metrics.h"
#include "src/server/served_model.h"

namespace embercache {

struct EncodeOutcome {
  Status status;
  Pin pin;  // set when the status is ok
  Duration preprocess{};
  Duration encode{};
};

// One embedding to compute, and where it goes.
struct EncodeJob {
  std::shared_ptr<const ServedModel> model;
  Claim claim;
  std::span<const std::byte> media;  // stays until `done` is destroyed
  MediaOptions options;
  // Nobody wants the result after that, or once `cancelled` is true (null: never), but those who
  // wait for the claim. A job that nobody wants is given up where it has not begun.
  TimePoint deadline;
  std::shared_ptr<const std::atomic<bool>> cancelled;
  // Called once, on a thread of the pipeline; must be short.
  std::function<void(EncodeOutcome)> done;
};

struct EncodePipelineOptions {
  size_t decode_threads = 1;
  size_t encode_threads = 1;
  // Decoding pauses while so much is decoded and not yet encoded.
  uint64_t max_prepared_bytes = uint64_t{64} << 20;
  // Items of one model and shape that go into one forward pass, within what the model allows.
  size_t max_batch_items = 1;
  // How long a pass waits for more of them.
  Duration max_batch_wait{};
};

// Computes embeddings: decodes on one set of threads, encodes on another, and commits each claim,
// or aborts it with the reason. Whoever submits bounds the number of jobs. Thread-safe.
class EncodePipeline {
 public:
  EncodePipeline(const EncodePipelineOptions& options, std::shared_ptr<Metrics> metrics);
  // Stop(TimePoint::max()).
  ~EncodePipeline();

  void Submit(EncodeJob job);

  // What a job submitted now would take, by what recent ones took. 0 while nothing is known, and
  // while there is no other job: only trying tells whether a bad estimate still holds.
  Duration EstimatedTime(const ServedModel& model) const;

  size_t decode_queue_depth() const;
  size_t encode_queue_depth() const;

  // Fails what has not begun with Cancelled; ends the threads. DeadlineExceeded when some were
  // still busy at `deadline`: they are left behind. Idempotent.
  Status Stop(TimePoint deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
  ThreadPool decode_pool_;
  ThreadPool encode_pool_;
};

}  // namespace embercache

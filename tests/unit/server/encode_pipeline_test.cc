#include "src/server/encode_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "embercache/controller.h"
#include "tests/unit/server/fake_encoder.h"

namespace embercache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EncodePipelineTest : public testing::Test {
 protected:
  EncodePipelineTest() {
    ControllerOptions options;
    options.max_pool_bytes = 8 << 20;
    options.pools = {{Modality::kImage, model_->spec.row_bytes()}};
    controller_ = *EmbeddingCacheController::Create(options, {});
  }
  ~EncodePipelineTest() override { encoder().Unblock(); }

  void Start() { pipeline_ = std::make_unique<EncodePipeline>(options_, metrics_); }

  // The outcome of a job for `text`, which nobody had before.
  std::future<EncodeOutcome> Submit(const std::string& text,
                                    TimePoint deadline = TimePoint::max()) {
    EncodeJob job;
    job.model = model_;
    const LookupItem item = {EmbeddingKey::FromCallerHash(model_->spec.namespace_digest, text), -1};
    controller_->Lookup(
        model_->spec, std::span(&item, 1), TimePoint::max(), TimePoint::max(),
        [&job](size_t, LookupAnswer answer) { job.claim = std::move(answer.claim); });
    EXPECT_TRUE(job.claim);
    const auto media = std::make_shared<const std::string>(text);
    job.media = std::as_bytes(std::span(*media));
    job.deadline = deadline;
    const auto promise = std::make_shared<std::promise<EncodeOutcome>>();
    job.done = [media, promise](EncodeOutcome outcome) { promise->set_value(std::move(outcome)); };
    pipeline_->Submit(std::move(job));
    return promise->get_future();
  }

  const FakeEncoder& encoder() const { return EncoderOf(*model_); }

  const std::shared_ptr<const ServedModel> model_ = FakeModel();
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::unique_ptr<EmbeddingCacheController> controller_;
  EncodePipelineOptions options_;
  std::unique_ptr<EncodePipeline> pipeline_;
};

TEST_F(EncodePipelineTest, CommitsRowsAndMetadata) {
  Start();
  const EncodeOutcome outcome = Submit("ABC").get();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.pin.info().tokens, 3U);
  EXPECT_EQ(outcome.pin.info().metadata, "{\"letters\":3}");
  EXPECT_GT(model_->recent_cost_seconds(), 0);
}

TEST_F(EncodePipelineTest, AbortsWhatCannotBeDecodedWithoutHopeForARetry) {
  Start();
  const EncodeOutcome outcome = Submit("!").get();
  EXPECT_EQ(outcome.status.code(), StatusCode::kInvalid);
  EXPECT_FALSE(outcome.status.retryable());
  EXPECT_TRUE(encoder().batches().empty());
}

TEST_F(EncodePipelineTest, PutsItemsOfOneShapeIntoOnePass) {
  options_.max_batch_items = 4;
  Start();
  encoder().Block();
  std::vector<std::future<EncodeOutcome>> outcomes;
  outcomes.push_back(Submit("x"));
  encoder().WaitEntered(1);
  for (const char* text : {"AA", "B", "CC", "D", "EE"}) outcomes.push_back(Submit(text));
  while (pipeline_->encode_queue_depth() < 5) std::this_thread::yield();
  encoder().Unblock();
  for (auto& outcome : outcomes) EXPECT_TRUE(outcome.get().status.ok());
  EXPECT_THAT(encoder().batches(), ElementsAre(1, 3, 2));
}

TEST_F(EncodePipelineTest, ABadItemOfABatchFailsAlone) {
  options_.max_batch_items = 4;
  Start();
  encoder().Block();
  auto first = Submit("x");
  encoder().WaitEntered(1);
  auto a = Submit("a");
  auto bad = Submit("?");
  auto b = Submit("b");
  while (pipeline_->encode_queue_depth() < 3) std::this_thread::yield();
  encoder().Unblock();
  EXPECT_TRUE(a.get().status.ok());
  EXPECT_THAT(bad.get().status.message(), HasSubstr("the runtime failed"));
  EXPECT_TRUE(b.get().status.ok());
  EXPECT_THAT(encoder().batches(), ElementsAre(1, 3, 1, 1, 1));
}

TEST_F(EncodePipelineTest, GivesUpWhatHasNotBegunByItsDeadline) {
  Start();
  encoder().Block();
  auto first = Submit("x");
  encoder().WaitEntered(1);
  auto late = Submit("late", SteadyClock().Now() + std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  encoder().Unblock();
  EXPECT_TRUE(first.get().status.ok());
  EXPECT_EQ(late.get().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(encoder().batches().size(), 1U);
}

TEST_F(EncodePipelineTest, DecodingPausesWhileEnoughIsDecoded) {
  options_.max_prepared_bytes = 2;
  Start();
  encoder().Block();
  std::vector<std::future<EncodeOutcome>> outcomes;
  for (const char* text : {"a", "b", "c", "d", "e", "f"}) outcomes.push_back(Submit(text));
  encoder().WaitEntered(1);
  while (pipeline_->encode_queue_depth() < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pipeline_->encode_queue_depth(), 2U);
  EXPECT_EQ(pipeline_->decode_queue_depth(), 3U);
  encoder().Unblock();
  for (auto& outcome : outcomes) EXPECT_TRUE(outcome.get().status.ok());
}

TEST_F(EncodePipelineTest, StoppingCancelsWhatHasNotBegun) {
  Start();
  encoder().Block();
  auto running = Submit("x");
  encoder().WaitEntered(1);
  auto waiting = Submit("y");
  EXPECT_EQ(pipeline_->Stop(SteadyClock().Now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(waiting.get().status.code(), StatusCode::kCancelled);
  encoder().Unblock();
  EXPECT_TRUE(running.get().status.ok());
  EXPECT_EQ(Submit("z").get().status.code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace embercache

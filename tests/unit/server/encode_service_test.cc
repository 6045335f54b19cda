#include "src/server/encode_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "embercache/store_factory.h"
#include "src/cache/host_cache.h"
#include "tests/unit/server/fake_encoder.h"

namespace embercache {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// "Hello" and "World!" of RFC 4648's alphabet are enough here: three letters at a time.
std::string Base64(std::string_view text) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (count += 8; count >= 6; count -= 6) out += kDigits[bits >> (count - 6) & 63];
  }
  if (count > 0) out += kDigits[bits << (6 - count) & 63];
  return out;
}

class FakeExchange final : public HttpExchange {
 public:
  explicit FakeExchange(HttpRequest request) : HttpExchange(std::move(request)) {}
  void Respond(HttpResponse response) override { response_.set_value(std::move(response)); }
  void OnClientGone(std::function<void()> gone) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    gone_ = std::move(gone);
    known_.notify_all();
  }
  // The client closes, once the service listens for that.
  void Leave() {
    std::unique_lock<std::mutex> lock(mutex_);
    known_.wait(lock, [this] { return gone_ != nullptr; });
    gone_();
  }
  std::future<HttpResponse> response() { return response_.get_future(); }

 private:
  std::promise<HttpResponse> response_;
  std::mutex mutex_;
  std::condition_variable known_;
  std::function<void()> gone_;
};

// One that is far too late.
class IdleTimer final : public Timer {
 public:
  uint64_t Schedule(TimePoint /*when*/, std::function<void()> /*task*/) override { return ++last_; }
  bool Cancel(uint64_t /*id*/) override { return true; }

 private:
  std::atomic<uint64_t> last_{0};
};

class EncodeServiceTest : public testing::Test {
 protected:
  EncodeServiceTest() {
    limits_.request_timeout = std::chrono::minutes(1);
    limits_.lookup_timeout = std::chrono::minutes(1);
  }
  ~EncodeServiceTest() override {
    encoder().Unblock();
    if (pipeline_) (void)pipeline_->Stop(TimePoint::max());
    (void)workers_.Stop(TimePoint::max());
  }

  void Start() {
    ControllerOptions options;
    options.max_pool_bytes = 8 << 20;
    options.pools = {{Modality::kImage, model_->spec.row_bytes()}};
    ControllerParts parts;
    EmbeddingStoreFactory factory;
    RegisterBuiltinBackends(factory);
    parts.store = *factory.CreateBackend("memory", {});
    store_ = parts.store;
    parts.timer = timer_;
    parts.metrics = metrics_;
    controller_ = *EmbeddingCacheController::Create(options, parts);
    pipeline_ = std::make_unique<EncodePipeline>(pipeline_options_, metrics_);
    live_limits_ = std::make_unique<LiveLimits>(limits_);
    service_ = std::make_unique<EncodeService>(EncodeServiceParts{.controller = controller_.get(),
                                                                  .pipeline = pipeline_.get(),
                                                                  .workers = &workers_,
                                                                  .timer = timer_.get(),
                                                                  .metrics = metrics_.get(),
                                                                  .limits = live_limits_.get(),
                                                                  .errors = &errors_,
                                                                  .media_root = {},
                                                                  .models = {model_}});
  }

  std::future<HttpResponse> Send(const std::vector<std::string>& texts,
                                 const std::string& accept = "application/json") {
    return Begin(texts, {{"Accept", accept}})->response();
  }

  using Headers = std::vector<std::pair<std::string, std::string>>;
  std::shared_ptr<FakeExchange> Begin(const std::vector<std::string>& texts,
                                      const Headers& headers) {
    json body = {{"items", json::array()}};
    for (const std::string& text : texts) {
      body["items"].push_back({{"type", "image"}, {"data", Base64(text)}});
    }
    return BeginBody(body.dump(), headers);
  }

  std::shared_ptr<FakeExchange> BeginBody(const std::string& body, const Headers& headers) {
    HttpRequest request;
    request.headers = headers;
    const auto bytes = std::as_bytes(std::span(body));
    std::copy(bytes.begin(), bytes.end(), request.body.Extend(body.size()).begin());
    request.received = SteadyClock().Now();
    auto exchange = std::make_shared<FakeExchange>(std::move(request));
    service_->Handle(exchange);
    return exchange;
  }

  // Sources, or error codes, of an answer's items.
  static std::vector<std::string> Outcomes(const HttpResponse& response) {
    std::vector<std::string> outcomes;
    const json body = json::parse(response.text);
    for (const json& item : body.at("items")) {
      outcomes.push_back(item.contains("error") ? item["error"]["code"] : item["source"]);
    }
    return outcomes;
  }

  std::vector<std::string> Ask(const std::vector<std::string>& texts) {
    return Outcomes(Send(texts).get());
  }

  void WaitNothingAdmitted() const {
    while (service_->admitted_items() > 0) std::this_thread::sleep_for(milliseconds(1));
  }

  const FakeEncoder& encoder() const { return EncoderOf(*model_); }

  const std::shared_ptr<const ServedModel> model_ = FakeModel();
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::shared_ptr<Timer> timer_ = std::make_shared<ThreadTimer>();
  ThreadPool workers_{"work", 2};
  Limits limits_;
  std::unique_ptr<LiveLimits> live_limits_;
  EncodePipelineOptions pipeline_options_;
  std::shared_ptr<EmbeddingStore> store_;
  std::unique_ptr<EmbeddingCacheController> controller_;
  std::unique_ptr<EncodePipeline> pipeline_;
  RecentErrors errors_;
  std::unique_ptr<EncodeService> service_;
};

TEST_F(EncodeServiceTest, ComputesAnItemOnceAndThenServesItLocally) {
  Start();
  EXPECT_THAT(Ask({"AB", "C"}), ElementsAre("computed", "computed"));
  EXPECT_THAT(Ask({"C", "AB"}), ElementsAre("local", "local"));
  EXPECT_EQ(encoder().prepared, 2U);
}

TEST_F(EncodeServiceTest, SendsTheRowsFromThePinsMemory) {
  Start();
  const HttpResponse response = Send({"AB"}, "*/*").get();
  EXPECT_EQ(response.content_type, "application/vnd.safetensors");
  ASSERT_EQ(response.payload.size(), 1U);
  ASSERT_EQ(response.pins.size(), 1U);
  EXPECT_EQ(response.payload[0].data(), response.pins[0].buffers()[0].data());
  std::vector<float> rows(response.payload[0].size() / sizeof(float));
  std::memcpy(rows.data(), response.payload[0].data(), response.payload[0].size());
  EXPECT_THAT(rows, ElementsAre(65, 65, 65, 65, 66, 66, 66, 66));
}

TEST_F(EncodeServiceTest, OffersComputedAndLocalItemsToTheStore) {
  Start();
  Ask({"A"});
  Ask({"A", "B"});
  const auto published = [this](const char* result) {
    return metrics_->published.Add({{"result", result}}).Value();
  };
  while (published("stored") + published("already_present") < 3) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(published("stored"), 2);
  EXPECT_EQ(metrics_->insert.Add({{"kind", "new"}}).Value(), 2);
  EXPECT_EQ(metrics_->insert.Add({{"kind", "existing"}}).Value(), 1);
}

TEST_F(EncodeServiceTest, AnEmbeddingWithNanIsServedAndCountedAndNotOfferedToOthers) {
  Start();
  EXPECT_THAT(Ask({"~", "A"}), ElementsAre("computed", "computed"));
  const auto published = [this](const char* result) {
    return metrics_->published.Add({{"result", result}}).Value();
  };
  while (published("stored") + published("failed") < 2) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(published("stored"), 1);
  EXPECT_EQ(metrics_->nonfinite.Add({}).Value(), 1);
}

TEST_F(EncodeServiceTest, ServesItemsOfTheStoreAsGlobal) {
  Start();
  Ask({"A"});
  while (metrics_->published.Add({{"result", "stored"}}).Value() < 1) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  const EmbeddingKey key = EmbeddingKey::FromMedia(model_->spec.namespace_digest, Modality::kImage,
                                                   Sha256Of("A"), Sha256Of(""));
  controller_->host_cache().Remove(key);
  EXPECT_THAT(Ask({"A"}), ElementsAre("global"));
  EXPECT_EQ(encoder().prepared, 1U);
}

TEST_F(EncodeServiceTest, AnItemInFlightIsJoinedByOthers) {
  Start();
  encoder().Block();
  auto leader = Send({"A"});
  encoder().WaitEntered(1);
  auto joined = Send({"A", "A"});
  while (service_->admitted_items() < 3) std::this_thread::sleep_for(milliseconds(1));
  encoder().Unblock();
  EXPECT_THAT(Outcomes(leader.get()), ElementsAre("computed"));
  // Whether it came while the encoder worked or a moment later, it did not work again.
  for (const std::string& source : Outcomes(joined.get())) {
    EXPECT_TRUE(source == "joined" || source == "local") << source;
  }
  EXPECT_EQ(encoder().prepared, 1U);
}

TEST_F(EncodeServiceTest, ABadItemFailsAloneAndAlsoForThoseWhoJoined) {
  Start();
  const HttpResponse response = Send({"!", "A", "!"}).get();
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(Outcomes(response), ElementsAre("INVALID", "computed", "INVALID"));
  const json items = json::parse(response.text)["items"];
  EXPECT_EQ(items[0]["error"]["message"], "item 0: '!' is broken");
  EXPECT_EQ(items[2]["error"]["message"], "item 2: '!' is broken");
}

TEST_F(EncodeServiceTest, TheStatusOfARequestWithoutSuccessIsThatOfItsFirstItem) {
  Start();
  const HttpResponse response = Send({"!", "?"}).get();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.text)["error"]["message"], "item 0: '!' is broken");
  EXPECT_EQ(Send({"?", "!"}).get().status, 500);
}

TEST_F(EncodeServiceTest, HitsAreServedWhileTheEncoderIsBusy) {
  Start();
  Ask({"A"});
  encoder().Block();
  auto busy = Send({"B", "C"});
  encoder().WaitEntered(2);
  EXPECT_THAT(Ask({"A"}), ElementsAre("local"));
  encoder().Unblock();
  busy.get();
}

TEST_F(EncodeServiceTest, ARequestBeyondTheQueueIsRefusedAtOnce) {
  limits_.queue_items = 3;
  Start();
  encoder().Block();
  auto admitted = Send({"A", "B"});
  encoder().WaitEntered(1);
  const HttpResponse refused = Send({"C", "D"}).get();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.headers, testing::Contains(testing::Pair("Retry-After", testing::_)));
  EXPECT_THAT(json::parse(refused.text)["error"]["message"], HasSubstr("--queue-items"));
  encoder().Unblock();
  admitted.get();
  WaitNothingAdmitted();
  EXPECT_EQ(Send({"C", "D", "E"}).get().status, 200);
}

TEST_F(EncodeServiceTest, LimitsMayChangeWhileItRuns) {
  Start();
  EXPECT_EQ(Send({"A", "B"}).get().status, 200);
  limits_.max_items = 1;
  live_limits_->Set(limits_);
  EXPECT_EQ(Send({"A", "B"}).get().status, 413);
}

TEST_F(EncodeServiceTest, ItemsThatAreNotDoneByTheDeadlineFailAndTheOthersAreAnswered) {
  limits_.request_timeout = milliseconds(200);
  Start();
  ASSERT_THAT(Ask({"A"}), ElementsAre("computed"));
  encoder().Block();
  const HttpResponse response = Send({"A", "B"}).get();
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(Outcomes(response), ElementsAre("local", "DEADLINE_EXCEEDED"));
  EXPECT_EQ(Send({"B"}).get().status, 504);
}

TEST_F(EncodeServiceTest, WorkThatIsGivenUpAtTheDeadlineFailsForThatThoughNoTimerHasNoticed) {
  timer_ = std::make_shared<IdleTimer>();
  Start();
  encoder().Block();
  auto busy = Send({"A"});
  encoder().WaitEntered(1);
  auto late = Begin({"B"}, {{"X-Request-Timeout-Ms", "20"}})->response();
  std::this_thread::sleep_for(milliseconds(40));
  encoder().Unblock();
  EXPECT_EQ(late.get().status, 504);
  EXPECT_EQ(busy.get().status, 200);
}

TEST_F(EncodeServiceTest, WhatIsComputedAfterTheDeadlineIsKept) {
  limits_.request_timeout = milliseconds(200);
  Start();
  encoder().Block();
  EXPECT_EQ(Send({"A"}).get().status, 504);
  encoder().Unblock();
  WaitNothingAdmitted();
  EXPECT_THAT(Ask({"A"}), ElementsAre("local"));
  EXPECT_EQ(encoder().prepared, 1U);
}

TEST_F(EncodeServiceTest, AWaiterLeadsWhenTheLeaderGaveUp) {
  limits_.request_timeout = std::chrono::seconds(2);
  Start();
  encoder().Block();
  auto busy = Send({"X"});  // takes the one encoder thread
  encoder().WaitEntered(1);
  auto leader = Send({"A"});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  auto waiter = Send({"A"});  // has a second left when the leader gives up
  EXPECT_EQ(leader.get().status, 504);
  encoder().Unblock();
  const HttpResponse response = waiter.get();
  EXPECT_EQ(response.status, 200);
  busy.get();
}

TEST_F(EncodeServiceTest, ARequestMaySetAShorterDeadline) {
  Start();
  encoder().Block();
  const Headers headers = {{"X-Request-Timeout-Ms", "50"}};
  EXPECT_EQ(Begin({"A"}, headers)->response().get().status, 504);
  encoder().Unblock();
  WaitNothingAdmitted();
  for (const char* huge : {"99999999999", "99999999999999999999"}) {
    EXPECT_EQ(Begin({"A"}, {{"X-Request-Timeout-Ms", huge}})->response().get().status, 200);
  }
  for (const char* wrong : {"0", "-5", "soon", "5s", "+5", "1e3", "-99999999999999999999"}) {
    const HttpResponse response = Begin({"A"}, {{"X-Request-Timeout-Ms", wrong}})->response().get();
    EXPECT_EQ(response.status, 400) << wrong;
    EXPECT_THAT(response.text, HasSubstr(wrong));
  }
}

TEST_F(EncodeServiceTest, TheRequestIdOfTheHeaderIsUsedWhereTheBodyHasNone) {
  Start();
  const HttpResponse response =
      Begin({"A"}, {{"X-Request-Id", "h-1"}, {"Accept", "application/json"}})->response().get();
  EXPECT_EQ(json::parse(response.text)["request_id"], "h-1");
  EXPECT_THAT(response.headers, testing::Contains(testing::Pair("X-Request-Id", "h-1")));
  EXPECT_EQ(Begin({"A"}, {{"X-Request-Id", "a b"}})->response().get().status, 400);
}

TEST_F(EncodeServiceTest, WorkThatWouldEndAfterTheDeadlineIsRefusedAtOnceButHitsAreServed) {
  Start();
  ASSERT_THAT(Ask({"A"}), ElementsAre("computed"));
  encoder().Block();
  auto busy = Send({"X"});
  encoder().WaitEntered(2);
  for (int i = 0; i < 100; ++i) model_->AddCost(3600);
  const HttpResponse response = Send({"A", "B"}).get();
  EXPECT_THAT(Outcomes(response), ElementsAre("local", "RESOURCE_EXHAUSTED"));
  const HttpResponse refused = Send({"B"}).get();
  EXPECT_EQ(refused.status, 503);
  const auto retry_after =
      std::find_if(refused.headers.begin(), refused.headers.end(),
                   [](const auto& header) { return header.first == "Retry-After"; });
  ASSERT_NE(retry_after, refused.headers.end());
  EXPECT_GT(std::stoi(retry_after->second), 1000);
  EXPECT_EQ(encoder().prepared, 2U);
  encoder().Unblock();
  busy.get();
}

TEST_F(EncodeServiceTest, ABadEstimateDoesNotKeepAnIdleEncoderFromWork) {
  Start();
  for (int i = 0; i < 100; ++i) model_->AddCost(3600);
  EXPECT_THAT(Ask({"A"}), ElementsAre("computed"));
  EXPECT_LT(model_->recent_cost_seconds(), 3600);
}

TEST_F(EncodeServiceTest, TheWorkOfAClientThatLeftIsGivenUp) {
  Start();
  encoder().Block();
  auto busy = Send({"X"});
  encoder().WaitEntered(1);
  const auto left = Begin({"A", "B"}, {});
  while (pipeline_->encode_queue_depth() < 2) std::this_thread::yield();
  left->Leave();
  encoder().Unblock();
  busy.get();
  WaitNothingAdmitted();
  EXPECT_EQ(encoder().batches().size(), 1U);
  EXPECT_THAT(Ask({"A"}), ElementsAre("computed"));
}

TEST_F(EncodeServiceTest, TheWorkOfAClientThatLeftGoesOnForThoseWhoWait) {
  Start();
  encoder().Block();
  auto busy = Send({"X"});
  encoder().WaitEntered(1);
  const auto left = Begin({"A"}, {});
  while (pipeline_->encode_queue_depth() < 1) std::this_thread::yield();
  auto waiter = Send({"A"});
  while (service_->admitted_items() < 3) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(50));  // for it to join
  left->Leave();
  encoder().Unblock();
  busy.get();
  EXPECT_THAT(Outcomes(waiter.get()), ElementsAre("joined"));
  EXPECT_EQ(encoder().prepared, 2U);
}

TEST_F(EncodeServiceTest, ABodyThatIsWrongIsRefusedAsAWhole) {
  Start();
  const HttpResponse response = BeginBody("{\"items\":[]}", {})->response().get();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(service_->admitted_items(), 0U);
}

TEST_F(EncodeServiceTest, PinsGoWhenTheAnswerDoes) {
  Start();
  {
    const HttpResponse response = Send({"A", "B"}, "*/*").get();
    EXPECT_EQ(controller_->Stats().pools[0].pinned_entries, 2U);
  }
  // The publication may hold them a moment longer.
  while (controller_->Stats().pools[0].pinned_entries > 0) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(controller_->host_cache().CheckInvariants().ok());
}

}  // namespace
}  // namespace embercache

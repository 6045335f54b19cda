#include "src/server/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "embercache/controller.h"

namespace embercache {
namespace {

using nlohmann::json;

class AnswerTest : public testing::Test {
 protected:
  AnswerTest() {
    ControllerOptions options;
    options.max_pool_bytes = 4 << 20;
    options.pools = {{Modality::kImage, spec_.row_bytes()}};
    controller_ = *EmbeddingCacheController::Create(options, {});
  }

  // An item with `tokens` rows of the byte `fill`.
  AnswerItem Item(uint64_t tokens, int fill, const std::string& metadata = "{}") {
    AnswerItem item;
    item.key = EmbeddingKey::FromCallerHash(spec_.namespace_digest, std::to_string(fill));
    item.has_key = true;
    item.source = "computed";
    const LookupItem wanted = {item.key, -1};
    controller_->Lookup(
        spec_, std::span(&wanted, 1), TimePoint::max(), TimePoint::max(),
        [&](size_t, LookupAnswer answer) {
          Claim claim = std::move(answer.claim);
          EXPECT_TRUE(claim.Reserve(tokens * spec_.row_bytes(), metadata.size()).ok());
          for (const MutableBuffer& buffer : claim.buffers()) {
            std::memset(buffer.data(), fill, buffer.size());
          }
          item.pin = *claim.Commit(tokens, metadata);
        });
    return item;
  }

  static AnswerItem Failed(Status status) {
    AnswerItem item;
    item.error = std::move(status);
    return item;
  }

  static Answer Of(AnswerItem a, AnswerItem b) {
    Answer answer;
    answer.request_id = "r";
    answer.items.push_back(std::move(a));
    answer.items.push_back(std::move(b));
    return answer;
  }

  static std::string BodyOf(const HttpResponse& response) {
    std::string body = response.text;
    for (const ConstBuffer& part : response.payload) {
      body.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    return body;
  }

  EmbeddingSpec spec_{Sha256Of("answer"), Modality::kImage, DType::kF32, 2};
  std::unique_ptr<EmbeddingCacheController> controller_;
};

TEST_F(AnswerTest, JsonDescribesEachItem) {
  AnswerItem item = Item(3, 1, R"({"width":5})");
  item.lookup = std::chrono::microseconds(1500);
  const HttpResponse response =
      ComposeAnswer(Of(std::move(item), Failed(Status::Invalid("bad"))), true);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_TRUE(response.payload.empty());
  const json body = json::parse(response.text);
  EXPECT_EQ(body["request_id"], "r");
  const json& first = body["items"][0];
  EXPECT_EQ(first["shape"], json({3, 2}));
  EXPECT_EQ(first["dtype"], "F32");
  EXPECT_EQ(first["bytes"], 24);
  EXPECT_EQ(first["metadata"], json({{"width", 5}}));
  EXPECT_EQ(first["ms"]["lookup"], 1.5);
  EXPECT_EQ(body["items"][1], json({{"error", {{"code", "INVALID"}, {"message", "bad"}}}}));
}

TEST_F(AnswerTest, SafetensorsHoldTheTensorsOfTheItemsThatSucceeded) {
  Answer answer = Of(Failed(Status::Invalid("bad")), Item(3, 1));
  answer.items.push_back(Item(1, 2));
  const HttpResponse response = ComposeAnswer(std::move(answer), false);
  EXPECT_EQ(response.content_type, "application/vnd.safetensors");
  const std::string body = BodyOf(response);
  uint64_t size;
  std::memcpy(&size, body.data(), sizeof size);
  EXPECT_EQ(size % 8, 0U);
  const json header = json::parse(body.substr(8, size));
  EXPECT_EQ(header["item_1"],
            json({{"dtype", "F32"}, {"shape", {3, 2}}, {"data_offsets", {0, 24}}}));
  EXPECT_EQ(header["item_2"]["data_offsets"], json({24, 32}));
  EXPECT_FALSE(header.contains("item_0"));
  EXPECT_EQ(body.substr(8 + size), std::string(24, '\1') + std::string(8, '\2'));
  const json items = json::parse(header["__metadata__"]["items"].get<std::string>());
  EXPECT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0]["error"]["code"], "INVALID");
}

TEST_F(AnswerTest, WithoutASuccessTheFirstItemsErrorDecidesWhateverIsAccepted) {
  for (const bool as_json : {true, false}) {
    const HttpResponse response = ComposeAnswer(
        Of(Failed(Status::DeadlineExceeded("slow")), Failed(Status::Invalid("bad"))), as_json);
    EXPECT_EQ(response.status, 504);
    EXPECT_EQ(response.content_type, "application/json");
    EXPECT_EQ(json::parse(response.text)["error"]["message"], "slow");
    EXPECT_EQ(json::parse(response.text)["items"][1]["error"]["message"], "bad");
  }
}

TEST_F(AnswerTest, AMessageThatRepeatsALongValueLosesTheMiddleOfIt) {
  const std::string message = "field 'type' is '" + std::string(1000, 'a') + "'; say \"image\"";
  const HttpResponse response =
      ComposeAnswer(Of(Failed(Status::Invalid(message)), Failed(Status::Invalid("bad"))), true);
  for (const json& error :
       {json::parse(response.text)["error"], json::parse(response.text)["items"][0]["error"]}) {
    EXPECT_THAT(error["message"], testing::StartsWith("field 'type' is 'aaa"));
    EXPECT_THAT(error["message"], testing::EndsWith("aaa'; say \"image\""));
    EXPECT_LT(error["message"].get<std::string>().size(), 500U);
  }
}

TEST_F(AnswerTest, MetadataThatIsNoObjectBecomesAnEmptyOne) {
  const HttpResponse response = ComposeAnswer(Of(Item(1, 1, "[1,"), Item(1, 2, "7")), true);
  EXPECT_EQ(json::parse(response.text)["items"][0]["metadata"], json::object());
  EXPECT_EQ(json::parse(response.text)["items"][1]["metadata"], json::object());
}

TEST(PrefersJson, FollowsTheHeader) {
  EXPECT_TRUE(PrefersJson("application/json"));
  EXPECT_TRUE(PrefersJson("application/json, text/plain, */*"));
  EXPECT_TRUE(PrefersJson("text/html, application/json;q=0.5"));
  EXPECT_TRUE(PrefersJson("application/vnd.safetensors;q=0.4,application/json;q=0.9"));
  EXPECT_FALSE(PrefersJson(""));
  EXPECT_FALSE(PrefersJson("*/*"));
  EXPECT_FALSE(PrefersJson("application/*"));
  EXPECT_FALSE(PrefersJson("application/json;q=0"));
  EXPECT_FALSE(PrefersJson("application/vnd.safetensors, application/json"));
  EXPECT_FALSE(PrefersJson("application/json;q=0.5, application/vnd.safetensors"));
  EXPECT_FALSE(PrefersJson("application/jsonx"));
}

}  // namespace
}  // namespace embercache

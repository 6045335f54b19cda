#include "src/server/encode_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace embercache {
namespace {

using testing::HasSubstr;

class EncodeRequestTest : public testing::Test {
 protected:
  Result<EncodeRequest> Parse(const std::string& json, size_t max_items = 10) {
    body_ = BodyBuffer();
    const auto bytes = std::as_bytes(std::span(json));
    std::copy(bytes.begin(), bytes.end(), body_.Extend(json.size()).begin());
    return ParseEncodeRequest(body_, max_items);
  }

  std::string ErrorOf(const std::string& json) {
    const auto request = Parse(json);
    return request.ok() ? "none" : request.status().message();
  }

  // What is wrong with the one item.
  std::string ItemError(const std::string& item) {
    const auto request = Parse("{\"items\":[" + item + "]}");
    if (!request.ok()) return "request: " + request.status().message();
    return request->items[0].error.message();
  }

  static std::string Text(const RequestedItem& item) {
    return {reinterpret_cast<const char*>(item.text.data()), item.text.size()};
  }

  BodyBuffer body_;
};

TEST_F(EncodeRequestTest, LeavesTheTextOfAnItemInTheBody) {
  const auto request = Parse(R"({"items":[{"type":"image","data":"QUJD" }]})");
  ASSERT_TRUE(request.ok()) << request.status().message();
  const RequestedItem& item = request->items[0];
  EXPECT_EQ(Text(item), "QUJD");
  EXPECT_EQ(item.form, MediaForm::kBase64);
  EXPECT_GE(item.text.data(), body_.bytes().data());
  EXPECT_LT(item.text.data(), body_.bytes().data() + body_.size());
}

TEST_F(EncodeRequestTest, UnescapesATextThatHasEscapes) {
  const auto request = Parse(R"({"items":[{"type":"image","data":"QU\/\u0044"}]})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(Text(request->items[0]), "QU/D");
}

TEST_F(EncodeRequestTest, TakesTheBase64OfADataUrl) {
  const auto request =
      Parse(R"({"items":[{"type":"image","url":"data:image/png;charset=x;base64,QUJD"}]})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(Text(request->items[0]), "QUJD");
}

TEST_F(EncodeRequestTest, ReadsAllFieldsInAnyOrder) {
  const auto request =
      Parse(R"({"model":"m","items":[{"path":"a/b","sha256":")" + std::string(64, 'a') +
            R"(","options":{"background":"#000000"},"type":"image"}],"request_id":"r"})");
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->request_id, "r");
  const RequestedItem& item = request->items[0];
  EXPECT_TRUE(item.error.ok());
  EXPECT_EQ(item.form, MediaForm::kPath);
  EXPECT_EQ(item.path, "a/b");
  EXPECT_EQ(item.sha256->ToHex(), std::string(64, 'a'));
  EXPECT_EQ(item.options.background, (std::array<uint8_t, 3>{0, 0, 0}));
}

TEST_F(EncodeRequestTest, ABadItemLeavesTheNextOnesAlone) {
  const auto request = Parse(
      R"({"items":[{"type":"image","junk":{"deep":[1,{"data":"}"}]},"data":"x"},7,null,
          {"type":"image","data":"QUJD"}],"model":"m"})");
  ASSERT_TRUE(request.ok()) << request.status().message();
  ASSERT_EQ(request->items.size(), 4U);
  EXPECT_THAT(request->items[0].error.message(), HasSubstr("'junk'"));
  EXPECT_FALSE(request->items[1].error.ok());
  EXPECT_FALSE(request->items[2].error.ok());
  EXPECT_TRUE(request->items[3].error.ok());
  EXPECT_EQ(Text(request->items[3]), "QUJD");
  EXPECT_EQ(request->model, "m");
}

TEST_F(EncodeRequestTest, NamesWhatIsWrongWithAnItem) {
  EXPECT_THAT(ItemError("{}"), HasSubstr("'type' is missing"));
  EXPECT_THAT(ItemError(R"({"type":"image"})"), HasSubstr("data, url, path"));
  EXPECT_THAT(ItemError(R"({"type":"image","data":"","url":"data:;base64,"})"),
              HasSubstr("only one"));
  EXPECT_THAT(ItemError(R"({"type":5,"data":""})"), HasSubstr("'type' has to be a string"));
  EXPECT_THAT(ItemError(R"({"type":"image","data":null})"), HasSubstr("'data' has to be a string"));
  EXPECT_THAT(ItemError(R"({"type":"image","data":"","data":""})"),
              HasSubstr("'data' comes twice"));
  EXPECT_THAT(ItemError(R"({"type":"image","data":"","options":"x"})"), HasSubstr("'options'"));
  EXPECT_THAT(ItemError(R"({"type":"image","url":"https://x/y.png"})"), HasSubstr("data: URL"));
  EXPECT_THAT(ItemError("[]"), HasSubstr("object"));
}

TEST_F(EncodeRequestTest, AKindOfMediaThatNoModelServesIsUnimplemented) {
  const auto request = Parse(R"({"items":[{"type":"audio","data":""}]})");
  EXPECT_EQ(request->items[0].error.code(), StatusCode::kUnimplemented);
}

TEST_F(EncodeRequestTest, RefusesWhatIsNoSuchRequest) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(" "), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("object"));
  EXPECT_THAT(ErrorOf(R"({"items":[{}]} x)"), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(R"({"items":[{}])"), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(R"({"items":[{"type":"image","data":"x])"), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(R"({"items":[]})"), HasSubstr("at least one"));
  EXPECT_THAT(ErrorOf(R"({"items":7})"), HasSubstr("array"));
  EXPECT_THAT(ErrorOf(R"({"item":[]})"), HasSubstr("'item'"));
  EXPECT_THAT(ErrorOf(R"({"model":1,"items":[{}]})"), HasSubstr("'model'"));
}

TEST_F(EncodeRequestTest, RefusesMoreItemsThanAllowedAsOverALimit) {
  EXPECT_TRUE(Parse(R"({"items":[{},{}]})", 2).ok());
  const auto request = Parse(R"({"items":[{},{},{}]})", 2);
  EXPECT_EQ(request.status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(request.status().retryable());
}

TEST_F(EncodeRequestTest, SurvivesEveryTruncationAndEveryFlippedByte) {
  const std::string json =
      R"({"request_id":"r","items":[{"type":"image","data":"QUJD","options":{"background":"none"}},)"
      R"({"type":"image","url":"data:;base64,QUJD","sha256":"00"}],"model":"m"})";
  for (size_t size = 0; size < json.size(); ++size) EXPECT_FALSE(Parse(json.substr(0, size)).ok());
  for (size_t i = 0; i < json.size(); ++i) {
    for (const char c : {'\0', '"', '\\', '{', ']', ',', '\xff'}) {
      std::string changed = json;
      changed[i] = c;
      (void)Parse(changed);
    }
  }
}

}  // namespace
}  // namespace embercache

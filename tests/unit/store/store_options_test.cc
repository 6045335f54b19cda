#include "src/store/store_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace embercache {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Values {
  std::string text = "default";
  bool flag = false;
  int64_t number = 1;
  uint64_t bytes = 2;
  Duration duration = std::chrono::seconds(3);
};

Status ReadAll(std::string_view json, Values* values) {
  StoreOptions options("test", json);
  options.Read("text", &values->text);
  options.Read("flag", &values->flag);
  options.Read("number", &values->number, -5, 5);
  options.ReadBytes("bytes", &values->bytes);
  options.ReadDuration("duration", &values->duration);
  return options.Finish();
}

TEST(StoreOptionsTest, WhatIsNotGivenKeepsItsDefault) {
  Values values;
  ASSERT_TRUE(ReadAll("{}", &values).ok());
  EXPECT_EQ(values.text, "default");
  EXPECT_EQ(values.number, 1);
  EXPECT_EQ(values.bytes, 2U);
  EXPECT_EQ(values.duration, std::chrono::seconds(3));
}

TEST(StoreOptionsTest, EachKindIsRead) {
  Values values;
  const Status status = ReadAll(
      R"({"text":"a","flag":true,"number":-5,"bytes":"10GiB","duration":"500ms"})", &values);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(values.text, "a");
  EXPECT_TRUE(values.flag);
  EXPECT_EQ(values.number, -5);
  EXPECT_EQ(values.bytes, 10ULL << 30);
  EXPECT_EQ(values.duration, std::chrono::milliseconds(500));
}

TEST(StoreOptionsTest, SizesMayBeNumbersOfBytes) {
  Values values;
  ASSERT_TRUE(ReadAll(R"({"bytes":10737418240})", &values).ok());
  EXPECT_EQ(values.bytes, 10ULL << 30);
}

TEST(StoreOptionsTest, WrongValuesAreRefusedByOptionAndValue) {
  for (const char* json :
       {R"({"text":7})", R"({"flag":1})", R"({"number":6})", R"({"number":1.5})",
        R"({"number":18446744073709551615})", R"({"bytes":-1})", R"({"bytes":"10 bananas"})",
        R"({"bytes":1.5})", R"({"duration":5})", R"({"duration":"5"})", R"({"text":null})"}) {
    Values values;
    const Status status = ReadAll(json, &values);
    ASSERT_EQ(status.code(), StatusCode::kInvalid) << json;
    const std::string text = json;
    const size_t colon = text.find(':');
    EXPECT_THAT(status.message(), HasSubstr("'" + text.substr(2, colon - 3) + "'")) << json;
    EXPECT_THAT(status.message(), HasSubstr(text.substr(colon + 1, text.size() - colon - 2)))
        << json;
    EXPECT_THAT(status.message(), HasSubstr("'test'")) << json;
  }
}

TEST(StoreOptionsTest, AnUnknownOptionListsThoseThereAre) {
  Values values;
  EXPECT_EQ(ReadAll(R"({"txet":"a"})", &values).message(),
            "store backend 'test' has no option 'txet'; there are: bytes, duration, flag, number, "
            "text");
}

TEST(StoreOptionsTest, WhatIsNoObjectIsRefusedWithoutRepeatingIt) {
  for (const char* json : {"", "{", "[]", "7", R"("redis://user:secret@host")",
                           R"({"url":"redis://user:secret@host")"}) {
    Values values;
    const Status status = ReadAll(json, &values);
    EXPECT_EQ(status.code(), StatusCode::kInvalid) << json;
    EXPECT_THAT(status.message(), HasSubstr("JSON object")) << json;
    EXPECT_THAT(status.message(), Not(HasSubstr("secret"))) << json;
  }
}

TEST(StoreOptions, APasswordInAWrongValueIsNotToldInItsMessage) {
  Values values;
  const Status status = ReadAll(R"({"text":["redis://user:hunter2@host"]})", &values);
  EXPECT_THAT(status.message(), HasSubstr("'text'"));
  EXPECT_THAT(status.message(), Not(HasSubstr("hunter2")));
}

}  // namespace
}  // namespace embercache

#include "src/server/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/server/encode_request.h"

namespace embercache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The parts as "name=content", files as "name@content"; or the error.
std::vector<std::string> Parts(std::string body, const std::string& boundary = "XX") {
  const auto parts = ParseMultipart(std::as_writable_bytes(std::span(body)), boundary, 4);
  if (!parts.ok()) return {"error: " + parts.status().message()};
  std::vector<std::string> texts;
  for (const FormPart& part : *parts) {
    texts.push_back(
        part.name + (part.is_file ? "@" : "=") +
        std::string(reinterpret_cast<const char*>(part.content.data()), part.content.size()));
  }
  return texts;
}

std::string File(const std::string& name, const std::string& content) {
  return "--XX\r\nContent-Disposition: form-data; name=\"" + name +
         "\"; filename=\"f.png\"\r\nContent-Type: image/png\r\n\r\n" + content + "\r\n";
}

std::string Field(const std::string& name, const std::string& content) {
  return "--XX\r\ncontent-disposition: form-data; name=" + name + "\r\n\r\n" + content + "\r\n";
}

// The boundary; or the error.
std::string Boundary(const std::string& content_type) {
  const auto boundary = MultipartBoundary(content_type);
  return boundary.ok() ? *boundary : "error: " + boundary.status().message();
}

TEST(MultipartBoundary, IsReadFromTheContentType) {
  EXPECT_EQ(Boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(Boundary("Multipart/Form-Data;charset=x; Boundary=\"a;b\""), "a;b");
  EXPECT_EQ(Boundary("multipart/form-data; boundary=" + std::string(70, 'a')),
            std::string(70, 'a'));
  EXPECT_EQ(Boundary("application/json"), "");
  EXPECT_EQ(Boundary(""), "");
}

TEST(MultipartBoundary, IsRefusedWhereItIsMissingBlankOrTooLong) {
  EXPECT_THAT(Boundary("multipart/form-data"), HasSubstr("without a boundary"));
  EXPECT_THAT(Boundary("multipart/form-data; charset=x"), HasSubstr("without a boundary"));
  EXPECT_THAT(Boundary("multipart/form-data; boundary="), HasSubstr("has 0 characters"));
  EXPECT_THAT(Boundary("multipart/form-data; boundary=\"\""), HasSubstr("has 0 characters"));
  EXPECT_THAT(Boundary("multipart/form-data; boundary=\"  \""), HasSubstr("blank"));
  EXPECT_THAT(Boundary("multipart/form-data; boundary=" + std::string(71, 'a')),
              HasSubstr("has 71 characters; it has to have 1 to 70"));
  EXPECT_THAT(Boundary("multipart/mixed; boundary=abc"), HasSubstr("'multipart/mixed'"));
}

TEST(Multipart, GivesThePartsInOrder) {
  EXPECT_THAT(Parts(File("a", "one") + Field("b", "two") + File("c", "") + "--XX--\r\n"),
              ElementsAre("a@one", "b=two", "c@"));
  EXPECT_THAT(Parts("preamble\r\n" + File("a", "1") + "--XX-- epilogue"), ElementsAre("a@1"));
  EXPECT_THAT(Parts("--XX--"), ElementsAre());
}

TEST(Multipart, KeepsContentThatLooksLikeABoundary) {
  const std::string content = "\r\n--X\r\n--XY\r\n\r\n--\r\n";
  EXPECT_THAT(Parts(File("a", content) + "--XX--"), ElementsAre("a@" + content));
}

TEST(Multipart, UnquotesNames) {
  EXPECT_THAT(Parts("--XX\r\nContent-Disposition: form-data; filename*=UTF-8''x; "
                    "name=\"a \\\"b\\\"; c\"\r\n\r\nx\r\n--XX--"),
              ElementsAre("a \"b\"; c@x"));
}

TEST(Multipart, SaysWhatIsWrong) {
  EXPECT_THAT(Parts(""), ElementsAre(HasSubstr("boundary is not in it")));
  EXPECT_THAT(Parts("hello"), ElementsAre(HasSubstr("boundary is not in it")));
  EXPECT_THAT(Parts(File("a", "x")), ElementsAre(HasSubstr("cut off")));
  EXPECT_THAT(Parts("--XX\r\nContent-Disposition: form-data; name=a"),
              ElementsAre(HasSubstr("does not end")));
  EXPECT_THAT(Parts("--XXhello\r\n"), ElementsAre(HasSubstr("line break")));
  EXPECT_THAT(Parts("--XX\r\n\r\nx\r\n--XX--"), ElementsAre(HasSubstr("Content-Disposition")));
  EXPECT_THAT(Parts("--XX\r\nContent-Disposition: form-data\r\n\r\nx\r\n--XX--"),
              ElementsAre(HasSubstr("name")));
  EXPECT_THAT(Parts(Field("a", "") + Field("a", "") + Field("a", "") + Field("a", "") +
                    Field("a", "") + "--XX--"),
              ElementsAre(HasSubstr("more than 4 parts")));
}

TEST(Multipart, SurvivesEveryTruncation) {
  const std::string body = File("a", "one") + Field("b", "two") + "--XX--";
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_THAT(Parts(body.substr(0, size)), ElementsAre(testing::StartsWith("error: "))) << size;
  }
}

class EncodeFormTest : public testing::Test {
 protected:
  Result<EncodeRequest> Parse(const std::string& text) {
    body_ = BodyBuffer();
    const auto bytes = std::as_bytes(std::span(text));
    std::copy(bytes.begin(), bytes.end(), body_.Extend(text.size()).begin());
    return ParseEncodeForm(body_, "XX", 2);
  }
  BodyBuffer body_;
};

TEST_F(EncodeFormTest, EachFileIsAnItemWithTheOptionsOfTheForm) {
  const auto request = Parse(File("f", "one") + Field("options", "{\"background\":\"#010203\"}") +
                             Field("model", "m") + File("f", "two") + "--XX--");
  ASSERT_TRUE(request.ok()) << request.status().message();
  ASSERT_EQ(request->items.size(), 2U);
  EXPECT_EQ(request->model, "m");
  for (const RequestedItem& item : request->items) {
    EXPECT_EQ(item.form, MediaForm::kBytes);
    EXPECT_EQ(item.text.size(), 3U);
    EXPECT_EQ(item.options.background, (std::array<uint8_t, 3>{1, 2, 3}));
  }
}

TEST_F(EncodeFormTest, RefusesWhatIsNoSuchForm) {
  EXPECT_THAT(Parse("--XX--").status().message(), HasSubstr("at least one file"));
  EXPECT_THAT(Parse(Field("colour", "red") + "--XX--").status().message(), HasSubstr("'colour'"));
  EXPECT_THAT(Parse(Field("options", "red") + File("f", "x") + "--XX--").status().code(),
              StatusCode::kInvalid);
  EXPECT_EQ(Parse(File("f", "1") + File("f", "2") + File("f", "3") + "--XX--").status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace embercache

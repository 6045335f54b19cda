#include "embercache/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace embercache {
namespace {

TEST(StatusTest, OkIsOnePointerWideAndCarriesNoMessage) {
  static_assert(sizeof(Status) == sizeof(void*));
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "OK");
}

TEST(StatusTest, CopiesAreIndependentAndMovedFromIsOk) {
  Status status = Status::Unavailable("store: down");
  Status copy = status;
  Status moved = std::move(status);
  EXPECT_EQ(copy.ToString(), "UNAVAILABLE: store: down");
  EXPECT_EQ(moved.ToString(), copy.ToString());
  EXPECT_TRUE(moved.retryable());
  EXPECT_FALSE(Status::Invalid("x").retryable());
}

TEST(StatusTest, ErrnoBecomesTheCodeThatFitsAndNamesTheThing) {
  Status status = Status::FromErrno(ENOSPC, "write /x");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "write /x: No space left on device");
  EXPECT_EQ(Status::FromErrno(ENOENT, "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(Status::FromErrno(EACCES, "x").code(), StatusCode::kUnavailable);
}

Result<std::unique_ptr<int>> Make(bool good) {
  if (!good) return Status::NotFound("no int");
  return std::make_unique<int>(7);
}

Result<int> Twice(bool good) {
  EMBERCACHE_ASSIGN_OR_RETURN(std::unique_ptr<int> value, Make(good));
  return *value * 2;
}

TEST(ResultTest, HoldsMoveOnlyValuesAndPassesErrorsOn) {
  EXPECT_EQ(Twice(true).value(), 14);
  EXPECT_EQ(Twice(false).status().ToString(), "NOT_FOUND: no int");
}

}  // namespace
}  // namespace embercache

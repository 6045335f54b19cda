#pragma once

// The conformance checks as GoogleTest cases, one a backend and check. In a test program's one .cc:
//
//   INSTANTIATE_TEST_SUITE_P(Redis, StoreConformanceTest, ConformanceOf("redis", MakeRedis),
//                            ConformanceTestName);
//
// where MakeRedis returns the StoreUnderTest, and is called once a test.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>

#include "tests/conformance/store_conformance.h"

namespace embercache {

struct ConformanceBackend {
  std::string name;
  std::function<StoreUnderTest()> make;
};

class StoreConformanceTest
    : public testing::TestWithParam<std::tuple<ConformanceBackend, ConformanceCheck>> {};

TEST_P(StoreConformanceTest, Conforms) {
  const auto& [backend, check] = GetParam();
  for (const std::string& failure : RunConformanceCheck(check, backend.make()).failures) {
    ADD_FAILURE() << failure;
  }
}

inline auto ConformanceOf(std::string name, std::function<StoreUnderTest()> make) {
  return testing::Combine(testing::Values(ConformanceBackend{std::move(name), std::move(make)}),
                          testing::ValuesIn(ConformanceChecks()));
}

inline std::string ConformanceTestName(
    const testing::TestParamInfo<StoreConformanceTest::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::string(std::get<1>(info.param).name);
}

}  // namespace embercache

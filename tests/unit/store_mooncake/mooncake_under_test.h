#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tests/conformance/conformance_gtest.h"

namespace embercache {

// What the conformance suite may ask of Mooncake, however it is reached.
inline StoreUnderTest MooncakeUnderTest(
    std::function<Result<std::unique_ptr<EmbeddingStore>>()> open) {
  StoreUnderTest mooncake;
  mooncake.name = "mooncake";
  mooncake.open = std::move(open);
  mooncake.traits.shared = true;
  mooncake.traits.versions = false;
  mooncake.traits.lists = false;
  mooncake.traits.tells_stored = false;
  mooncake.traits.empty_objects = false;
  mooncake.traits.changes_while_read = false;
  return mooncake;
}

}  // namespace embercache

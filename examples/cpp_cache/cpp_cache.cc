// Two caches on one folder: what the first one computed, the second one finds.
//
//   cmake --install build/release --component engine --prefix /opt/embercache
//   cmake -S examples/cpp_cache -B build/cpp_cache -D CMAKE_PREFIX_PATH=/opt/embercache
//   cmake --build build/cpp_cache && build/cpp_cache/cpp_cache FOLDER
//
// A function that repeats a digest stands for the encoder.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/controller.h"
#include "embercache/store_factory.h"

namespace {

using embercache::Claim;
using embercache::ControllerOptions;
using embercache::ControllerParts;
using embercache::Digest256;
using embercache::EmbeddingCacheController;
using embercache::EmbeddingKey;
using embercache::EmbeddingSpec;
using embercache::LookupAnswer;
using embercache::LookupItem;
using embercache::Modality;
using embercache::Pin;
using embercache::Result;
using embercache::Status;

constexpr uint64_t kTokens = 256;

EmbeddingSpec SpecOfTheModel() {
  EmbeddingSpec spec;
  // Another model, other weights, other preprocessing: another namespace.
  spec.namespace_digest = NamespaceDigest({.model_id = "example encoder v1"});
  spec.hidden = 1024;
  return spec;
}

EmbeddingKey KeyOf(std::string_view media) {
  return EmbeddingKey::FromMedia(SpecOfTheModel().namespace_digest, Modality::kImage,
                                 embercache::Sha256Of(media), embercache::Sha256Of(""));
}

// Fills the cache's own pages; slow in real life.
Result<Pin> Encode(std::string_view media, Claim claim) {
  const Status room = claim.Reserve(kTokens * SpecOfTheModel().row_bytes(), 0);
  if (!room.ok()) return room;
  const Digest256 digest = embercache::Sha256Of(media);
  for (embercache::MutableBuffer buffer : claim.buffers()) {
    for (size_t at = 0; at < buffer.size(); at += sizeof digest) {
      std::memcpy(buffer.data() + at, &digest, sizeof digest);
    }
  }
  return claim.Commit(kTokens, "");
}

Result<std::unique_ptr<EmbeddingCacheController>> OpenCache(const std::string& folder) {
  embercache::EmbeddingStoreFactory factory;
  RegisterBuiltinBackends(factory);
  auto store = factory.CreateBackend("file", {.json = R"({"dir":")" + folder + R"("})"});
  if (!store.ok()) return store.status();
  ControllerOptions options;
  options.max_pool_bytes = 64 << 20;
  options.pools = {{Modality::kImage, SpecOfTheModel().row_bytes()}};
  ControllerParts parts;
  parts.store = *std::move(store);
  return EmbeddingCacheController::Create(options, std::move(parts));
}

// Gets one embedding, from wherever it is; prints where that was.
Status GetOrEncode(EmbeddingCacheController& cache, std::string_view media) {
  const std::vector<EmbeddingKey> keys = {KeyOf(media)};
  const std::vector<LookupItem> items = {{.key = keys.front()}};
  std::promise<LookupAnswer> promise;
  const auto deadline = embercache::SteadyClock().Now() + std::chrono::seconds(10);
  cache.Lookup(SpecOfTheModel(), items, deadline, deadline,
               [&](size_t, LookupAnswer answer) { promise.set_value(std::move(answer)); });
  LookupAnswer answer = promise.get_future().get();
  if (!answer.status.ok()) return answer.status;
  const char* source = answer.source == embercache::Source::kGlobal ? "global" : "local";
  if (answer.claim) {
    Result<Pin> computed = Encode(media, std::move(answer.claim));
    if (!computed.ok()) return computed.status();
    answer.pin = *std::move(computed);
    source = "computed";
  }
  std::cout << media << ": " << source << ", " << answer.pin.info().payload_bytes() << " bytes\n";
  cache.InsertBatch(keys);  // also what was a local hit: other nodes may not have it
  return Status::Ok();
}

Status Run(const std::string& folder) {
  for (const char* name : {"first", "second"}) {
    auto cache = OpenCache(folder);
    if (!cache.ok()) return cache.status();
    std::cout << name << " cache\n";
    for (const char* picture : {"a cat", "a dog", "a cat"}) {
      const Status status = GetOrEncode(**cache, picture);
      if (!status.ok()) return status;
    }
    // Waits for what is being published.
    const Status closed =
        (*cache)->Close(embercache::SteadyClock().Now() + std::chrono::seconds(10));
    if (!closed.ok()) return closed;
  }
  return Status::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: cpp_cache FOLDER\n";
    return 2;
  }
  const Status status = Run(argv[1]);
  if (!status.ok()) std::cerr << status.ToString() << '\n';
  return status.ok() ? 0 : 1;
}

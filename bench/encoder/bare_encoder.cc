// The most that an encode server can do with a model: threads that call the encoder and nothing
// else, one each, as the server does.
//   bare_encoder MODEL_FOLDER THREADS BATCH COUNT FILE
// Prints the seconds that COUNT items took, in passes of BATCH, all of them FILE, prepared before.

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "embercache/encoder.h"

namespace embercache {
namespace {

// Takes passes until `left` are none. False: one failed.
bool Loop(const Encoder& encoder, const std::vector<const PreparedItem*>& batch,
          std::atomic<int>& left) {
  std::vector<EncodedItem> out(batch.size());
  while (left.fetch_sub(1) > 0) {
    if (!encoder.Encode(batch, out).ok()) return false;
  }
  return true;
}

Status Run(const std::string& model, size_t threads, size_t batch_items, int count,
           const std::string& path) {
  EMBERCACHE_ASSIGN_OR_RETURN(const auto encoder, LoadOnnxEncoder(model, {}));
  if (batch_items > encoder->info().max_batch) {
    return Status::Invalid(fmt::format("the model takes {} items", encoder->info().max_batch));
  }
  std::ifstream file(path, std::ios::binary);
  const std::string media{std::istreambuf_iterator<char>(file), {}};
  EMBERCACHE_ASSIGN_OR_RETURN(const auto item,
                              encoder->Prepare(std::as_bytes(std::span(media)), {}));
  const std::vector<const PreparedItem*> batch(batch_items, item.get());
  std::atomic<int> warm_up{static_cast<int>(threads)};
  std::atomic<int> left{count / static_cast<int>(batch_items)};
  std::atomic<bool> good{Loop(*encoder, batch, warm_up)};
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::jthread> running;
  for (size_t i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      if (!Loop(*encoder, batch, left)) good = false;
    });
  }
  running.clear();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!good) return Status::Internal("a pass failed");
  fmt::print("{}\n", took.count());
  return Status::Ok();
}

}  // namespace
}  // namespace embercache

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: bare_encoder MODEL_FOLDER THREADS BATCH COUNT FILE\n");
    return 2;
  }
  const embercache::Status status =
      embercache::Run(argv[1], std::strtoul(argv[2], nullptr, 10),
                      std::strtoul(argv[3], nullptr, 10), std::atoi(argv[4]), argv[5]);
  if (status.ok()) return 0;
  fmt::print(stderr, "bare_encoder: {}\n", status.ToString());
  return 1;
}

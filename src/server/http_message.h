#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "embercache/clock.h"
#include "embercache/embedding.h"
#include "embercache/store.h"

namespace embercache {

// The body of a request: one uninitialised block that grows, with kPadding readable bytes behind
// the last one (what simdjson asks for). Move-only.
class BodyBuffer {
 public:
  static constexpr size_t kPadding = 64;

  // Room for `bytes` more behind what is there, which becomes part of the body at once. The span is
  // good until the next call.
  std::span<std::byte> Extend(size_t bytes);
  // Gives up all behind the first `size` bytes. REQUIRES: size <= this->size().
  void Truncate(size_t size) { size_ = size; }

  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

struct HttpRequest {
  std::string method;
  // As it came, without the query.
  std::string path;
  std::string query;
  std::vector<std::pair<std::string, std::string>> headers;
  BodyBuffer body;
  // Keeps the body counted in the memory for bodies.
  std::shared_ptr<const void> charge;
  // When the last byte of the request was here.
  TimePoint received{};

  // The first header of that name, in any case; empty when there is none.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  // Besides Content-Type, Content-Length and Connection. A 503 has Retry-After: 1 by default.
  std::vector<std::pair<std::string, std::string>> headers;
  // The body: `text`, then `payload`, sent from where it lies; `pins` keep it there.
  std::string text;
  std::vector<ConstBuffer> payload;
  std::vector<Pin> pins;
  // Sending has to end by then; by default, only a reader that is too slow is given up.
  TimePoint deadline = TimePoint::max();
};

}  // namespace embercache

#include "src/server/http_message.h"

#include <strings.h>

#include <algorithm>
#include <new>

namespace embercache {

std::span<std::byte> BodyBuffer::Extend(size_t bytes) {
  if (size_ + bytes > capacity_) {
    const size_t capacity = std::max(size_ + bytes, 2 * capacity_);
    auto* const grown =
        static_cast<std::byte*>(std::realloc(data_.get(), capacity + kPadding));  // NOLINT
    if (grown == nullptr) throw std::bad_alloc();
    (void)data_.release();
    data_.reset(grown);
    capacity_ = capacity;
  }
  size_ += bytes;
  return {data_.get() + size_ - bytes, bytes};
}

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key.size() == name.size() && strncasecmp(key.data(), name.data(), name.size()) == 0) {
      return value;
    }
  }
  return {};
}

}  // namespace embercache

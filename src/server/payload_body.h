#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/server/http_message.h"

namespace embercache {

// A body that is sent from where it lies.
struct PayloadBody {
  struct value_type {
    std::vector<boost::asio::const_buffer> buffers;
    uint64_t bytes = 0;
  };

  static uint64_t size(const value_type& body) { return body.bytes; }

  class writer {
   public:
    using const_buffers_type = std::span<const boost::asio::const_buffer>;
    template <bool kIsRequest, class Fields>
    writer(const boost::beast::http::header<kIsRequest, Fields>& /*header*/, const value_type& body)
        : body_(body) {}
    void init(boost::system::error_code& error) { error = {}; }
    boost::optional<std::pair<const_buffers_type, bool>> get(boost::system::error_code& error) {
      error = {};
      if (body_.bytes == 0) return boost::none;
      return {{const_buffers_type(body_.buffers), false}};
    }

   private:
    const value_type& body_;
  };
};

// Lives no longer than `response`.
inline PayloadBody::value_type BodyOf(const HttpResponse& response) {
  PayloadBody::value_type body;
  body.buffers.reserve(response.payload.size() + 1);
  body.buffers.emplace_back(response.text.data(), response.text.size());
  for (const ConstBuffer& part : response.payload) {
    body.buffers.emplace_back(part.data(), part.size());
  }
  body.bytes = boost::asio::buffer_size(body.buffers);
  return body;
}

}  // namespace embercache

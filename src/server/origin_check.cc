#include "src/server/origin_check.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <strings.h>

#include <algorithm>

namespace embercache {
namespace {

bool IsPort(std::string_view text) {
  return text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

bool IsLoopbackHost(std::string_view host) {
  constexpr std::string_view kLocalhost = "localhost";
  if (host.size() >= kLocalhost.size() &&
      EqualIgnoringCase(host.substr(host.size() - kLocalhost.size()), kLocalhost)) {
    return host.size() == kLocalhost.size() || host[host.size() - kLocalhost.size() - 1] == '.';
  }
  const std::string text(host);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsLoopbackAuthority(std::string_view authority) {
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return false;
    const std::string_view rest = authority.substr(end + 1);
    return IsLoopbackHost(authority.substr(1, end - 1)) &&
           (rest.empty() || (rest.front() == ':' && IsPort(rest.substr(1))));
  }
  const size_t colon = std::min(authority.find(':'), authority.size());
  return IsLoopbackHost(authority.substr(0, colon)) &&
         (colon == authority.size() || IsPort(authority.substr(colon + 1)));
}

std::string ForeignHeader(std::string_view host, std::string_view origin) {
  if (!IsLoopbackAuthority(host)) {
    return fmt::format("header Host is '{}'; a server on loopback answers to localhost only", host);
  }
  if (origin.empty()) return {};
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || !IsLoopbackAuthority(origin.substr(scheme + 3))) {
    return fmt::format("header Origin is '{}'; a server on loopback answers to local pages only",
                       origin);
  }
  return {};
}

}  // namespace embercache

#pragma once

#include <string>
#include <string_view>

namespace embercache {

// Keeps web pages that a browser on this machine shows away from a server that listens on loopback:
// a name that a page's owner points here (Host), and requests of other sites (Origin).

// True for localhost, *.localhost, 127.0.0.0/8 and ::1.
bool IsLoopbackHost(std::string_view host);

// The same for what stands in Host and in URLs: a port may follow, and IPv6 stands in brackets.
bool IsLoopbackAuthority(std::string_view authority);

// Empty when the headers are fine, else the reason for refusing. `origin` is empty when there is
// none.
std::string ForeignHeader(std::string_view host, std::string_view origin);

}  // namespace embercache

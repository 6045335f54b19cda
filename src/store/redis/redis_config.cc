#include "src/store/redis/redis_config.h"

// Invariant: no message repeats a text that may hold a password.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "src/store/redis/object.h"
#include "src/store/store_options.h"

namespace embercache::redis {
namespace {

constexpr int64_t kMaxDatabase = 16383;
constexpr std::string_view kUrlForms =
    "redis://[user@]host[:port][/database], rediss://… for TLS, or unix:///path";

template <typename Number>
bool ParseNumber(std::string_view text, Number max, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= max;
}

Status BadUrl(std::string_view url, std::string_view what) {
  return Status::Invalid(fmt::format("redis: url '{}': {}; it should be {}", url, what, kUrlForms));
}

// Cuts "[host]:port" or "host:port" into the endpoint.
Status ParseAuthority(std::string_view url, std::string_view authority, Endpoint& endpoint) {
  endpoint.port = 6379;
  size_t host_end = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) return BadUrl(url, "']' is missing");
    endpoint.host = authority.substr(1, bracket - 1);
    authority.remove_prefix(bracket + 1);
    if (!authority.empty() && authority[0] != ':') return BadUrl(url, "no ':' after ']'");
    host_end = authority.empty() ? std::string_view::npos : 0;
  } else {
    endpoint.host = authority.substr(0, host_end);
  }
  if (endpoint.host.empty()) return BadUrl(url, "no host");
  if (host_end == std::string_view::npos) return Status::Ok();
  uint32_t port = 0;
  if (!ParseNumber(authority.substr(host_end + 1), 65535U, port) || port == 0) {
    return BadUrl(url, "the port has to be 1 to 65535");
  }
  endpoint.port = static_cast<uint16_t>(port);
  return Status::Ok();
}

// The first line of the file.
Result<std::string> ReadPassword(const std::string& path) {
  std::ifstream file(path);
  std::string password;
  if (!std::getline(file, password) || password.empty()) {
    return Status::Invalid(
        fmt::format("redis: password_file '{}': cannot read a password from its first line", path));
  }
  if (password.back() == '\r') password.pop_back();
  return password;
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Status CheckReadable(std::string_view option, const std::string& path) {
  if (path.empty() || std::ifstream(path).good()) return Status::Ok();
  return Status::Invalid(fmt::format("redis: {} '{}': cannot read the file", option, path));
}

Status CheckTls(const RedisConfig& config) {
  if (!config.tls) {
    if (config.tls_ca_file.empty() && config.tls_cert_file.empty() && config.tls_key_file.empty()) {
      return Status::Ok();
    }
    return Status::Invalid(fmt::format(
        "redis: url '{}' is not encrypted, so ca_file, cert_file and key_file say nothing; use "
        "rediss://",
        config.url));
  }
  if (config.tls_cert_file.empty() != config.tls_key_file.empty()) {
    return Status::Invalid("redis: a client certificate needs both cert_file and key_file");
  }
  EMBERCACHE_RETURN_IF_ERROR(CheckReadable("ca_file", config.tls_ca_file));
  EMBERCACHE_RETURN_IF_ERROR(CheckReadable("cert_file", config.tls_cert_file));
  return CheckReadable("key_file", config.tls_key_file);
}

Status ApplyUrl(RedisConfig& config, int64_t database) {
  EMBERCACHE_ASSIGN_OR_RETURN(const RedisUrl url, ParseRedisUrl(config.url));
  config.endpoint = url.endpoint;
  config.tls = url.tls;
  if (!url.username.empty() && !config.username.empty() && url.username != config.username) {
    return Status::Invalid(fmt::format("redis: url names user '{}' and username is '{}'; give one",
                                       url.username, config.username));
  }
  if (config.username.empty()) config.username = url.username;
  if (url.database >= 0 && database >= 0 && url.database != database) {
    return Status::Invalid(fmt::format("redis: url names database {} and database is {}; give one",
                                       url.database, database));
  }
  config.database = std::max<int64_t>({url.database, database, 0});
  return Status::Ok();
}

Status ApplyCredentials(RedisConfig& config, const std::string& password_file) {
  if (config.username.empty()) config.username = FromEnvironment("EMBERCACHE_REDIS_USERNAME");
  config.password = FromEnvironment("EMBERCACHE_REDIS_PASSWORD");
  if (!password_file.empty()) {
    EMBERCACHE_ASSIGN_OR_RETURN(config.password, ReadPassword(password_file));
  }
  if (!config.username.empty() && config.password.empty()) {
    return Status::Invalid(
        fmt::format("redis: user '{}' needs a password: set EMBERCACHE_REDIS_PASSWORD or "
                    "password_file",
                    config.username));
  }
  return Status::Ok();
}

}  // namespace

std::string Endpoint::ToString() const {
  if (!unix_path.empty()) return unix_path;
  const bool ipv6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", ipv6 ? "[" : "", host, ipv6 ? "]" : "", port);
}

Result<RedisUrl> ParseRedisUrl(std::string_view url) {
  const size_t scheme_end = url.find("://");
  std::string_view rest = scheme_end == url.npos ? url : url.substr(scheme_end + 3);
  const size_t at = rest.rfind('@');
  if (at != rest.npos && rest.substr(0, at).find(':') != rest.npos) {
    return Status::Invalid(
        "redis: url holds a password; put it into EMBERCACHE_REDIS_PASSWORD or the file that "
        "password_file names");
  }
  if (url.find('?') != url.npos) {
    return Status::Invalid(fmt::format(
        "redis: url has options after '?', which are not known; it should be {}", kUrlForms));
  }
  const std::string_view scheme = scheme_end == url.npos ? "" : url.substr(0, scheme_end);
  RedisUrl parsed;
  if (scheme == "unix") {
    if (!rest.starts_with('/')) return BadUrl(url, "the socket's path has to be absolute");
    parsed.endpoint.unix_path = rest;
    return parsed;
  }
  if (scheme != "redis" && scheme != "rediss") return BadUrl(url, "its scheme is not known");
  parsed.tls = scheme == "rediss";
  if (at != rest.npos) {
    parsed.username = rest.substr(0, at);
    rest.remove_prefix(at + 1);
  }
  const size_t slash = rest.find('/');
  if (slash != rest.npos && slash + 1 < rest.size()) {
    if (!ParseNumber(rest.substr(slash + 1), kMaxDatabase, parsed.database) ||
        parsed.database < 0) {
      return BadUrl(url, "the database has to be a number");
    }
  }
  EMBERCACHE_RETURN_IF_ERROR(ParseAuthority(url, rest.substr(0, slash), parsed.endpoint));
  return parsed;
}

Result<RedisConfig> RedisConfig::Parse(std::string_view json) {
  RedisConfig config;
  std::string password_file;
  int64_t database = -1;
  StoreOptions options("redis", json);
  options.Read("url", &config.url);
  options.Read("username", &config.username);
  options.Read("password_file", &password_file);
  options.Read("database", &database, 0, kMaxDatabase);
  options.Read("ca_file", &config.tls_ca_file);
  options.Read("cert_file", &config.tls_cert_file);
  options.Read("key_file", &config.tls_key_file);
  options.Read("connections", &config.connections, 2, 4);
  options.ReadDuration("ttl", &config.ttl);
  options.ReadBytes("max_value_bytes", &config.max_value_bytes);
  EMBERCACHE_RETURN_IF_ERROR(options.Finish());
  EMBERCACHE_RETURN_IF_ERROR(ApplyUrl(config, database));
  EMBERCACHE_RETURN_IF_ERROR(ApplyCredentials(config, password_file));
  EMBERCACHE_RETURN_IF_ERROR(CheckTls(config));
  if (config.ttl != Duration(0) && config.ttl < std::chrono::seconds(1)) {
    return Status::Invalid("redis: ttl has to be 1s or more; leave it out for no expiry");
  }
  if (config.max_value_bytes == 0 || config.max_value_bytes > kMaxObjectBytes) {
    return Status::Invalid(fmt::format("redis: max_value_bytes is {}; it has to be 1 to {}",
                                       config.max_value_bytes, kMaxObjectBytes));
  }
  return config;
}

}  // namespace embercache::redis

#include "src/store/mooncake/library_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

namespace embercache::mooncake {
namespace {

// No code of a client: what an answer leaves out.
constexpr int kUnanswered = std::numeric_limits<int>::min();

// A client installs handlers of its own; those of the program stay.
class SignalHandlers {
 public:
  SignalHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &saved_[i]);
  }
  ~SignalHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &saved_[i], nullptr);
  }
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  std::array<struct sigaction, kSignals.size()> saved_;
};

// The address of this machine that the master is reached from; a UDP socket sends nothing.
Result<std::string> LocalAddress(const std::string& master) {
  const size_t colon = master.rfind(':');
  std::string host = master.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), master.substr(colon + 1).c_str(), &hints, &list);
  if (error != 0) {
    return Status::Unavailable(fmt::format("master {}: {}", master, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  sockaddr_storage own{};
  socklen_t own_bytes = sizeof own;
  char text[NI_MAXHOST] = "";
  const int fd = socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC, list->ai_protocol);
  const bool found = fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&own), own_bytes, text, sizeof text,
                                 nullptr, 0, NI_NUMERICHOST) == 0;
  if (fd >= 0) close(fd);
  if (!found) return Status::Unavailable(fmt::format("there is no way to the master {}", master));
  return std::string(text);
}

// Keys end at a zero there, so one that has any goes by another name, which no other key has.
std::string CKey(const std::string& key) {
  constexpr std::string_view kPrefix = "\x01hex:";
  if (key.find('\0') == std::string::npos && !key.starts_with(kPrefix)) return key;
  std::string text(kPrefix);
  for (const char c : key) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// A batch in the form that the C ABI takes.
struct Arrays {
  explicit Arrays(const std::vector<ClientObject>& objects) {
    for (const ClientObject& object : objects) {
      texts.push_back(CKey(object.key));
      buffers.push_back(object.memory);
      sizes.push_back(object.bytes);
    }
    for (const std::string& text : texts) keys.push_back(text.c_str());
  }
  std::vector<std::string> texts;
  std::vector<const char*> keys;
  std::vector<void*> buffers;
  std::vector<size_t> sizes;
};

}  // namespace

void LibraryClient::End() {
  if (store_ != nullptr) library_.destroy(store_);
  store_ = nullptr;
}

Result<std::string> LibraryClient::SetUp(std::string_view json) {
  const auto config = nlohmann::json::parse(json, nullptr, false);
  if (!config.is_object()) return Status::Internal("the set-up is no JSON object");
  const auto text = [&](const char* name) { return config.value(name, std::string()); };
  EMBERCACHE_ASSIGN_OR_RETURN(library_, StoreLibrary::Load(text("library")));
  if (!text("tenant_id").empty()) {
    return Status::Invalid(
        fmt::format("tenant_id is '{}'; Mooncake's C library has no tenants, the wheel has",
                    text("tenant_id")));
  }
  EMBERCACHE_RETURN_IF_ERROR(library_.CheckProtocol(text("protocol")));
  std::string local = text("local_hostname");
  if (local.empty()) {
    EMBERCACHE_ASSIGN_OR_RETURN(local, LocalAddress(text("master_server_address")));
  }
  const SignalHandlers handlers;
  void* const store = library_.create();
  if (store == nullptr) return Status::Unavailable("the library makes no client");
  // No segment of our own: memory that others store in belongs to a process of its own.
  const int code =
      library_.setup(store, local.c_str(), text("metadata_server").c_str(), 0,
                     config.value("local_buffer_size", uint64_t{0}), text("protocol").c_str(),
                     text("device_name").c_str(), text("master_server_address").c_str());
  // A handle whose set-up failed is left alone: any call on it may crash.
  if (code != 0) return Status::Unavailable(fmt::format("setup answers {}", code));
  store_ = store;
  return library_.file;
}

Result<std::vector<int64_t>> LibraryClient::Run(Op op, const std::vector<ClientObject>& objects) {
  Arrays arrays(objects);
  const size_t count = objects.size();
  std::vector<int64_t> answers(count, kUnanswered);
  std::vector<int> codes(count, kUnanswered);
  int all = 0;
  switch (op) {
    case Op::kPut:
      all = library_.batch_put_from(store_, arrays.keys.data(), arrays.buffers.data(),
                                    arrays.sizes.data(), count, nullptr, codes.data());
      answers.assign(codes.begin(), codes.end());
      break;
    case Op::kGet:
      all = library_.batch_get_into(store_, arrays.keys.data(), arrays.buffers.data(),
                                    arrays.sizes.data(), count, answers.data());
      break;
    case Op::kExist:
      all = library_.batch_is_exist(store_, arrays.keys.data(), count, codes.data());
      answers.assign(codes.begin(), codes.end());
      break;
    case Op::kSize:
      for (size_t i = 0; i < count; ++i) answers[i] = library_.get_size(store_, arrays.keys[i]);
      break;
    case Op::kRemove:
      for (size_t i = 0; i < count; ++i) answers[i] = library_.remove(store_, arrays.keys[i], 0);
      break;
    default:
      return Status::Internal(fmt::format("operation {} is not known", static_cast<uint32_t>(op)));
  }
  if (all != 0) return Status::Internal(fmt::format("the library's batch call answers {}", all));
  return answers;
}

}  // namespace embercache::mooncake

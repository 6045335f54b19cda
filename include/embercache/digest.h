#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace embercache {

// 256 bits, as SHA-256 gives them.
struct Digest256 {
  std::array<std::byte, 32> bytes{};

  // 64 lower-case hexadecimal digits.
  std::string ToHex() const;
  // Takes exactly 64 hexadecimal digits of either case, else nullopt.
  static std::optional<Digest256> FromHex(std::string_view hex);

  auto operator<=>(const Digest256&) const = default;
};

// Incremental SHA-256 (FIPS 180-4). Not thread-safe; one object a message.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(std::span<const std::byte> data);
  void Update(std::string_view text);
  // The digest of all that was given. Ends the object's use.
  Digest256 Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Digest256 Sha256Of(std::span<const std::byte> data);
Digest256 Sha256Of(std::string_view text);

}  // namespace embercache

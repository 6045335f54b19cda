#include "embercache/digest.h"

#include <openssl/evp.h>

#include <cstdlib>

namespace embercache {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Digest256::ToHex() const {
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    hex.push_back(kHexDigits[std::to_integer<unsigned>(b) >> 4]);
    hex.push_back(kHexDigits[std::to_integer<unsigned>(b) & 15U]);
  }
  return hex;
}

std::optional<Digest256> Digest256::FromHex(std::string_view hex) {
  Digest256 digest;
  if (hex.size() != digest.bytes.size() * 2) return std::nullopt;
  for (size_t i = 0; i < digest.bytes.size(); ++i) {
    const int high = HexValue(hex[2 * i]);
    const int low = HexValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest.bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return digest;
}

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  // Fails only without memory or without SHA-256 in libcrypto; no key can be made then.
  if (context_->evp == nullptr || EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
}

Sha256::~Sha256() = default;

void Sha256::Update(std::span<const std::byte> data) {
  if (EVP_DigestUpdate(context_->evp, data.data(), data.size()) != 1) std::abort();
}

void Sha256::Update(std::string_view text) {
  Update(std::as_bytes(std::span(text)));
}

Digest256 Sha256::Finish() {
  Digest256 digest;
  unsigned size = 0;
  if (EVP_DigestFinal_ex(context_->evp, reinterpret_cast<unsigned char*>(digest.bytes.data()),
                         &size) != 1 ||
      size != digest.bytes.size()) {
    std::abort();
  }
  return digest;
}

Digest256 Sha256Of(std::span<const std::byte> data) {
  Sha256 sha;
  sha.Update(data);
  return sha.Finish();
}

Digest256 Sha256Of(std::string_view text) {
  return Sha256Of(std::as_bytes(std::span(text)));
}

}  // namespace embercache

#include <utility>

#include "embercache/embedding.h"
#include "src/cache/host_cache.h"

// The handles of embedding.h; what they do is HostCache's.

namespace embercache {

Pin::Pin(std::shared_ptr<HostCache> core, CacheEntry* entry, std::shared_ptr<const Block> block)
    : core_(std::move(core)), entry_(entry), block_(std::move(block)) {}

Pin::Pin(Pin&& other) noexcept
    : core_(std::move(other.core_)),
      entry_(std::exchange(other.entry_, nullptr)),
      block_(std::move(other.block_)) {}

Pin& Pin::operator=(Pin&& other) noexcept {
  if (this != &other) {
    Release();
    core_ = std::move(other.core_);
    entry_ = std::exchange(other.entry_, nullptr);
    block_ = std::move(other.block_);
  }
  return *this;
}

const EmbeddingInfo& Pin::info() const {
  return block_->info();
}
std::span<const ConstBuffer> Pin::buffers() const {
  return block_->payload();
}

Pin Pin::Share() const {
  if (entry_ == nullptr) return Pin(core_, nullptr, block_);
  return core_->Share(*this);
}

void Pin::Release() {
  block_.reset();
  if (CacheEntry* entry = std::exchange(entry_, nullptr)) core_->Release(entry);
  core_.reset();
}

Claim::Claim(std::shared_ptr<HostCache> core, CacheEntry* entry)
    : core_(std::move(core)), entry_(entry) {}

Claim::Claim(Claim&& other) noexcept
    : core_(std::move(other.core_)), entry_(std::exchange(other.entry_, nullptr)) {}

Claim& Claim::operator=(Claim&& other) noexcept {
  if (this != &other) {
    if (entry_ != nullptr) Abort(Status::Cancelled("the claim was given up"));
    core_ = std::move(other.core_);
    entry_ = std::exchange(other.entry_, nullptr);
  }
  return *this;
}

Claim::~Claim() {
  if (entry_ != nullptr) Abort(Status::Cancelled("the claim was dropped"));
}

const EmbeddingKey& Claim::key() const {
  return entry_->key;
}
bool Claim::wanted() const {
  return core_->IsWanted(*entry_);
}
bool Claim::uncached() const {
  return entry_->uncached;
}
std::span<const MutableBuffer> Claim::buffers() const {
  return entry_->block->fill_buffers();
}
const std::shared_ptr<Block>& Claim::block() const {
  return entry_->block;
}

Status Claim::Reserve(uint64_t payload_bytes, uint64_t metadata_bytes) {
  return core_->Reserve(entry_, payload_bytes, metadata_bytes);
}

void Claim::DropMemory() {
  core_->DropMemory(entry_);
}

Result<Pin> Claim::Commit(uint64_t tokens, std::string metadata, double cost_ms) {
  return std::exchange(core_, nullptr)
      ->Commit(std::exchange(entry_, nullptr), tokens, std::move(metadata), cost_ms, false);
}

Result<Pin> Claim::CommitFetched(uint64_t tokens, std::string metadata) {
  return std::exchange(core_, nullptr)
      ->Commit(std::exchange(entry_, nullptr), tokens, std::move(metadata), 0, true);
}

void Claim::Abort(Status reason) {
  std::exchange(core_, nullptr)->Abort(std::exchange(entry_, nullptr), reason);
}

}  // namespace embercache

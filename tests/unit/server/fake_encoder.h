#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "embercache/encoder.h"
#include "src/server/served_model.h"

namespace embercache {

// An encoder of texts: "AB" becomes 2 rows of 4 floats, each the letter's code. A text that begins
// with '!' cannot be decoded; a batch that holds one with '?' fails. '~' becomes a row of
// NaN. Texts of one length make one shape.
class FakeEncoder final : public Encoder {
 public:
  static constexpr uint32_t kHidden = 4;

  FakeEncoder() {
    info_.model_id = "fake";
    info_.preprocess_fingerprint = "fake";
    info_.hidden = kHidden;
    info_.max_batch = 8;
  }

  const EncoderInfo& info() const override { return info_; }

  Result<std::unique_ptr<PreparedItem>> Prepare(std::span<const std::byte> media,
                                                const MediaOptions& /*options*/) const override {
    ++prepared;
    const std::string text(reinterpret_cast<const char*>(media.data()), media.size());
    if (text.front() == '!') return Status::Invalid("'" + text + "' is broken");
    auto item = std::make_unique<PreparedItem>();
    item->shape = {static_cast<int64_t>(text.size())};
    item->data = std::make_unique<std::byte[]>(media.size());
    item->size_bytes = media.size();
    std::copy(media.begin(), media.end(), item->data.get());
    item->metadata_json = "{\"letters\":" + std::to_string(text.size()) + "}";
    return item;
  }

  Status Encode(std::span<const PreparedItem* const> items,
                std::span<EncodedItem> out) const override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      batches_.push_back(items.size());
      ++entered_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !blocked_; });
    }
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i]->data[0] == std::byte{'?'}) return Status::Internal("the runtime failed");
      out[i] = EncodeOne(*items[i]);
    }
    return Status::Ok();
  }

  // Encode calls wait from now on, until Unblock.
  void Block() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocked_ = true;
  }
  void Unblock() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocked_ = false;
    changed_.notify_all();
  }
  // Until `calls` Encode calls have begun.
  void WaitEntered(size_t calls) const {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return entered_ >= calls; });
  }
  // Items of each Encode call.
  std::vector<size_t> batches() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return batches_;
  }

  mutable std::atomic<size_t> prepared{0};

 private:
  static EncodedItem EncodeOne(const PreparedItem& item) {
    auto rows = std::make_shared<std::vector<float>>();
    for (size_t i = 0; i < item.size_bytes; ++i) {
      const int code = std::to_integer<int>(item.data[i]);
      rows->insert(rows->end(), kHidden, code == '~' ? NAN : static_cast<float>(code));
    }
    EncodedItem encoded;
    encoded.tokens = static_cast<uint32_t>(item.size_bytes);
    encoded.hidden = kHidden;
    encoded.bytes = std::as_bytes(std::span(*rows));
    encoded.owner = rows;
    return encoded;
  }

  EncoderInfo info_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool blocked_ = false;
  mutable size_t entered_ = 0;
  mutable std::vector<size_t> batches_;
};

inline std::shared_ptr<ServedModel> FakeModel(std::string name = "fake") {
  auto model = std::make_shared<ServedModel>();
  auto encoder = std::make_unique<FakeEncoder>();
  NamespaceFields fields;
  fields.model_id = name;
  model->spec = {NamespaceDigest(fields), Modality::kImage, DType::kF32, FakeEncoder::kHidden};
  model->name = std::move(name);
  model->encoder = std::move(encoder);
  return model;
}

inline const FakeEncoder& EncoderOf(const ServedModel& model) {
  return static_cast<const FakeEncoder&>(*model.encoder);
}

}  // namespace embercache

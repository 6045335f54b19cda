#include "src/store/faulty_store.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

namespace embercache {
namespace {

template <typename ResultType>
std::vector<ResultType> AllClosed(size_t items) {
  std::vector<ResultType> results(items);
  for (ResultType& result : results) result.status = CallGate::ClosedStatus();
  return results;
}

// The first `bytes` bytes of the buffers.
std::vector<ConstBuffer> Head(std::span<const ConstBuffer> buffers, uint64_t bytes) {
  std::vector<ConstBuffer> head;
  for (const ConstBuffer& buffer : buffers) {
    head.push_back(buffer.first(std::min<uint64_t>(bytes, buffer.size())));
    bytes -= head.back().size();
  }
  return head;
}

void CopyHead(std::span<const std::byte> source, std::span<const MutableBuffer> buffers) {
  for (const MutableBuffer& buffer : buffers) {
    const size_t bytes = std::min(source.size(), buffer.size());
    if (bytes > 0) std::memcpy(buffer.data(), source.data(), bytes);
    source = source.subspan(bytes);
  }
}

void FlipBit(std::span<const MutableBuffer> buffers, uint64_t random) {
  const uint64_t bytes = TotalBytes(buffers);
  if (bytes == 0) return;
  uint64_t place = random / 8 % bytes;
  for (const MutableBuffer& buffer : buffers) {
    if (place < buffer.size()) {
      buffer[place] ^= std::byte{1} << (random % 8);
      return;
    }
    place -= buffer.size();
  }
}

}  // namespace

FaultyStore::FaultyStore(std::shared_ptr<EmbeddingStore> inner, uint64_t seed,
                         std::function<void(Duration)> sleep)
    : inner_(std::move(inner)),
      sleep_(sleep ? std::move(sleep) : [](Duration time) { std::this_thread::sleep_for(time); }),
      random_(seed) {}

size_t FaultyStore::Inject(FaultRule rule) {
  MutexLock lock(mutex_);
  rules_.push_back({std::move(rule)});
  return rules_.size() - 1;
}

void FaultyStore::Clear() {
  MutexLock lock(mutex_);
  for (Rule& rule : rules_) rule.active = false;
  ++releases_;
  changed_.NotifyAll();
}

void FaultyStore::Release() {
  MutexLock lock(mutex_);
  ++releases_;
  changed_.NotifyAll();
}

uint64_t FaultyStore::Struck(size_t rule) const {
  MutexLock lock(mutex_);
  return std::next(rules_.begin(), static_cast<std::ptrdiff_t>(rule))->struck;
}

uint64_t FaultyStore::Seen(StoreOp op) const {
  MutexLock lock(mutex_);
  return seen_[static_cast<size_t>(op)];
}

bool FaultyStore::WaitUntilHanging(size_t calls, TimePoint deadline) {
  MutexLock lock(mutex_);
  while (hanging_ < calls) {
    if (!changed_.WaitUntil(mutex_, deadline)) return hanging_ >= calls;
  }
  return true;
}

void FaultyStore::MeetItem(StoreOp op, std::string_view key, Plan& plan) {
  ++seen_[static_cast<size_t>(op)];
  Strike& strike = plan.items.emplace_back();
  strike.random = random_();
  for (Rule& rule : rules_) {
    const FaultRule& fault = rule.fault;
    if (!rule.active || fault.op != op || (!fault.key.empty() && fault.key != key)) continue;
    const uint64_t match = rule.matched++;
    if (match < fault.skip || match - fault.skip >= fault.count) continue;
    if (std::uniform_real_distribution<double>(0, 1)(random_) >= fault.probability) continue;
    ++rule.struck;
    if (fault.kind == FaultKind::kDelay) {
      plan.delay = std::max(plan.delay, fault.delay);
    } else if (fault.kind == FaultKind::kHang) {
      plan.hang = true;
    } else {
      plan.throws |= fault.kind == FaultKind::kThrow;
      plan.few_results |= fault.kind == FaultKind::kFewResults;
      strike.fault = &fault;
      return;
    }
  }
}

template <typename Item>
FaultyStore::Plan FaultyStore::Meet(StoreOp op, std::span<const Item> items) {
  MutexLock lock(mutex_);
  Plan plan;
  plan.items.reserve(items.size());
  for (const Item& item : items) MeetItem(op, KeyOf(item), plan);
  return plan;
}

void FaultyStore::Suffer(const Plan& plan) {
  if (plan.delay > Duration::zero()) sleep_(plan.delay);
  if (plan.hang) {
    MutexLock lock(mutex_);
    const uint64_t releases = releases_;
    ++hanging_;
    changed_.NotifyAll();
    while (releases_ == releases) changed_.Wait(mutex_);
    --hanging_;
  }
  if (plan.throws) throw std::runtime_error("injected exception");
}

std::vector<StatResult> FaultyStore::StatOrExist(StoreOp op, std::span<const std::string_view> keys,
                                                 const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return AllClosed<StatResult>(keys.size());
  const Plan plan = Meet(op, keys);
  Suffer(plan);
  std::vector<StatResult> results =
      op == StoreOp::kStat ? inner_->BatchStat(keys, context) : inner_->BatchIsExist(keys, context);
  for (size_t i = 0; i < results.size(); ++i) {
    const Strike& strike = plan.items[i];
    if (strike.Is(FaultKind::kError) || strike.Is(FaultKind::kLostReply)) {
      results[i] = {};
      results[i].status = strike.fault->status;
    } else if (strike.Is(FaultKind::kPhantom)) {
      results[i].found = true;
      results[i].bytes += 4096;
    }
  }
  if (plan.few_results && !results.empty()) results.pop_back();
  return results;
}

std::vector<StatResult> FaultyStore::BatchIsExist(std::span<const std::string_view> keys,
                                                  const CallContext& context) {
  return StatOrExist(StoreOp::kExist, keys, context);
}

std::vector<StatResult> FaultyStore::BatchStat(std::span<const std::string_view> keys,
                                               const CallContext& context) {
  return StatOrExist(StoreOp::kStat, keys, context);
}

std::vector<GetResult> FaultyStore::BatchGetIntoMultiBuffers(std::span<const GetItem> items,
                                                             const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return AllClosed<GetResult>(items.size());
  const Plan plan = Meet(StoreOp::kGet, items);
  Suffer(plan);

  // Short reads are read whole into memory of ours; half of that goes on to the caller.
  struct Short {
    std::vector<std::byte> memory;
    MutableBuffer buffer;
  };
  std::deque<Short> shorts;
  std::vector<GetItem> passed;
  std::vector<size_t> indices;
  for (size_t i = 0; i < items.size(); ++i) {
    const Strike& strike = plan.items[i];
    if (strike.Withholds()) continue;
    indices.push_back(i);
    passed.push_back(items[i]);
    if (strike.Is(FaultKind::kShortRead) || strike.Is(FaultKind::kLyingRead)) {
      Short& part = shorts.emplace_back();
      part.memory.resize(TotalBytes(items[i].buffers));
      part.buffer = part.memory;
      passed.back().buffers = {&part.buffer, 1};
    }
  }

  std::vector<GetResult> results(items.size());
  CallContext inner_context = context;
  inner_context.received = nullptr;
  std::vector<GetResult> served = inner_->BatchGetIntoMultiBuffers(passed, inner_context);
  for (size_t j = 0; j < served.size(); ++j) results[indices[j]] = std::move(served[j]);
  for (size_t i = 0; i < items.size(); ++i) {
    const Strike& strike = plan.items[i];
    GetResult& result = results[i];
    const bool hit = result.outcome == GetOutcome::kHit;
    if (strike.Is(FaultKind::kShortRead) || strike.Is(FaultKind::kLyingRead)) {
      const Short part = std::move(shorts.front());
      shorts.pop_front();
      if (hit) CopyHead(std::span(part.memory).first(part.memory.size() / 2), items[i].buffers);
    } else if (hit && strike.Is(FaultKind::kFlipByte)) {
      FlipBit(items[i].buffers, strike.random);
    }
    if (strike.Withholds() || strike.Is(FaultKind::kLostReply) ||
        (hit && strike.Is(FaultKind::kShortRead))) {
      result = {};
      result.status = strike.fault->status;
    }
  }
  if (plan.few_results && !results.empty()) results.pop_back();
  return results;
}

std::vector<PutResult> FaultyStore::BatchPutFromMultiBuffers(std::span<const PutItem> items,
                                                             const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return AllClosed<PutResult>(items.size());
  const Plan plan = Meet(StoreOp::kPut, items);
  Suffer(plan);

  std::deque<std::vector<ConstBuffer>> heads;
  std::vector<PutItem> passed;
  std::vector<size_t> indices;
  for (size_t i = 0; i < items.size(); ++i) {
    if (plan.items[i].Withholds()) continue;
    indices.push_back(i);
    passed.push_back(items[i]);
    if (plan.items[i].Is(FaultKind::kShortWrite)) {
      passed.back().buffers =
          heads.emplace_back(Head(items[i].buffers, TotalBytes(items[i].buffers) / 2));
    }
  }

  std::vector<PutResult> results(items.size());
  std::vector<PutResult> served = inner_->BatchPutFromMultiBuffers(passed, context);
  for (size_t j = 0; j < served.size(); ++j) results[indices[j]] = std::move(served[j]);
  for (size_t i = 0; i < items.size(); ++i) {
    const Strike& strike = plan.items[i];
    if (strike.Is(FaultKind::kLostWrite)) {
      results[i].outcome = PutOutcome::kStored;
    } else if (strike.Is(FaultKind::kError) || strike.Is(FaultKind::kLostReply)) {
      results[i] = {};
      results[i].status = strike.fault->status;
    }
  }
  if (plan.few_results && !results.empty()) results.pop_back();
  return results;
}

std::vector<RemoveResult> FaultyStore::BatchRemove(std::span<const RemoveItem> items,
                                                   const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return AllClosed<RemoveResult>(items.size());
  const Plan plan = Meet(StoreOp::kRemove, items);
  Suffer(plan);
  std::vector<RemoveItem> passed;
  std::vector<size_t> indices;
  for (size_t i = 0; i < items.size(); ++i) {
    if (plan.items[i].Withholds()) continue;
    indices.push_back(i);
    passed.push_back(items[i]);
  }
  std::vector<RemoveResult> results(items.size());
  std::vector<RemoveResult> served = inner_->BatchRemove(passed, context);
  for (size_t j = 0; j < served.size(); ++j) results[indices[j]] = std::move(served[j]);
  for (size_t i = 0; i < items.size(); ++i) {
    const Strike& strike = plan.items[i];
    if (!strike.Withholds() && !strike.Is(FaultKind::kLostReply)) continue;
    results[i] = {};
    results[i].status = strike.fault->status;
  }
  if (plan.few_results && !results.empty()) results.pop_back();
  return results;
}

Result<ListPage> FaultyStore::List(std::string_view cursor, size_t limit,
                                   const CallContext& context) {
  const CallGate::Pass pass = gate_.Enter();
  if (!pass) return CallGate::ClosedStatus();
  const Plan plan = Meet(StoreOp::kList, std::span<const std::string_view>(&cursor, 1));
  Suffer(plan);
  if (plan.items[0].Is(FaultKind::kError)) return plan.items[0].fault->status;
  return inner_->List(cursor, limit, context);
}

Status FaultyStore::RegisterBuffer(const BufferRegion& region) {
  return inner_->RegisterBuffer(region);
}

Status FaultyStore::UnregisterBuffer(const BufferRegion& region) {
  return inner_->UnregisterBuffer(region);
}

Status FaultyStore::Close(TimePoint deadline) {
  EMBERCACHE_RETURN_IF_ERROR(gate_.Close(deadline));
  return inner_.use_count() == 1 ? inner_->Close(deadline) : Status::Ok();
}

}  // namespace embercache

#include "src/store/redis/resp_value.h"

// Invariant: the vectors that hold open aggregates do not grow while something inside them is open,
// so the pointers in open_ and the memory of bulk_ stay where they are.

#include <utility>

namespace embercache::redis {

const RespValue* RespValue::Find(std::string_view field) const {
  for (size_t i = 0; i + 1 < elements.size(); i += 2) {
    if (elements[i].text == field) return &elements[i + 1];
  }
  return nullptr;
}

bool RespValueBuilder::Add(const RespEvent& event, RespParser& parser) {
  using Kind = RespEvent::Kind;
  bytes_ += sizeof(RespValue) + event.text.size();
  if (event.kind == Kind::kBulkBegin) bytes_ += event.count;
  if (bytes_ > max_bytes_) return false;
  switch (event.kind) {
    case Kind::kScalar: {
      RespValue& value = Append(event);
      value.text = event.text;
      value.integer = event.integer;
      break;
    }
    case Kind::kBulkBegin: {
      RespValue& value = Append(event);
      value.text.resize(event.count);
      bulk_ = std::as_writable_bytes(std::span(value.text));
      parser.SetDestination({&bulk_, 1});
      break;
    }
    case Kind::kAggregateBegin: {
      RespValue& value = Append(event);
      if (event.count > 0) open_.push_back({&value, event.count});
      break;
    }
    case Kind::kBulkEnd:
    case Kind::kNeedMore:
    case Kind::kBroken:
      break;
  }
  return true;
}

RespValue RespValueBuilder::Take() {
  bytes_ = 0;
  has_root_ = false;
  open_.clear();
  return std::exchange(root_, {});
}

RespValue& RespValueBuilder::Append(const RespEvent& event) {
  RespValue* value = &root_;
  if (has_root_) {
    while (open_.back().remaining == 0) open_.pop_back();
    --open_.back().remaining;
    value = &open_.back().value->elements.emplace_back();
  }
  has_root_ = true;
  value->type = event.type;
  return *value;
}

}  // namespace embercache::redis

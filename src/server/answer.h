#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "embercache/clock.h"
#include "embercache/embedding.h"
#include "embercache/key.h"
#include "embercache/status.h"
#include "src/server/http_message.h"

namespace embercache {

// What became of one item of a request.
struct AnswerItem {
  // Not ok: the item failed, and only `key` may be set.
  Status error;
  EmbeddingKey key;
  bool has_key = false;
  std::string_view source;  // "computed", "local", "global", "joined"
  Pin pin;
  Duration lookup{}, fetch{}, preprocess{}, encode{};
};

struct Answer {
  std::string request_id;
  std::vector<AnswerItem> items;
  // From the last byte of the request until now.
  Duration total{};
};

// True when the header Accept prefers application/json over safetensors, which is the default.
bool PrefersJson(std::string_view accept);

// 200 when an item succeeded, with its JSON description and, unless `json`, the tensors as
// safetensors, sent from the pins' memory. When all failed: the status and error of the first, with
// the same description.
HttpResponse ComposeAnswer(Answer answer, bool json);

}  // namespace embercache

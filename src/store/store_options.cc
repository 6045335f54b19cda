#include "src/store/store_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "src/base/units.h"
#include "src/store/redacted_options.h"

namespace embercache {

struct StoreOptions::State {
  std::string backend;
  nlohmann::json object = nlohmann::json::object();
  std::set<std::string, std::less<>> known;
  Status error;

  void Fail(std::string_view option, std::string_view what) {
    if (!error.ok()) return;
    error = Status::Invalid(fmt::format("option '{}' of store backend '{}' {}, not {}", option,
                                        backend, what, Given(option)));
  }

  // Its value, for a message: a password is not told.
  std::string Given(std::string_view option) const {
    const std::string name(option);
    const auto redacted =
        nlohmann::json::parse(RedactedOptions(nlohmann::json{{name, object[name]}}.dump()));
    return redacted[name].dump();
  }

  // The option's value, null when it is not given.
  const nlohmann::json* Find(std::string_view option) {
    known.emplace(option);
    const auto found = object.find(option);
    return found == object.end() ? nullptr : &*found;
  }
};

StoreOptions::StoreOptions(std::string_view backend, std::string_view json)
    : state_(std::make_unique<State>()) {
  state_->backend = backend;
  std::string what = "not a value of another kind";
  try {
    auto parsed = nlohmann::json::parse(json);
    if (parsed.is_object()) {
      state_->object = std::move(parsed);
      return;
    }
  } catch (const nlohmann::json::parse_error& error) {
    what = fmt::format("there is a syntax error at character {}", error.byte);
  }
  // The text itself is not repeated: it may hold a URL with a password.
  state_->error = Status::Invalid(
      fmt::format("the options of store backend '{}' have to be a JSON object such as "
                  R"({{"option":"value"}}; {})",
                  backend, what));
}

StoreOptions::~StoreOptions() = default;

void StoreOptions::Read(std::string_view option, std::string* value) {
  const nlohmann::json* json = state_->Find(option);
  if (json == nullptr) return;
  if (!json->is_string()) return state_->Fail(option, "has to be a string");
  *value = json->get<std::string>();
}

void StoreOptions::Read(std::string_view option, bool* value) {
  const nlohmann::json* json = state_->Find(option);
  if (json == nullptr) return;
  if (!json->is_boolean()) return state_->Fail(option, "has to be true or false");
  *value = json->get<bool>();
}

void StoreOptions::Read(std::string_view option, int64_t* value, int64_t min, int64_t max) {
  const nlohmann::json* json = state_->Find(option);
  if (json == nullptr) return;
  // An unsigned number beyond int64_t would wrap in get<int64_t>.
  const bool fits = json->is_number_integer() &&
                    !(json->is_number_unsigned() && json->get<uint64_t>() > INT64_MAX);
  if (!fits || json->get<int64_t>() < min || json->get<int64_t>() > max) {
    return state_->Fail(option, fmt::format("has to be an integer from {} to {}", min, max));
  }
  *value = json->get<int64_t>();
}

void StoreOptions::ReadBytes(std::string_view option, uint64_t* value) {
  const nlohmann::json* json = state_->Find(option);
  if (json == nullptr) return;
  if (json->is_number_unsigned()) {
    *value = json->get<uint64_t>();
    return;
  }
  if (json->is_string()) {
    if (auto bytes = ParseBytes(json->get<std::string>()); bytes.ok()) {
      *value = *bytes;
      return;
    }
  }
  state_->Fail(option, R"(has to be a size such as "10GiB" or a number of bytes)");
}

void StoreOptions::ReadDuration(std::string_view option, Duration* value) {
  const nlohmann::json* json = state_->Find(option);
  if (json == nullptr) return;
  if (json->is_string()) {
    if (auto duration = ParseDuration(json->get<std::string>()); duration.ok()) {
      *value = *duration;
      return;
    }
  }
  state_->Fail(option, R"(has to be a duration such as "500ms", "2s", "5m" or "1h")");
}

void StoreOptions::ReadObject(std::string_view option, std::string* json) {
  const nlohmann::json* object = state_->Find(option);
  if (object == nullptr) return;
  if (!object->is_object()) return state_->Fail(option, "has to be an object");
  *json = object->dump();
}

Status StoreOptions::Finish() const {
  EMBERCACHE_RETURN_IF_ERROR(state_->error);
  for (const auto& [option, value] : state_->object.items()) {
    if (state_->known.contains(option)) continue;
    return Status::Invalid(fmt::format("store backend '{}' has no option '{}'; there are: {}",
                                       state_->backend, option, fmt::join(state_->known, ", ")));
  }
  return Status::Ok();
}

}  // namespace embercache

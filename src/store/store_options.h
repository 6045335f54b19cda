#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "embercache/clock.h"
#include "embercache/status.h"

namespace embercache {

// Reads a backend's options from the text of a JSON object. Each reader makes its option known and,
// where the option is given, sets `*value`; what is wrong is kept for Finish:
//
//   StoreOptions options("file", config.json);
//   options.Read("dir", &dir);
//   options.ReadBytes("max_bytes", &max_bytes);
//   EMBERCACHE_RETURN_IF_ERROR(options.Finish());
class StoreOptions {
 public:
  StoreOptions(std::string_view backend, std::string_view json);
  ~StoreOptions();
  StoreOptions(const StoreOptions&) = delete;
  StoreOptions& operator=(const StoreOptions&) = delete;

  void Read(std::string_view option, std::string* value);
  void Read(std::string_view option, bool* value);
  // An integer from min to max.
  void Read(std::string_view option, int64_t* value, int64_t min, int64_t max);
  // "10GiB" (ParseBytes), or a number of bytes.
  void ReadBytes(std::string_view option, uint64_t* value);
  // "500ms" (ParseDuration).
  void ReadDuration(std::string_view option, Duration* value);
  // An object, as text, for whoever understands it.
  void ReadObject(std::string_view option, std::string* json);

  // OK, or Invalid for the first of: text that is no JSON object, an option of a wrong type or
  // value, an option that no reader asked for (the message lists those there are).
  Status Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace embercache

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/controller.h"
#include "src/server/encode_server.h"
#include "src/server/recent_errors.h"
#include "src/server/served_model.h"

namespace embercache {

struct StatsSource {
  const EncodeServerOptions* options;
  uint16_t port = 0;  // that it listens on
  Limits limits;
  std::vector<std::shared_ptr<const ServedModel>> models;
  ControllerStats cache;
  std::string_view store_state;
  std::string store_description;  // a JSON object
  size_t admitted_items = 0;
  Duration uptime{};
  std::vector<RecentErrors::Entry> errors;
};

// The body of GET /v1/stats: what is in force, what is loaded, how full it is.
std::string StatsJson(const StatsSource& source);

// What is in force, as a JSON object on one line, without secrets.
std::string ConfigurationJson(const EncodeServerOptions& options, uint16_t port,
                              const Limits& limits);

}  // namespace embercache

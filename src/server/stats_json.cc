#include "src/server/stats_json.h"

#include <nlohmann/json.hpp>

#include "src/base/log.h"
#include "src/server/version.h"
#include "src/store/redacted_options.h"

namespace embercache {
namespace {

using Json = nlohmann::ordered_json;

int64_t Milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

Json StoreConfigOf(const EncodeServerOptions& options) {
  if (!options.enable_global_cache) return Json::object();
  const std::string text = RedactedOptions(options.store.config_json);
  Json config = Json::parse(text, nullptr, false);
  return config.is_discarded() ? Json(text) : config;
}

// The text of --namespace goes into keys, and is nobody's business: what models have of it is in
// their namespace digest.
Json ConfigurationOf(const EncodeServerOptions& options, uint16_t port, const Limits& limits) {
  Json models = Json::array();
  for (const ModelSource& model : options.models) models.push_back(model.dir);
  return {{"models", models},
          {"host", options.host},
          {"port", port},
          {"namespace", options.tenant_salt.empty() ? "" : "***"},
          {"enable_mm_global_cache", options.enable_global_cache},
          {"mm_global_cache_backend", options.enable_global_cache ? options.store.backend : ""},
          {"mm_global_cache_config", StoreConfigOf(options)},
          {"mm_global_cache_bytes", options.pool_bytes},
          {"epoch", options.epoch},
          {"lookup_timeout_ms", Milliseconds(limits.lookup_timeout)},
          {"request_timeout_ms", Milliseconds(limits.request_timeout)},
          {"queue_items", limits.queue_items},
          {"max_items", limits.max_items},
          {"max_body_bytes", limits.max_body_bytes},
          {"max_pixels", options.max_pixels},
          {"max_batch_size", options.max_batch_items},
          {"max_batch_wait_ms", Milliseconds(options.max_batch_wait)},
          {"media_root", options.media_root},
          {"log_level", LogLevel()},
          {"log_format", LogFormat()}};
}

Json ModelsOf(const StatsSource& source) {
  Json models = Json::array();
  for (const auto& model : source.models) {
    models.push_back({{"name", model->name},
                      {"modality", ModalityName(model->spec.modality)},
                      {"hidden", model->spec.hidden},
                      {"dtype", DTypeName(model->spec.dtype)},
                      {"namespace", model->spec.namespace_digest.ToHex()}});
  }
  return models;
}

Json PoolsOf(const ControllerStats& stats) {
  Json pools = Json::array();
  for (const PoolView& pool : stats.pools) {
    pools.push_back({{"name", pool.name},
                     {"row_bytes", pool.row_bytes},
                     {"page_bytes", pool.page_bytes},
                     {"page_kind", pool.page_kind},
                     {"pages",
                      {{"total", pool.pages},
                       {"free", pool.free},
                       {"filling", pool.filling},
                       {"ready", pool.ready},
                       {"quarantined", pool.quarantined}}},
                     {"entries",
                      {{"ready", pool.entries},
                       {"filling", pool.filling_entries},
                       {"pinned", pool.pinned_entries}}},
                     {"evicted", pool.evicted},
                     {"allocation_failures", pool.allocation_failures}});
  }
  return pools;
}

Json LanesOf(const ControllerStats& stats) {
  Json lanes = Json::array();
  for (const LaneView& lane : stats.lanes) {
    lanes.push_back({{"name", lane.name},
                     {"queued", lane.queued},
                     {"running", lane.running},
                     {"queued_bytes", lane.queued_bytes},
                     {"dropped", lane.dropped},
                     {"breaker_open", lane.breaker_open}});
  }
  return lanes;
}

Json ErrorsOf(const std::vector<RecentErrors::Entry>& entries) {
  Json errors = Json::array();
  for (const RecentErrors::Entry& entry : entries) {
    errors.push_back({{"unix_ms", entry.unix_ms},
                      {"request_id", entry.request_id},
                      {"code", StatusCodeName(entry.code)},
                      {"message", entry.message}});
  }
  return errors;
}

}  // namespace

std::string ConfigurationJson(const EncodeServerOptions& options, uint16_t port,
                              const Limits& limits) {
  return ConfigurationOf(options, port, limits)
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string StatsJson(const StatsSource& source) {
  const Json description = Json::parse(source.store_description, nullptr, false);
  const Json stats = {
      {"version", Version()},
      {"envelope_version", kEnvelopeVersion},
      {"uptime_s", Milliseconds(source.uptime) / 1000},
      {"configuration", ConfigurationOf(*source.options, source.port, source.limits)},
      {"models", ModelsOf(source)},
      {"items_admitted", source.admitted_items},
      {"pools", PoolsOf(source.cache)},
      {"store",
       {{"backend", source.cache.backend},
        {"state", source.store_state},
        {"detail", source.cache.store.detail},
        {"description", description.is_discarded() ? Json() : description}}},
      {"lanes", LanesOf(source.cache)},
      {"recent_errors", ErrorsOf(source.errors)}};
  return stats.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace embercache

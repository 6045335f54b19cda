#include "src/server/encode_server.h"

#include <fmt/format.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <thread>

#include "embercache/controller.h"
#include "embercache/encoder.h"
#include "src/base/log.h"
#include "src/server/cache_collector.h"
#include "src/server/cache_route.h"
#include "src/server/encode_pipeline.h"
#include "src/server/encode_service.h"
#include "src/server/error_response.h"
#include "src/server/metric_series.h"
#include "src/server/origin_check.h"
#include "src/server/routes.h"
#include "src/server/stats_json.h"
#include "src/server/version.h"
#include "src/store/state_name.h"

// Parts are declared in the order of their construction; each uses only those before it. Stop ends
// them so that nobody calls what is gone: connections first, then the pipeline, then the cache.

namespace embercache {
namespace {

// How long /ready waits for the store's first answer.
constexpr Duration kStoreStartTime = std::chrono::seconds(5);

constexpr std::array<std::string_view, 3> kStoreLayers = {"src/cache/", "src/io/", "src/store/"};

size_t Cores() {
  return std::max<size_t>(1, std::thread::hardware_concurrency());
}

HttpServerOptions HttpOptions(const EncodeServerOptions& options) {
  HttpServerOptions http;
  http.host = options.host;
  http.port = options.port;
  http.threads = 2;  // while one fills a socket with megabytes, the other answers /health
  http.max_bodies_bytes = std::max(http.max_bodies_bytes, 2 * options.limits.max_body_bytes);
  return http;
}

// Stores whose confirmations are trusted for a while, since asking them costs a round trip or, with
// Mooncake, keeps objects from being evicted.
Duration PublishConfirm(std::string_view backend) {
  if (backend == "redis") return std::chrono::seconds(30);
  if (backend == "mooncake") return std::chrono::seconds(60);
  return Duration::zero();
}

// The layers that use stores, and the stores.
bool IsOfAStore(std::string_view place) {
  return std::any_of(kStoreLayers.begin(), kStoreLayers.end(),
                     [&](std::string_view layer) { return place.find(layer) != place.npos; });
}

std::string_view StoreStateName(const ControllerStats& stats) {
  return stats.backend.empty() ? "off" : StateName(stats.store.state);
}

}  // namespace

struct EncodeServer::Impl {
  explicit Impl(EncodeServerOptions server_options)
      : options(std::move(server_options)),
        limits(options.limits),
        metrics(std::make_shared<Metrics>()),
        background("background", 1),
        workers("work", std::max<size_t>(2, Cores() / 2)),
        routes(metrics.get(), &background, &limits, IsLoopbackHost(options.host)) {}

  Status Open();
  Result<std::shared_ptr<const ServedModel>> LoadModel(const ModelSource& source) const;
  Status LoadModels();
  Status MakeController();
  void OpenRoutes();
  HttpResponse MetricsAnswer() const;
  HttpResponse ReadyAnswer() const;
  HttpResponse StatsAnswer() const;

  const EncodeServerOptions options;
  std::atomic<uint16_t> port{0};  // that it listens on
  LiveLimits limits;
  RecentErrors errors;
  const LogTap store_trouble{[this](std::string_view place, std::string_view message) {
    if (IsOfAStore(place)) errors.AddTrouble(std::string(place), message);
  }};
  const std::shared_ptr<Metrics> metrics;
  ThreadPool background;
  ThreadPool workers;
  Routes routes;
  std::unique_ptr<HttpServer> http;
  std::vector<std::shared_ptr<const ServedModel>> models;
  MediaRoot media_root;
  std::shared_ptr<Timer> timer;
  std::shared_ptr<EmbeddingStore> store;
  std::unique_ptr<EmbeddingCacheController> controller;
  std::unique_ptr<EncodePipeline> pipeline;
  std::unique_ptr<EncodeService> service;
  std::unique_ptr<CacheRoute> cache_route;
  std::unique_ptr<CacheCollector> collector;
  const TimePoint started = SteadyClock().Now();
  bool stopped = false;
};

// What is quick, and shows most mistakes. A remote store starts in the background from here on.
Status EncodeServer::Impl::Open() {
  for (const ModelSource& source : options.models) {
    std::error_code error;
    if (!std::filesystem::is_directory(source.dir, error)) {
      return Status::NotFound(fmt::format("--model '{}' is not a folder", source.dir));
    }
  }
  if (!options.media_root.empty()) {
    EMBERCACHE_ASSIGN_OR_RETURN(media_root, MediaRoot::Open(options.media_root));
  }
  if (options.enable_global_cache) {
    EMBERCACHE_ASSIGN_OR_RETURN(store, OpenStore(options.store));
  }
  return Status::Ok();
}

Result<std::shared_ptr<const ServedModel>> EncodeServer::Impl::LoadModel(
    const ModelSource& source) const {
  EncoderOptions encoder_options;
  encoder_options.model_id = source.name;
  encoder_options.max_pixels = options.max_pixels;
  std::function<void(const LoadProgress&)> progress;
  if (options.progress) {
    progress = [this, &source](const LoadProgress& at) {
      options.progress(fmt::format("{}: {}", source.dir, at.stage), at.done, at.total);
    };
  }
  auto model = std::make_shared<ServedModel>();
  EMBERCACHE_ASSIGN_OR_RETURN(model->encoder,
                              LoadOnnxEncoder(source.dir, encoder_options, progress));
  const EncoderInfo& info = model->encoder->info();
  model->name = source.name.empty() ? info.model_id : source.name;
  NamespaceFields fields;
  fields.model_id = info.model_id;
  fields.weights_digest = info.weights_digest;
  fields.preprocess_fingerprint = info.preprocess_fingerprint;
  fields.dtype = info.dtype;
  fields.tenant_salt = options.tenant_salt;
  fields.epoch = options.epoch;
  model->spec = {NamespaceDigest(fields), info.modality, info.dtype, info.hidden};
  LOG_INFO("model {}: {} rows of {} {}, namespace {}", model->name, ModalityName(info.modality),
           info.hidden, DTypeName(info.dtype), model->spec.namespace_digest.ToHex());
  return std::shared_ptr<const ServedModel>(std::move(model));
}

Status EncodeServer::Impl::LoadModels() {
  for (const ModelSource& source : options.models) {
    EMBERCACHE_ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> model, LoadModel(source));
    models.push_back(std::move(model));
  }
  return Status::Ok();
}

Status EncodeServer::Impl::MakeController() {
  ControllerOptions controller_options;
  controller_options.max_pool_bytes = options.pool_bytes;
  for (const auto& model : models) {
    controller_options.pools.push_back({model->spec.modality, model->spec.row_bytes()});
  }
  controller_options.lookup_timeout = options.limits.lookup_timeout;
  controller_options.publish_confirm = PublishConfirm(options.store.backend);
  if (options.progress) {
    controller_options.progress = [this](const std::string& pool, uint64_t done, uint64_t total) {
      options.progress(fmt::format("pool {}", pool), done, total);
    };
  }
  ControllerParts parts;
  parts.store = store;
  parts.timer = timer;
  parts.metrics = metrics;
  EMBERCACHE_ASSIGN_OR_RETURN(controller, EmbeddingCacheController::Create(
                                              std::move(controller_options), std::move(parts)));
  return Status::Ok();
}

HttpResponse EncodeServer::Impl::MetricsAnswer() const {
  std::vector<prometheus::MetricFamily> families = metrics->registry->Collect();
  for (prometheus::MetricFamily& family : collector->Collect()) {
    families.push_back(std::move(family));
  }
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4";
  response.text = prometheus::TextSerializer().Serialize(families);
  return response;
}

HttpResponse EncodeServer::Impl::ReadyAnswer() const {
  HttpResponse response;
  response.text = fmt::format("{{\"status\":\"ready\",\"store\":\"{}\"}}\n",
                              StoreStateName(controller->Stats()));
  return response;
}

HttpResponse EncodeServer::Impl::StatsAnswer() const {
  HttpResponse response;
  response.text = StatsJson({.options = &options,
                             .port = port,
                             .limits = limits.Get(),
                             .models = models,
                             .cache = controller->Stats(),
                             .store_state = StoreStateName(controller->Stats()),
                             .store_description = store ? store->DescribeJson() : "{}",
                             .admitted_items = service->admitted_items(),
                             .uptime = SteadyClock().Now() - started,
                             .errors = errors.Get()});
  return response;
}

void EncodeServer::Impl::OpenRoutes() {
  EncodePipelineOptions pipeline_options;
  pipeline_options.decode_threads = Cores();
  pipeline_options.encode_threads = Cores();
  pipeline_options.max_batch_items = options.max_batch_items;
  pipeline_options.max_batch_wait = options.max_batch_wait;
  pipeline = std::make_unique<EncodePipeline>(pipeline_options, metrics);
  collector = std::make_unique<CacheCollector>(controller.get(), pipeline.get());
  service = std::make_unique<EncodeService>(EncodeServiceParts{.controller = controller.get(),
                                                               .pipeline = pipeline.get(),
                                                               .workers = &workers,
                                                               .timer = timer.get(),
                                                               .metrics = metrics.get(),
                                                               .limits = &limits,
                                                               .errors = &errors,
                                                               .media_root = media_root,
                                                               .models = models});
  cache_route = std::make_unique<CacheRoute>(controller.get(), &limits, models);
  routes.Open(
      {.encode =
           [this](std::shared_ptr<HttpExchange> exchange) { service->Handle(std::move(exchange)); },
       .cache =
           [this](std::shared_ptr<HttpExchange> exchange) {
             cache_route->Handle(std::move(exchange));
           },
       .ready = [this] { return ReadyAnswer(); },
       .stats = [this] { return StatsAnswer(); },
       .metrics = [this] { return MetricsAnswer(); }});
}

EncodeServer::EncodeServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

EncodeServer::~EncodeServer() {
  (void)Stop(SteadyClock().Now());
}

void EncodeServer::SetLimits(const Limits& limits) {
  impl_->limits.Set(limits);
}

uint16_t EncodeServer::port() const {
  return impl_->http->port();
}

Result<std::unique_ptr<EncodeServer>> EncodeServer::Listen(EncodeServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  EMBERCACHE_RETURN_IF_ERROR(impl->Open());
  EMBERCACHE_ASSIGN_OR_RETURN(impl->http,
                              HttpServer::Start(HttpOptions(impl->options), &impl->routes));
  impl->port = impl->http->port();
  return std::unique_ptr<EncodeServer>(new EncodeServer(std::move(impl)));
}

Result<std::unique_ptr<EncodeServer>> EncodeServer::InProcess(EncodeServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  EMBERCACHE_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<EncodeServer>(new EncodeServer(std::move(impl)));
}

void EncodeServer::Handle(std::shared_ptr<HttpExchange> exchange) {
  impl_->service->Handle(std::move(exchange));
}

Status EncodeServer::Load() {
  Impl& impl = *impl_;
  impl.timer = std::make_shared<ThreadTimer>();
  EMBERCACHE_RETURN_IF_ERROR(impl.LoadModels());
  EMBERCACHE_RETURN_IF_ERROR(impl.MakeController());
  MakeKnownSeries(*impl.metrics, impl.controller->Stats());
  for (const auto& model : impl.models) {
    impl.metrics->info
        .Add({{"version", std::string(Version())},
              {"model", model->name},
              {"namespace", model->spec.namespace_digest.ToHex()},
              {"epoch", std::to_string(impl.options.epoch)},
              {"envelope", std::to_string(kEnvelopeVersion)}})
        .Set(1);
  }
  LOG_INFO("configuration: {}", ConfigurationJson(impl.options, impl.port, impl.limits.Get()));
  if (impl.store) (void)WaitUntilUp(*impl.store, SteadyClock().Now() + kStoreStartTime);
  impl.OpenRoutes();
  return Status::Ok();
}

Status EncodeServer::Stop(TimePoint deadline) {
  Impl& impl = *impl_;
  if (impl.stopped) return Status::Ok();
  impl.stopped = true;
  Status status = impl.http ? impl.http->Stop(deadline) : Status::Ok();
  const auto keep_first = [&status](Status next) {
    if (status.ok()) status = std::move(next);
  };
  if (impl.pipeline) keep_first(impl.pipeline->Stop(deadline));
  keep_first(impl.workers.Stop(deadline));
  keep_first(impl.background.Stop(deadline));
  if (impl.controller) keep_first(impl.controller->Close(deadline));
  return status;
}

}  // namespace embercache

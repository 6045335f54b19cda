#include "src/server/encode_service.h"

#include <fmt/format.h>

#include "src/server/encode_task.h"
#include "src/server/error_response.h"

namespace embercache {

void EncodeService::Handle(std::shared_ptr<HttpExchange> exchange) {
  const auto task = std::make_shared<EncodeTask>(this, std::move(exchange));
  parts_.workers->Post([task] { task->Start(); });
}

bool EncodeService::Admit(size_t items, size_t limit) {
  size_t admitted = admitted_.load();
  do {
    if (admitted + items > limit) return false;
  } while (!admitted_.compare_exchange_weak(admitted, admitted + items));
  return true;
}

void EncodeService::NoteFailure(const std::string& request_id, const Status& status) {
  parts_.errors->Add(request_id, status);
  if (HttpStatusOf(status) < 500) return;
  LogLimiter& limiter = trouble_[static_cast<size_t>(status.code())];
  if (const uint64_t times = limiter.Admit(SteadyClock().Now())) {
    LOG_WARNING("{}, times: {}, last for request {}: {}", StatusCodeName(status.code()), times,
                request_id, status.message());
  }
}

Result<std::shared_ptr<const ServedModel>> EncodeService::FindModel(const std::string& name) const {
  if (name.empty() && parts_.models.size() == 1) return parts_.models.front();
  std::string names;
  for (const auto& model : parts_.models) {
    if (model->name == name) return model;
    names += (names.empty() ? "" : ", ") + model->name;
  }
  return Status::Invalid(
      name.empty() ? fmt::format("field 'model' is missing; it has to be one of {}", names)
                   : fmt::format("field 'model' is '{}'; it has to be one of {}", name, names));
}

}  // namespace embercache

#include "src/server/encode_service.h"

#include <fmt/format.h>

#include "src/server/encode_task.h"

namespace embercache {

void EncodeService::Handle(std::shared_ptr<HttpExchange> exchange) {
  const auto task = std::make_shared<EncodeTask>(this, std::move(exchange));
  parts_.workers->Post([task] { task->Start(); });
}

bool EncodeService::Admit(size_t items) {
  size_t admitted = admitted_.load();
  do {
    if (admitted + items > options_.queue_items) return false;
  } while (!admitted_.compare_exchange_weak(admitted, admitted + items));
  return true;
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

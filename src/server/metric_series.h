#pragma once

#include <string>

#include "embercache/controller.h"
#include "src/base/metrics.h"

namespace embercache {

// Makes the series whose labels are known from the start, at zero, so that a first event is seen as
// a change, and a series that is not there is a mistake. `stats` names the pools and the store.
void MakeKnownSeries(Metrics& metrics, const ControllerStats& stats);

}  // namespace embercache

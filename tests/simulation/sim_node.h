#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "embercache/controller.h"
#include "src/memory/page_pool.h"
#include "tests/simulation/sim_media.h"
#include "tests/simulation/sim_scheduler.h"
#include "tests/simulation/sim_store.h"

namespace embercache::simulation {

// What the nodes of one simulation share.
struct World {
  std::shared_ptr<SimScheduler> scheduler;
  std::vector<Media> media;
  Random random{0};
  // Nodes that are gone hang on to nothing: their pools are freed once pins and calls are over.
  std::vector<std::weak_ptr<PagePool>> pools;
  // The first thing that was found wrong.
  std::string failure;
  // What the requests met, for a look at whether the faults bite.
  std::map<std::string, uint64_t> counts;

  void Fail(const std::string& what) {
    if (failure.empty()) failure = what;
  }
};

// One node under a random workload, which checks all that it gets: bytes, deadlines, that each
// item is answered once, single flight. It may be restarted at any moment.
class SimNode {
 public:
  SimNode(World& world, SimStore& store, std::string name, ControllerOptions options);

  // Ends the process and starts it anew: what it had is gone, what it was doing goes on nowhere.
  void Restart();
  // For good. What it was doing still needs the node.
  void Stop();

  // One action of the workload.
  void Act();
  // Computes what the node does not have, then publishes it.
  void Request(std::span<const Media> items, int tries_left);
  void Prefetch(std::span<const Media> items);
  void Remove(const Media& media);
  void AskWhetherExist(std::span<const Media> items);
  void Insert(std::span<const Media> items);

  // The invariants, as they hold between any two steps.
  void Check();
  // Nothing is going on: everything has to be back.
  void CheckIdle();

  EmbeddingCacheController& controller() { return *life_->controller; }

 private:
  // From one start to the next.
  struct Life {
    std::unique_ptr<EmbeddingCacheController> controller;
    // Who computes what now: item and number of the look-up that leads.
    std::map<uint32_t, uint64_t> computing;
    // The last look-up before a removal: whoever asks after it leads anew.
    std::map<uint32_t, uint64_t> removed;
    uint64_t last_flight = 0;
  };
  using LifePtr = std::shared_ptr<Life>;
  struct Flight;
  using FlightPtr = std::shared_ptr<Flight>;

  void Start();
  void Take(const FlightPtr& flight, size_t index, LookupAnswer answer);
  void Compute(const FlightPtr& flight, size_t index, Claim claim);
  void End(const FlightPtr& flight);
  void Hold(const Media& media, Pin pin);
  void Fail(const std::string& what);
  std::vector<Media> SomeItems();

  World& world_;
  SimStore& store_;
  const std::string name_;
  const ControllerOptions options_;
  LifePtr life_;
  uint64_t next_request_ = 1;
};

}  // namespace embercache::simulation

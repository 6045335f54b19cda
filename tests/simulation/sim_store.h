#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embercache/store.h"
#include "tests/simulation/sim_media.h"
#include "tests/simulation/sim_scheduler.h"

namespace embercache::simulation {

// How often what goes wrong, from 0 to 1: the first four a call, the others an item.
struct FaultRates {
  double late = 0;  // answers seconds later, whatever the deadline: up to 3 s
  double hang = 0;  // up to 20 s
  double throws = 0;
  double few_results = 0;
  double error = 0;        // nothing is done
  double lost_reply = 0;   // it is done, and answered as failed
  double flip = 0;         // a read hit with one bit wrong
  double lying_read = 0;   // a read hit of which the second half is not written
  double wrong_size = 0;   // a size that is not the object's
  double lost_write = 0;   // stored, it says
  double short_write = 0;  // stored, it says, and half of it is
};

// The store that all nodes share: the memory backend behind a network in virtual time. Reads write
// to the caller's buffers piece by piece, and late; writes read them so too. Whatever a node
// publishes is checked: it has to be the item's own bytes.
class SimStore {
 public:
  // `fail` gets what is found wrong.
  SimStore(std::shared_ptr<SimScheduler> scheduler, std::vector<Media> media, uint64_t seed,
           std::function<void(std::string)> fail);

  // One node's way to the store; Close of it leaves the store as it is.
  std::shared_ptr<EmbeddingStore> Connect();

  FaultRates rates;
  // All calls fail until then.
  void GoDownUntil(TimePoint when) { down_until_ = when; }
  // Each object with this probability, as after a restart or an eviction.
  void Lose(double share);
  // One bit of the stored object, in what the checksums cover.
  void FlipAtRest(const Media& media);
  // Another item's object under this one's key.
  void SwapAtRest(const Media& media, const Media& other);
  // There is nothing under its key, or what belongs there.
  bool IsSound(const Media& media);
  bool Has(const Media& media);
  // Calls that have not returned.
  size_t in_flight() const { return in_flight_; }

 private:
  class Connection;

  std::vector<std::byte> Read(std::string_view key);
  void Replace(std::string_view key, std::span<const std::byte> bytes);

  const std::shared_ptr<SimScheduler> scheduler_;
  const std::vector<Media> media_;
  const std::function<void(std::string)> fail_;
  const std::shared_ptr<EmbeddingStore> objects_;
  Random random_;
  TimePoint down_until_;
  size_t in_flight_ = 0;
};

}  // namespace embercache::simulation

// A process of its own on a file store, for the tests of kills and of shared folders:
//
//   file_store_worker DIR OPTIONS SEED ROUNDS
//
// puts, replaces, removes and gets objects that describe themselves, and exits with 1 and a line
// when it reads a wrong byte. ROUNDS 0 goes on until it is killed. Prints a line once it has begun.

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/unit/store/self_describing.h"

int main(int argc, char** argv) {
  using namespace embercache;
  if (argc != 5) return 2;
  auto options = nlohmann::json::parse(argv[2]);
  options["dir"] = argv[1];
  StoreConfig config;
  config.json = options.dump();
  auto store = CreateFileStore(config);
  if (!store.ok()) {
    std::printf("%s\n", store.status().ToString().c_str());
    return 1;
  }
  std::puts("begun");
  std::fflush(stdout);
  std::mt19937_64 random(std::strtoull(argv[3], nullptr, 10));
  const uint64_t rounds = std::strtoull(argv[4], nullptr, 10);
  for (uint64_t round = 0; rounds == 0 || round < rounds; ++round) {
    const std::string problem = DisturbStore(**store, random);
    if (problem.empty()) continue;
    std::printf("%s\n", problem.c_str());
    return 1;
  }
  return 0;
}

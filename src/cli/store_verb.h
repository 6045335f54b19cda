#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "embercache/store.h"
#include "src/cli/store_flags.h"

namespace embercache {

// What every command on a store can be told.
struct StoreVerb {
  std::string config_file;
  StoreFlags store;
  bool json = false;
};

// Adds --config and the flags of the store; what they say goes to `*verb`, which outlives the
// command.
void AddStoreSourceFlags(CLI::App& command, StoreVerb* verb);
// And --json.
void AddStoreVerbFlags(CLI::App& command, StoreVerb* verb);

// The store that flags, environment and file name. They are those of `serve`: what it takes and
// `command` does not is passed over. Invalid: a usage error.
Result<StoreChoice> ChooseStore(CLI::App& command, const StoreVerb& verb);

// Opens a store and waits until it is up. Unavailable when a remote one does not answer.
Result<std::unique_ptr<EmbeddingStore>> OpenUp(const StoreChoice& choice);
// The exit code for a store that does not open: usage where an option is wrong, else failed.
int OpenExitCode(const Status& status);

// Opens that store for a look, which has to be there already, runs `run`, and closes it. What goes
// wrong is said on stderr. Returns the exit code, `run`'s where the store opened.
int WithStore(CLI::App& command, const StoreVerb& verb,
              const std::function<int(EmbeddingStore&)>& run);

// The limits of one call that a command makes.
CallContext CallLimits();

// A store's key from what people write: 64 hex digits are a key as answers of the server have it,
// anything else is a key or an id of `ls` as it stands.
std::string KeyText(const std::string& word);

}  // namespace embercache

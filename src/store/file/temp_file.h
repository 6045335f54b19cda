#pragma once

#include <string>

#include "embercache/status.h"
#include "embercache/store.h"
#include "src/store/file/unique_fd.h"

namespace embercache {

// A file that is being written and that no reader can see. Its owner holds an OFD write lock on it
// for as long as it lives, so that a temp file whose lock can be taken is a dead owner's. Not
// thread-safe.
class TempFile {
 public:
  // Makes one in `folder` under `root_fd`, locked.
  static Result<TempFile> Create(int root_fd, const std::string& folder);
  TempFile(TempFile&& other) noexcept;
  TempFile& operator=(TempFile&&) = delete;
  ~TempFile() { Discard(); }

  int fd() const { return fd_.get(); }

  // Gives the file its size; what is not written reads as zeros.
  Status SetSize(uint64_t bytes);

  // Removes the file. Idempotent; the destructor does it too.
  void Discard();

  // Gives the file the name `path` under `root_fd`; folders on the way are made. kIfAbsent:
  // AlreadyExists when there is one of that name. kReplace takes the place of what is there.
  Status Publish(const std::string& path, PutMode mode);

 private:
  TempFile(int root_fd, std::string path, UniqueFd fd);
  Status Link(const std::string& path, PutMode mode);

  int root_fd_;
  std::string path_;  // empty once published or removed
  UniqueFd fd_;
};

struct TempSweep {
  size_t removed = 0;       // of dead owners
  uint64_t live_bytes = 0;  // what the others count for
};

// Removes the temp files of dead owners from `folder`; other files stay.
// REQUIRES: no process is between making a temp file and locking it (the ledger's lock sees to it).
Result<TempSweep> SweepTempFiles(int root_fd, const std::string& folder);

}  // namespace embercache

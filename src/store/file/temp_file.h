#pragma once

#include <string>

#include "embercache/status.h"
#include "embercache/store.h"
#include "src/store/file/unique_fd.h"

namespace embercache {

// A file that is being written and that no reader can see. Its owner holds an OFD write lock on it
// for as long as it lives, so that a temp file whose lock can be taken is a dead owner's. Not
// thread-safe. The destructor removes what was not published.
class TempFile {
 public:
  // Makes one in `folder` under `root_fd`, locked.
  static Result<TempFile> Create(int root_fd, const std::string& folder);
  TempFile(TempFile&& other) noexcept;
  TempFile& operator=(TempFile&&) = delete;
  ~TempFile();

  int fd() const { return fd_.get(); }

  // Gives the file the name `path` under `root_fd`; folders on the way are made. kIfAbsent:
  // AlreadyExists when there is one of that name. kReplace takes the place of what is there.
  Status Publish(const std::string& path, PutMode mode);

 private:
  TempFile(int root_fd, std::string path, UniqueFd fd);
  Status Link(const std::string& path, PutMode mode);

  int root_fd_;
  std::string path_;  // empty once published
  UniqueFd fd_;
};

// Removes the temp files of dead owners from `folder`; other files stay. Returns how many.
Result<size_t> RemoveDeadTempFiles(int root_fd, const std::string& folder);

}  // namespace embercache

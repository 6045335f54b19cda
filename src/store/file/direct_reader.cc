#include "src/store/file/direct_reader.h"

#include <cassert>
#include <cerrno>
#include <vector>

#include "src/store/file/buffer_cursor.h"
#include "src/store/file/object_io.h"
#include "src/store/store_call.h"

// Invariants: a read is in flight from its submission until its completion was taken; while one is,
// Read does not return, whatever is thrown. Each read has at most one system call in flight.

namespace embercache {

struct DirectReader::Progress {
  explicit Progress(std::span<const MutableBuffer> buffers) : cursor(buffers) {}

  BufferCursor<MutableBuffer> cursor;
  size_t asked = 0;
};

// What was queued or is with the kernel; waits for the latter before it goes.
class DirectReader::InFlight {
 public:
  explicit InFlight(io_uring* ring) : ring_(ring) {}
  ~InFlight() {
    // What is still queued was never with the kernel, and goes with the ring.
    while (reads_ > io_uring_sq_ready(ring_)) (void)Take();
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  bool empty() const { return reads_ == 0; }

  void Queue(int fd, Progress* progress) {
    const std::span<const iovec> chunk = progress->cursor.NextChunk(kChunkBytes);
    progress->asked = 0;
    for (const iovec& part : chunk) progress->asked += part.iov_len;
    io_uring_sqe* const entry = io_uring_get_sqe(ring_);
    assert(entry != nullptr);  // the ring has an entry for each read
    io_uring_prep_readv(entry, fd, chunk.data(), static_cast<unsigned>(chunk.size()),
                        static_cast<uint64_t>(progress->cursor.offset()));
    io_uring_sqe_set_data(entry, progress);
    ++reads_;
  }

  bool Submit() {
    while (io_uring_sq_ready(ring_) > 0) {
      const int submitted = io_uring_submit(ring_);
      if (submitted <= 0 && submitted != -EINTR) return false;
    }
    return true;
  }

  struct Completion {
    Progress* progress = nullptr;
    int bytes = 0;  // or a negative error
  };
  Completion Take() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_wait_cqe(ring_, &entry) != 0) {
      // EINTR: what is in flight still comes.
    }
    const Completion completion{static_cast<Progress*>(io_uring_cqe_get_data(entry)), entry->res};
    io_uring_cqe_seen(ring_, entry);
    --reads_;
    return completion;
  }

 private:
  io_uring* const ring_;
  size_t reads_ = 0;
};

std::unique_ptr<DirectReader> DirectReader::Create() {
  std::unique_ptr<DirectReader> reader(new DirectReader());
  if (io_uring_queue_init(kMaxReads, &reader->ring_, 0) != 0) {
    reader->ring_.ring_fd = -1;
    return nullptr;
  }
  return reader;
}

DirectReader::~DirectReader() {
  if (ring_.ring_fd >= 0) io_uring_queue_exit(&ring_);
}

void DirectReader::Read(std::span<const DirectRead> reads, const CallContext& context,
                        const Clock& clock, const Done& done) {
  assert(reads.size() <= kMaxReads && !broken_);
  std::vector<Progress> all;
  all.reserve(reads.size());
  for (const DirectRead& read : reads) all.emplace_back(read.buffers);
  std::vector<bool> ended(reads.size());
  const auto end = [&](size_t index, bool filled) {
    ended[index] = true;
    done(index, filled);
  };
  broken_ = true;  // unless it comes to its end below
  {
    InFlight in_flight(&ring_);
    for (size_t i = 0; i < reads.size(); ++i) in_flight.Queue(reads[i].fd, &all[i]);
    bool works = in_flight.Submit();
    while (works && !in_flight.empty()) {
      const InFlight::Completion completion = in_flight.Take();
      Progress& progress = *completion.progress;
      const auto index = static_cast<size_t>(&progress - all.data());
      // A short read is the end of the file, or an oddity that is not worth a look.
      const bool whole =
          completion.bytes >= 0 && static_cast<size_t>(completion.bytes) == progress.asked;
      if (whole) {
        progress.cursor.Advance(progress.asked);
        TellReceived(context, reads[index].index, static_cast<uint64_t>(progress.cursor.offset()));
      }
      if (!whole || progress.cursor.done() || !CheckCall(context, clock).ok()) {
        end(index, whole && progress.cursor.done());
        continue;
      }
      in_flight.Queue(reads[index].fd, &progress);
      works = in_flight.Submit();
    }
    broken_ = !works;
  }
  for (size_t i = 0; i < reads.size(); ++i) {
    if (!ended[i]) end(i, false);
  }
}

}  // namespace embercache

// One direction of a way between two processes through memory that both have mapped (shm://): messages one after the
// other, written where they are read, and what the reader answers with counters alone. The session beside it carries
// the rest, and says when the other process is gone.
//
// A message is a record: 8 bytes with its size, the message, up to a multiple of 64 bytes. Records do not cross the end
// of the ring; what is too little there for the next one is passed over, with a mark in place of the size, and counts
// as if it were one. A ring that is empty goes on at its beginning, which the writer says beside it: a reader that
// keeps up leaves both in a few pages, which stay in the processors' caches.
//
// The other process is not trusted. Each side keeps its own place to itself and only tells it; what the other side
// tells is checked for being possible each time it is read, once. A message's bytes may change while they are read:
// whoever reads them takes every word once, and checks what it has taken (graph_reader does).
//
// Waiting. A side that waits raises its flag, then looks once more, then sleeps on the bell as it was before. A side
// that changes something changes it, then looks for the flag. Both orders are sequentially consistent, so one of them
// sees the other. A side wakes itself by ringing its own bell (kick), for what comes by the session.
#pragma once

#include "base/base.h"
#include "os/os.h"

#include <atomic>
#include <span>

#include "byte_path.h"

namespace fm::detail {

/// What ordinary messages leave free, for the few that must always find room (a graph that is given up).
constexpr std::uint64_t ring_reserve = 16u << 10;

/// The beginning of a direction's memory; a page.
struct ring_shared {
  alignas(cache_line_bytes) std::atomic<std::uint64_t> written{0};  ///< bytes of records, the writer's
  std::atomic<std::uint64_t> again{~std::uint64_t{0}};  ///< how many were written when it went on at the beginning
  alignas(cache_line_bytes) std::atomic<std::uint64_t> taken{0};  ///< the reader's, as are the answers
  std::atomic<std::uint64_t> bytes{0}, parts{0}, judged{0}, refused{0};
  alignas(cache_line_bytes) std::atomic<std::uint32_t> reader_waits{0};
  alignas(cache_line_bytes) std::atomic<std::uint32_t> writer_waits{0};
  alignas(cache_line_bytes) std::atomic<std::uint32_t> reader_bell{0};
  alignas(cache_line_bytes) std::atomic<std::uint32_t> writer_bell{0};
};
static_assert(sizeof(ring_shared) <= page_bytes && std::atomic<std::uint64_t>::is_always_lock_free);

struct ring_place {
  ring_shared* shared = nullptr;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;  ///< of data, a multiple of 64
};

/// The writing side. room() and publish(): one thread at a time; the rest: any.
class ring_writer final : public byte_path_writer {
 public:
  explicit ring_writer(const ring_place& p) noexcept : p_(p) {}

  [[nodiscard]] bool has_room(std::uint64_t bytes, std::uint64_t reserve) const noexcept override;
  std::span<std::byte> room(std::uint64_t bytes, std::uint64_t reserve) noexcept override;
  /// The first `bytes` of the room given last are a message.
  void publish(std::uint64_t bytes) noexcept;
  bool send(std::uint64_t bytes, time_point, const std::function<bool()>&) noexcept override {
    publish(bytes);
    return true;
  }
  [[nodiscard]] part_answers answers() noexcept override;
  [[nodiscard]] bool broken() const noexcept override;
  [[nodiscard]] std::uint32_t watch() const noexcept override {
    return p_.shared->writer_bell.load(std::memory_order_seq_cst);
  }
  void wait(std::uint32_t seen, const part_answers& before, time_point deadline) noexcept override;
  void kick() noexcept override;

 private:
  [[nodiscard]] static std::uint64_t record(std::uint64_t bytes) noexcept { return round_up(8 + bytes, 64); }
  enum class start : std::uint8_t { here, passing_the_end, again };
  struct plan {
    bool fits;
    start from;
  };
  [[nodiscard]] std::uint64_t free_bytes() const noexcept;
  [[nodiscard]] plan plan_for(std::uint64_t bytes, std::uint64_t reserve) const noexcept;

  const ring_place p_;
  std::atomic<std::uint64_t> written_{0};
  std::uint64_t place_ = 0;   ///< of the next record
  start next_ = start::here;  ///< where the room given last is
};

/// The reading side. next() and release(): one thread at a time; the rest: any.
class ring_reader final : public byte_path_reader {
 public:
  explicit ring_reader(const ring_place& p) noexcept : p_(p) {}

  /// Messages are whole here.
  found next(std::uint64_t most, std::span<const std::byte>& message) noexcept;
  found next(std::uint64_t most, std::span<const std::byte>& message, std::uint64_t& rest) noexcept override {
    rest = 0;
    return next(most, message);
  }
  void release() noexcept override;
  bool answer(const part_answers& a) noexcept override;

  [[nodiscard]] std::uint32_t watch() const noexcept override {
    return p_.shared->reader_bell.load(std::memory_order_seq_cst);
  }
  void wait(std::uint32_t seen, time_point deadline) noexcept override;
  void kick() noexcept override;

 private:
  const ring_place p_;
  std::uint64_t taken_ = 0;       ///< bytes that were passed
  std::uint64_t place_ = 0;       ///< of the next record
  std::uint64_t passing_ = 0;     ///< bytes, with the message found last
  std::uint64_t next_place_ = 0;  ///< after it
};

/// The memory of both directions, and this process's sides of them.
class ring_pair final : public byte_path {
 public:
  /// The size of one direction for messages of up to `part` bytes, of which so many parts and `window` bytes may be on
  /// their way.
  static std::uint64_t bytes_for(std::uint64_t window, std::uint64_t parts, std::uint64_t part) noexcept;
  /// Makes the memory. Throws out_of_memory.
  explicit ring_pair(std::uint64_t bytes);
  /// What the maker's process has handed over, mapped; takes the descriptor over. Throws invalid_argument when it is
  /// not such memory.
  static os::memory_file mapped(int fd, std::uint64_t bytes) { return os::memory_file::adopt(fd, whole(bytes)); }
  /// The other ends, in such memory.
  ring_pair(os::memory_file memory, std::uint64_t bytes);

  [[nodiscard]] int fd() const noexcept { return memory_.fd(); }
  [[nodiscard]] byte_path_writer& writer() noexcept override { return out; }
  [[nodiscard]] byte_path_reader& reader() noexcept override { return in; }
  [[nodiscard]] std::unique_ptr<receive_credit> make_credit(const channel_terms& terms) const override;
  [[nodiscard]] bool in_shared_memory() const noexcept override { return true; }

 private:
  [[nodiscard]] ring_place place(std::uint64_t which, std::uint64_t bytes) const noexcept;
  static std::uint64_t whole(std::uint64_t bytes) noexcept { return 2 * (page_bytes + bytes); }

  os::memory_file memory_;

 public:
  ring_writer out;
  ring_reader in;
};

}  // namespace fm::detail

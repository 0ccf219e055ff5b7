// fm::paged_extents and fm::size_class_resource: std::pmr memory resources over a paged range, for application code and
// std::pmr containers.
// Invariant: both keep their records in ordinary memory, so that allocating and freeing touch no remote page. An
// address is in at most one allocation at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <set>
#include <vector>

namespace fm {

/// Allocates extents of whole pages from a range of bytes: best fit, and the lowest of those. Freed pages are
/// discarded. Thread-safe. Allocating and freeing are O(log extents), without the discarding. Throws std::bad_alloc if
/// no extent is large enough.
class paged_extents final : public std::pmr::memory_resource {
 public:
  /// Function that is called for freed pages, without a lock, before they can be allocated again. May be null.
  using discard_function = void (*)(void* context, void* from, std::size_t bytes);
  /// Manages `bytes` bytes from `base`, which must outlive it. `discard` gets `context` with each call.
  paged_extents(void* base, std::size_t bytes, discard_function discard = nullptr, void* context = nullptr);

  /// First byte of the range. O(1).
  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  /// Bytes of the range. O(1).
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Bytes that are not allocated. O(1).
  [[nodiscard]] std::size_t free_bytes() const;
  /// Bytes of the largest free extent. O(1).
  [[nodiscard]] std::size_t largest_free() const;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const memory_resource& o) const noexcept override { return this == &o; }
  void insert(std::size_t from, std::size_t bytes);

  std::byte* base_;
  std::size_t bytes_;
  discard_function discard_;
  void* context_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> by_place_;            ///< offset -> bytes
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  ///< {bytes, offset}
  std::size_t free_ = 0;
};

/// The memory resource of fm::paged::resource(). Small allocations, up to 8 KiB, come from chunks of 64 KiB of one size
/// class each; larger ones come straight from the extents. Size classes differ by at most a quarter, so at most a fifth
/// of a small allocation is lost. Thread-safe, with a lock for each size class. O(1) for small allocations, except for
/// a new chunk. Throws std::bad_alloc if the range is full.
class size_class_resource final : public std::pmr::memory_resource {
 public:
  /// Allocates from `extents`, which must outlive it.
  explicit size_class_resource(paged_extents& extents);

 private:
  static constexpr std::size_t chunk_bytes = 64u << 10;
  static constexpr std::size_t small_max = 8192;
  struct chunk;
  struct size_class {
    std::mutex mutex;
    std::size_t bytes = 0;
    std::vector<chunk*> with_room;  ///< the last one is allocated from; there is a place for each chunk
    std::size_t chunks = 0;
  };
  struct chunk {
    size_class* of = nullptr;
    std::byte* base = nullptr;
    std::vector<std::uint64_t> free;  ///< a bit for every slot
    std::size_t free_count = 0, slots = 0;
    std::size_t first = 0;  ///< words before it have no bit
    std::size_t place = 0;  ///< in with_room, when it has room
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const memory_resource& o) const noexcept override { return this == &o; }
  /// Index of the class, or the number of classes when it is none of theirs.
  [[nodiscard]] static std::size_t class_of(std::size_t bytes, std::size_t alignment) noexcept;
  /// Of the chunk that begins at `p`, or that `p` is in. Chunks are aligned, and the range may not be.
  [[nodiscard]] std::unique_ptr<chunk>& chunk_at(const void* p) noexcept;
  void add_chunk(size_class& c);
  /// Memory of the range; what empty chunks keep for the next allocation is used too, if nothing else is left.
  void* allocate_extent(std::size_t bytes, std::size_t alignment);
  void give_back_empty();
  void enter(chunk& c) noexcept;
  void leave(chunk& c);

  static constexpr std::size_t classes = 8 + 4 * 6;  ///< 16 to 128 by 16, then four to the doubling, to 8192
  paged_extents& extents_;
  std::array<size_class, classes> classes_;
  std::vector<std::unique_ptr<chunk>> chunks_;  ///< by 64 KiB of the range; each is its size class's
};

}  // namespace fm

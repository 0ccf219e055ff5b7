// std::pmr over a paged range. Both allocators keep their books in ordinary memory, so that finding room and giving it back
// touches nothing that is away.
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

/// Extents of whole pages out of a range of bytes: best fit, the lowest of those. Freed pages go back by `discard`. Thread-safe;
/// allocate and deallocate are O(log extents), beside the discarding. Throws std::bad_alloc when nothing fits.
class paged_extents final : public std::pmr::memory_resource {
 public:
  /// What happens to pages that become free; called without a lock, before they can be allocated again. May be null.
  using discard_function = void (*)(void* context, void* from, std::size_t bytes);
  paged_extents(void* base, std::size_t bytes, discard_function discard = nullptr, void* context = nullptr);

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t free_bytes() const;
  /// Of the largest extent.
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

/// Small allocations in chunks of 64 KiB of one size class each, larger ones straight from the extents: what paged::resource() is.
/// Size classes are at most a quarter apart, so at most a fifth of a small allocation is lost. Thread-safe: a lock for every size
/// class; O(1) for small allocations, but for a new chunk. Throws std::bad_alloc when the range is full.
class size_class_resource final : public std::pmr::memory_resource {
 public:
  explicit size_class_resource(paged_extents& extents);

 private:
  static constexpr std::size_t chunk_bytes = 64u << 10;
  static constexpr std::size_t small_max = 8192;
  struct chunk;
  struct size_class {
    std::mutex mutex;
    std::size_t bytes = 0;
    std::vector<chunk*> with_room;  ///< the last one is allocated from
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
  void add_chunk(size_class& c);
  void enter(chunk& c);
  void leave(chunk& c);

  static constexpr std::size_t classes = 8 + 4 * 6;  ///< 16 to 128 by 16, then four to the doubling, to 8192
  paged_extents& extents_;
  std::array<size_class, classes> classes_;
  std::vector<std::unique_ptr<chunk>> chunks_;  ///< by 64 KiB of the range; each is its size class's
};

}  // namespace fm

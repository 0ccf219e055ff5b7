// The oracle of the stress test: what every object must hold, kept in plain memory beside the heap.
//
// An object is known by its id. Whoever reads or writes a changeable object holds the lock of its id, so that the oracle
// is exact: the object must say what the oracle says, not merely something that it once said. Objects that are never
// written after they were made (list nodes, frozen arrays) are read by everybody without a lock.
//
// Locks are taken outside of scopes, or tried: a thread that waits for one inside a scope would hold up the epoch that the
// holder's memory may depend on.
#pragma once

#include <farmem/farmem.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace stress {

constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
constexpr std::uint64_t word_of(std::uint64_t id, std::uint64_t version, std::uint64_t at) {
  return mix(id * 0x10001 + version * 0x100000001 + at * 31);
}

constexpr std::size_t edges = 3;

/// A graph object: every word of it follows from its id and version; its edges from the oracle.
struct cell {
  std::uint64_t id = 0;
  std::uint64_t version = 0;
  std::array<fm::ref<cell>, edges> to{};
  std::array<std::uint64_t, 5> words{};
  std::uint64_t check = 0;
};

/// A node of a list that never changes.
struct link_node {
  std::uint64_t id = 0;
  std::uint64_t position = 0;
  fm::ref<link_node> next;
  std::uint64_t check = 0;
};

inline void fill(cell& c, std::uint64_t id, std::uint64_t version) {
  c.id = id;
  c.version = version;
  for (std::size_t i = 0; i < c.words.size(); ++i) c.words[i] = word_of(id, version, i);
  c.check = word_of(id, version, 99);
}
inline bool good(const cell& c, std::uint64_t id, std::uint64_t version) {
  bool ok = c.id == id && c.version == version && c.check == word_of(id, version, 99);
  for (std::size_t i = 0; i < c.words.size(); ++i) ok = ok && c.words[i] == word_of(id, version, i);
  return ok;
}
using numbers = fm::array_object<std::uint64_t>;
inline void fill(numbers& a, std::uint64_t id, std::uint64_t version) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = word_of(id, version, i);
}
/// Looks at every `stride`th element and at the ends.
inline bool good(const numbers& a, std::uint64_t id, std::uint64_t version, std::size_t length, std::size_t stride) {
  if (a.size() != length) return false;
  for (std::size_t i = 0; i < length; i += stride)
    if (a[i] != word_of(id, version, i)) return false;
  return a[length - 1] == word_of(id, version, length - 1);
}

/// Where an edge goes: which object of which id, as the id may have got another object since.
struct shadow_edge {
  std::uint32_t id = 0;
  fm::detail::slot_t slot = 0;  ///< 0: null
};
struct shadow_cell {
  fm::ptr<cell> object;
  std::uint64_t version = 0;
  std::array<shadow_edge, edges> to{};
};
struct shadow_array {
  fm::ptr<std::uint64_t[]> object;
  std::uint64_t version = 0;
  std::uint64_t length = 0;
};
struct shadow_list {
  fm::ptr<link_node> head;
  std::uint64_t length = 0;
};

/// Locks striped over ids, a cache line each.
class stripes {
 public:
  std::mutex& of(std::uint64_t id) { return locks_[mix(id) % count].mutex; }

 private:
  static constexpr std::size_t count = 512;
  struct alignas(64) line {
    std::mutex mutex;
  };
  std::array<line, count> locks_;
};

/// What went wrong first, in words; further faults are only counted.
class faults {
 public:
  void add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (++count_ <= 10) text_ += what + "\n";
  }
  [[nodiscard]] bool any() const { return count_.load() != 0; }
  [[nodiscard]] std::string text() {
    const std::lock_guard lock(mutex_);
    return std::to_string(count_.load()) + " faults:\n" + text_;
  }

 private:
  std::mutex mutex_;
  std::atomic<std::uint64_t> count_{0};
  std::string text_;
};

}  // namespace stress

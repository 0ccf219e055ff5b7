// Regions that are mapped into this process (shm://): number to mapping, looked up by every one-sided operation without
// a lock.
//
// Regions are mapped for reading and writing, or, for owners who write none, for reading alone.
//
// A region that is detached may come back with the same memory, as those do that a heap's agent keeps for it. So its
// mapping stays for a while: with its page table, which costs 3 ms to make for 16 MiB. Its memory goes when the agent
// says so, mapped or not (os::memory_file::drop_pages).
//
// Invariant: a mapping stays until detach at least, so a pointer from direct() survives reconnects. Belongs to one
// stream_session; find and base may be called by any thread.
#pragma once

#include "fabric/wire/request.h"
#include "os/os.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace fm::fabric {

class region_map {
 public:
  explicit region_map(os::written_by who) : written_by_(who) { idle_.reserve(fabric_limits::idle_mappings_max + 1); }
  ~region_map();
  region_map(const region_map&) = delete;
  region_map& operator=(const region_map&) = delete;

  /// Maps the key's descriptor and takes it over. A region that is attached again with the same memory keeps its
  /// mapping, or has the one back that it had before detach.
  errc attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes, memory_key key) noexcept;
  /// Maps the pages of the region's memory, unless that has been done. O(pages) then.
  void touch_ahead(std::uint32_t region) noexcept;
  /// Nobody finds the region any more. Of the mappings of such regions, the last idle_mappings_max stay.
  void detach(std::uint32_t region) noexcept;
  /// Lets go of the memory of all regions, as session::forget_memory.
  void forget_memory() noexcept;
  /// The bytes that `where` names, or null; also when they are wanted for writing and the regions are mapped for reading.
  /// Wait-free.
  [[nodiscard]] std::byte* find(const remote& where, std::uint64_t bytes, bool to_write) const noexcept;
  [[nodiscard]] std::byte* base(std::uint32_t region) const noexcept;

 private:
  static constexpr std::uint32_t leaf_bits = 10;
  static constexpr std::uint32_t regions_max = 1u << 20;

  struct mapping {
    os::memory_file file;
    std::uint64_t device = 0, inode = 0;
    bool is_touched = false;
  };
  /// What a lookup reads. Replaced as a whole; old ones are kept until detach, as are their mappings.
  struct view {
    std::byte* base;
    std::uint64_t bytes;
    std::uint32_t generation;
  };
  struct leaf {
    std::array<std::atomic<const view*>, 1u << leaf_bits> views{};
  };
  struct record {
    std::vector<std::unique_ptr<mapping>> mappings;
    std::vector<std::unique_ptr<view>> views;  ///< none: detached, and in idle_
  };

  [[nodiscard]] const view* lookup(std::uint32_t region) const noexcept;
  /// Nobody has found it, so its mapping may go.
  void forget(std::uint32_t region) noexcept;

  const os::written_by written_by_;
  std::array<std::atomic<leaf*>, (regions_max >> leaf_bits)> leaves_{};
  std::mutex mutex_;
  std::map<std::uint32_t, record> records_;
  std::vector<std::uint32_t> idle_;  ///< the oldest first
  bool forgotten_ = false;           ///< what is mapped is no region's memory any more
};

}  // namespace fm::fabric

// Regions that are mapped into this process (shm://): number to mapping, looked up by every one-sided operation without
// a lock.
//
// Regions are mapped for reading and writing, or, for owners who write none, for reading alone.
//
// Invariant: a mapping stays until detach, so a pointer from direct() survives reconnects. Belongs to one
// stream_session; find and base may be called by any thread.
#pragma once

#include "fabric/wire/request.h"
#include "os/os.h"

#include <map>
#include <memory>
#include <mutex>

namespace fm::fabric {

class region_map {
 public:
  explicit region_map(os::written_by who) : written_by_(who) {}
  ~region_map();
  region_map(const region_map&) = delete;
  region_map& operator=(const region_map&) = delete;

  /// Maps the key's descriptor and takes it over. A region that is attached again with the same memory keeps its
  /// mapping.
  errc attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes, memory_key key) noexcept;
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
    std::vector<std::unique_ptr<view>> views;
  };

  [[nodiscard]] const view* lookup(std::uint32_t region) const noexcept;

  const os::written_by written_by_;
  std::array<std::atomic<leaf*>, (regions_max >> leaf_bits)> leaves_{};
  std::mutex mutex_;
  std::map<std::uint32_t, record> records_;
};

}  // namespace fm::fabric

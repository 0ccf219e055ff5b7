// The registry of types: numbers to descriptions. The process has one, behind find_type, type_count and register_type
// (farmem/detail/types/type_descriptor.h). The class is here so that its limits can be tested.
//
// Invariant owned here: a number, once given, names the same description for ever, and every number up to type_count()
// is present.
//
// Lookup is a two-level array of atomic pointers: blocks of 4,096 descriptors, made as they are needed and never freed.
// So a reader needs no lock, and no fence beyond the acquire loads. Registration is rare and takes a mutex.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <farmem/detail/types/type_descriptor.h>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

namespace fm::detail {

class type_registry {
 public:
  /// Type numbers are 24 bits of the object header, and 0 is nobody's.
  static constexpr std::uint32_t max_types = (1u << 24) - 1;
  /// Largest size of one object or element; bounds what a description may claim before anything is computed from it.
  static constexpr std::uint32_t max_bytes = 1u << 30;

  /// `limit`: how many types may be registered, at most max_types.
  explicit type_registry(std::uint32_t limit = max_types) noexcept : limit_(limit < max_types ? limit : max_types) {}
  ~type_registry();
  type_registry(const type_registry&) = delete;
  type_registry& operator=(const type_registry&) = delete;

  /// Descriptor by number, or null. Lock-free, O(1).
  [[nodiscard]] const type_descriptor* find(std::uint32_t id) const noexcept;
  [[nodiscard]] std::uint32_t count() const noexcept { return count_.load(std::memory_order_acquire); }

  /// See register_type. Thread-safe. Throws layout_mismatch for a known name with another layout, invalid_argument for
  /// a description that contradicts itself, too_large when the numbers are used up.
  const type_descriptor& add(type_descriptor d);

  /// See register_stored_types. Throws as add, and layout_mismatch; then nothing has changed, unless there is no memory.
  void add_stored(std::span<const type_descriptor> types);

  /// For fork: nobody registers a type meanwhile.
  void lock() noexcept { mutex_.lock(); }
  void unlock() noexcept { mutex_.unlock(); }

 private:
  /// With mutex_, of a valid description that nobody has.
  const type_descriptor& append(type_descriptor d, std::string key);
  static constexpr std::uint32_t block_types = 4096;
  static constexpr std::uint32_t blocks = (max_types + 1) / block_types;
  struct block {
    std::array<std::atomic<const type_descriptor*>, block_types> types{};
  };

  const std::uint32_t limit_;
  std::array<std::atomic<block*>, blocks> blocks_{};
  std::atomic<std::uint32_t> count_{0};
  std::mutex mutex_;  ///< guards by_key_ and all writing
  std::unordered_map<std::string, const type_descriptor*> by_key_;
};

}  // namespace fm::detail

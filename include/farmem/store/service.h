// The agent's store: heaps, regions, tablets, indexing, cleaning. A fabric::service, so that it can stand behind any
// transport or, for `local:`, directly inside the owner's process.
#pragma once

#include <farmem/fabric.h>
#include <memory>
#include <string>

namespace fm::store {

struct store_options {
  std::uint64_t memory_bytes = 1ull << 30;       ///< for regions of all heaps
  std::uint64_t region_bytes = 16ull << 20;      ///< power of two, 64 KiB to 32 MiB
  std::uint64_t quota_default_bytes = 0;         ///< per heap; 0: memory_bytes
  std::uint32_t heaps_max = 64;
  std::uint32_t lease_default_ms = 15000;
  std::uint32_t lease_max_ms = 600000;
  double clean_below_live_ratio = 0.75;          ///< sealed regions sparser than this are cleaned when memory is short
  double clean_reserve = 0.05;                   ///< share of the memory that only the cleaner may use
  std::string name = "local";                    ///< in logs
};

/// The store of one agent. Thread-safe. Destruction frees everything.
class store : public fabric::service {
 public:
  static std::unique_ptr<store> create(const store_options& options);
  /// JSON: memory, heaps (name, bytes live/garbage/metadata, regions, objects, batches, lease), totals.
  [[nodiscard]] virtual std::string statistics() const = 0;
};

}  // namespace fm::store

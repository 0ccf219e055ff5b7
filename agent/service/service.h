// The agent as a fabric::service, so that it can stand behind any transport or, for `local:`, directly inside the
// owner's process (agent/embedded/embedded.h). The program and tests make one.
//
// Invariants that the agent keeps for its owners
//   - An entry always names a complete home copy: it is published after the copy's batch has been checked.
//   - Index messages are applied in sequence and each once, across sessions (protocol/heap_messages.h, "Numbering of
//     batches").
//   - A region's memory is never seen by two owners: when the owner changes, the region gets a fresh memory file.
//   - A region's bytes stay while anything points into them (memory/memory_done), and its generation is bumped before
//     its number is used again.
#pragma once

#include "fabric/server/server.h"
#include <memory>
#include <string>

#include "agent/base/options.h"

namespace fm::agent {

/// The store of one agent. Thread-safe. Destruction frees everything; every peer must be disconnected before.
class store : public fabric::service {
 public:
  /// Throws fm::error (invalid_argument) naming the option that is out of its range.
  static std::unique_ptr<store> create(const store_options& options);
  /// JSON: memory, heaps (name, bytes live/garbage/metadata, regions, objects, batches, lease), totals. Takes each
  /// heap's lock for a moment.
  [[nodiscard]] virtual std::string statistics() const = 0;
  /// Asks the owners of all heaps and paged ranges to move what they have here to other agents and to leave this one, and
  /// gives parts of pools with replicas to other agents; or takes that back. New ones, and growth of heaps and ranges, are
  /// refused meanwhile. Pools without replicas stay.
  virtual void drain(bool on) noexcept = 0;
  /// Heaps that are still open.
  [[nodiscard]] virtual std::size_t heaps_left() const = 0;
  /// Spaces of paged ranges that are still open.
  [[nodiscard]] virtual std::size_t spaces_left() const = 0;
  /// Pools without replicas, and parts of pools with replicas, as their primary or their backup.
  [[nodiscard]] virtual std::size_t pools_left() const = 0;
  /// An administrator says that this agent goes on with the part of a pool that has that instance, and that the other agent
  /// of the part does not. `term` is the one that is to be beaten. Returns a text that says what this led to; waits for a second.
  [[nodiscard]] virtual std::string survive(std::uint32_t instance, std::uint64_t term) = 0;
  /// One bounded step of the work that the store's own threads do: expires leases, sends notices again that did not get
  /// through, cleans; and traces and evacuates, when there are no threads. True when there is more to do at once.
  /// Thread-safe.
  virtual bool maintain() = 0;
};

}  // namespace fm::agent

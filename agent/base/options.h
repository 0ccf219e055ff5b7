// The options of an agent: its limits, its leases, what its threads may do, and the seams of its tests.
// The program fills them in from its settings, agent/embedded/embedded.cc for a `local:` agent, and tests for theirs.
// store::create refuses values out of range (agent/base/limits.h). They are constant while the agent runs.
#pragma once

#include "base/base.h"

#include <memory>
#include <string>
#include <vector>

#include "arbiter.h"

namespace fm::agent {

/// Seams for tests: a virtual clock and load instead of the machine's, and places to step in. Production leaves them alone.
struct store_hooks {
  time_point (*now)(void* context) = nullptr;  ///< null: fm::clock::now
  /// Called by the cleaner, or an evacuation, after it has copied objects and before it publishes their new addresses;
  /// holds no lock that a message takes.
  void (*cleaner_copied)(void* context) noexcept = nullptr;
  double (*busy)(void* context) = nullptr;  ///< null: load_meter
  void* context = nullptr;
  std::uint32_t pool_first_generation = 1;  ///< of births in a pool's blocks, so that tests can see them run out
  bool background = true;                   ///< false: no threads; the test calls store::maintain ...
  bool rests = false;                       ///< ... and pools rest between steps all the same
};

struct store_options {
  std::uint64_t memory_bytes = 1ull << 30;   ///< for regions of all heaps
  std::uint64_t region_bytes = 16ull << 20;  ///< power of two, 64 KiB to 32 MiB
  /// Regions are files, which other processes can map: for shm://. Without, they are this process' own memory, and the
  /// kernel is asked to back those of 2 MiB and more with huge pages.
  bool shared_regions = true;
  /// Ask for huge pages for shared regions, too. The kernel gives them only if
  /// /sys/kernel/mm/transparent_hugepage/shmem_enabled says so ("advise").
  bool huge_pages = false;
  /// Per heap: what it gets when it asks for nothing, and the most that it may ask for. 0: memory_bytes.
  std::uint64_t quota_default_bytes = 0;
  std::uint32_t heaps_max = 64;
  std::uint32_t lease_default_ms = 15000;
  std::uint32_t lease_max_ms = 600000;
  std::uint64_t keep_max_ms = 24ull * 3600'000;  ///< for which a heap that was detached stays without an owner
  double clean_below_live_ratio = 0.75;          ///< sealed regions sparser than this are cleaned when memory is short
  double clean_reserve = 0.05;                   ///< share of the memory that only the cleaner may use
  std::uint32_t trace_threads = 1;               ///< 1 to 64; without a background thread there is none
  int trace_nice = 10;                           ///< of those threads, 0 to 19: fetches are served first
  /// A heap's objects that are marked and not scanned; beyond: rescans. And those that an evacuation in traversal order
  /// has come across and not moved; beyond: they are met later, out of order.
  std::uint64_t trace_queue_slots = 1u << 20;
  std::uint64_t trace_references_max = 256u << 10;  ///< that wait for a heap's owner; beyond: its tracing waits
  std::uint32_t pools_max = 64;
  std::uint32_t pool_clients_max = 1024;  ///< of one pool; one more is refused (agent_full), as is one pool more
  /// Send references to other agents' objects to those agents, and take theirs (protocol/heap_messages.h, "Agents that
  /// talk").
  bool peers = true;
  /// Kinds of addresses that it connects to for that. Addresses beyond this host only with `peers_beyond_host`: what is
  /// sent is plaintext.
  std::vector<std::string> peer_schemes = {"shm", "tcp"};
  bool peers_beyond_host = false;
  duration peer_within =
      std::chrono::seconds(3);  ///< a peer that acknowledges nothing for so long is given up for the cycle
  /// How long a pool with replicas is served, at most, after its primary was heard of: 200 ms to a minute. A backup takes
  /// over a little after that.
  std::uint32_t pool_tenure_ms = 750;
  /// Says which agent of a pool with replicas goes on when they do not hear each other; null: an administrator does.
  std::shared_ptr<pool_arbiter> arbiter;
  std::string zone;            ///< its failure domain: replicas go to agents of different ones; empty: none
  std::string name = "local";  ///< in logs
  bool log_heaps = false;      ///< log heaps coming and going as info; otherwise as debug
  store_hooks hooks{};
};

}  // namespace fm::agent

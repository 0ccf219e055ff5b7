// fm::paged: a range of bytes in far memory, for code that does not know farmem. The kernel reports accesses to absent
// pages by userfaultfd, and the library fetches them.
// Invariant: an access never sees zeros or old bytes in place of the newest ones. Application code owns the object; any
// thread may access the range.
#pragma once

#include <cstddef>
#include <farmem/base/error.h>
#include <farmem/paged/options.h>
#include <farmem/paged/stats.h>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>

namespace fm {

namespace detail {
class paged_core;
}

/// A range of byte-addressed far memory for unmodified code (dcm, section 3). data() to data() + size() are ordinary
/// memory, zero at first. Pages beyond paged_options::local live on the agents and are fetched when they are touched,
/// by userfaultfd. Any number of threads may access the range and call its members, unless stated otherwise.
///
/// An access that cannot be served never returns zeros or old bytes. It is retried for paged_options::access_within.
/// Then paged_options::on_failure decides; without it, the process aborts with a message.
///
/// Limits:
/// - The range does not exist in a child after fork: touching it there raises SIGSEGV, with a message.
/// - Memory of the range must not be given to the kernel for longer than a system call (O_DIRECT, registered buffers of
/// io_uring,
///   RDMA), because such accesses bypass the page tables.
/// - Unmapped pages lie before and behind the range.
class paged {
 public:
  /// Opens the range on its agents, within paged_options::connect_within for each. Throws fm::error:
  /// - invalid_argument: an option is out of its bounds
  /// - access_denied, unsupported: the process may not use userfaultfd, or the kernel is too old; the message states
  /// the remedy
  /// - quota_exceeded, agent_full: the agents have less memory than the capacity, as often as there are replicas
  /// - unreachable, refused and others: a connection failed; the message names the URL
  explicit paged(const paged_options& options = {});
  /// As the constructor, without exceptions.
  [[nodiscard]] static result<paged> open(const paged_options& options = {}) {
    return attempt([&] { return paged(options); });
  }
  /// As close().
  ~paged();
  /// Frees the range and its memory on the agents. No thread may touch the range any more. Later calls throw cancelled;
  /// data() is null. Idempotent.
  void close() noexcept;
  /// Takes over the range; the other object is empty afterwards. The addresses stay valid.
  paged(paged&&) noexcept;
  /// Frees this range and takes over the other one, which is empty afterwards.
  paged& operator=(paged&&) noexcept;

  /// The first byte. O(1).
  [[nodiscard]] std::byte* data() const noexcept;
  /// Bytes of the range: paged_options::capacity, rounded up to whole blocks. O(1).
  [[nodiscard]] std::size_t size() const noexcept;
  /// The whole range. O(1).
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data(), size()}; }
  /// Whether an address lies in the range. O(1).
  [[nodiscard]] bool contains(const void* p) const noexcept;

  /// A memory resource that allocates from the range, for std::pmr containers. It manages the whole range: use either
  /// this or data(). Valid while the range lives. Thread-safe. See fm::size_class_resource.
  [[nodiscard]] std::pmr::memory_resource* resource() const noexcept;

  /// Starts to fetch the absent pages of these bytes and returns at once. A hint: if local memory is short, it fetches
  /// only a part. Throws out_of_range for bytes outside of the range. O(pages).
  void prefetch(std::span<const std::byte> some) const;
  /// Makes all pages of these bytes present, and writable if `for_writing`. For buffers of a system call
  /// (fault_mode::sigbus), or to pay the cost ahead. Pages stay present until they are evicted, which other threads'
  /// accesses may cause. Throws too_large for more than half of the local memory, and out_of_range. If an access fails,
  /// throws its error instead of asking on_failure.
  void populate(std::span<const std::byte> some, bool for_writing = false) const;
  /// Discards the contents of these bytes: whole pages of them are zero afterwards and take no local memory; partial
  /// pages do not change. Regions of agents that become empty return to them and stay reserved for this range. No other
  /// thread may use these bytes meanwhile. O(pages), with one message for each region. Throws out_of_range, and
  /// timed_out if a page stays in transfer for access_within.
  void discard(std::span<std::byte> some) const;
  /// Changes the limit of local memory, paged_options::local. If the limit shrinks, waits until enough has been
  /// evicted. Throws invalid_argument below 8 blocks, and with n agents below 4/3 · (n - 1). Throws timed_out or the
  /// error of write-back if eviction fails; the new limit applies all the same.
  void resize_local(std::uint64_t bytes) const;

  /// Adds an agent. Pages go there as they are written back, and until the agents have their shares, pages move there from
  /// the others. Waits for the agent. If the range lacks room or agents, the agent takes what it has room for. Throws
  /// invalid_argument (it is one already, or local memory is too small for one more), and as the constructor.
  void add_agent(const std::string& url) const;
  /// Moves all pages away from the agent, beside the program, and closes the range there. Returns when that is done. At
  /// the end of `within` the agent stays, with what it still has: timed_out. Throws agent_full and quota_exceeded if the
  /// others have too little room, and cancelled (keep_agent). Throws invalid_argument if fewer than
  /// paged_options::replicas agents would stay, without those that are being removed or drained, or with strict_zones too
  /// few zones, or if the agent is none of the range's. If the agent is lost meanwhile, it is as in any other loss. O(bytes
  /// stored there). dcm (section 3.5) drains memory servers as well.
  void remove_agent(const std::string& url, duration within = std::chrono::minutes(10)) const;
  /// Calls of remove_agent that wait for that agent end with cancelled, and it stays. Without such a call, nothing
  /// happens. Throws invalid_argument if the agent is none of the range's. O(agents).
  void keep_agent(const std::string& url) const;
  /// Each page is to be stored on `n` agents from now on. Pages are copied, or dropped from some agents, in the background:
  /// paged_stats::degraded_bytes, agent_change::replicated. Throws invalid_argument: fewer than
  /// paged_options::min_replicas, or more than there are agents that stay (with strict_zones: zones), or an agent that was
  /// named twice. Throws agent_full and quota_exceeded if the agents have too little room. Waits for the agents. Thread-safe.
  /// O(agents).
  void set_replicas(std::uint32_t n) const;

  /// Compares the state of every page with the kernel's, and clean pages with their home copies; asks the agents for an
  /// audit. No thread may use the range meanwhile. Returns the faults as text, empty if there are none. O(capacity).
  [[nodiscard]] std::string verify() const;
  /// Counters since the range was opened. O(1). With `histogram` also counts resident blocks by size: O(capacity).
  [[nodiscard]] paged_stats stats(bool histogram = false) const;

  /// Evicts all pages that can be evicted. For tests. Throws as resize_local.
  void evict_all() const;
  /// Breaks the connections to all agents, as a network failure would. For tests.
  void drop_connections() const noexcept;

 private:
  [[nodiscard]] detail::paged_core& core() const;

  std::unique_ptr<detail::paged_core> core_;
};

}  // namespace fm

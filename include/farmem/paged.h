// fm::paged: a range of bytes in far memory.
#pragma once

#include <cstddef>
#include <farmem/paged_options.h>
#include <farmem/paged_resource.h>
#include <farmem/paged_stats.h>
#include <memory>
#include <memory_resource>
#include <span>

namespace fm {

namespace detail {
class paged_core;
}

/// Byte-addressed far memory for code that knows nothing of it (dcm, section 3). data() to data() + size() are ordinary memory,
/// zero at first; what does not fit into paged_options::local lives with the agents, and comes when it is touched, by
/// userfaultfd. Ordinary accesses from any number of threads; the members are thread-safe, too, if not said otherwise.
///
/// An access that cannot be served never gives zeroes or old bytes: it is retried for paged_options::access_within, then
/// paged_options::on_failure decides, and without that the process aborts with a message.
///
/// The range does not exist in a child after fork: touching it there is a SIGSEGV, with a message. Memory of the range must not
/// be given to the kernel for longer than a system call (O_DIRECT, io_uring's registered buffers, RDMA): such accesses go
/// past the page tables. An access outside of the range is what it always is; unmapped pages lie before and behind it.
class paged {
 public:
  /// Opens the range and its agents. Throws fm::error: invalid_argument naming the option; access_denied or unsupported, when
  /// userfaultfd may not be used or the kernel is too old, naming what to do; quota_exceeded or agent_full when an agent has
  /// not as much memory as its share of the capacity; and what fabric::connect throws.
  explicit paged(const paged_options& options = {});
  /// Gives everything back to the agents, without writing anything. Nothing may touch the range any more.
  ~paged();
  paged(paged&&) noexcept;
  paged& operator=(paged&&) noexcept;

  [[nodiscard]] std::byte* data() const noexcept;
  /// paged_options::capacity rounded up to whole blocks.
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data(), size()}; }
  /// Whether an address lies in the range.
  [[nodiscard]] bool contains(const void* p) const noexcept;

  /// Allocates from the range, for std::pmr containers; see resource.h. It shares the range with nobody: use either this or data().
  [[nodiscard]] std::pmr::memory_resource* resource() const noexcept;

  /// Starts to fetch what is away of these bytes, and returns at once. A hint: part of it is passed over when local memory is
  /// short. Throws out_of_range for bytes outside of the range, as the functions below do.
  void prefetch(std::span<const std::byte> some) const;
  /// Makes all of these bytes present, for a system call that is given them (fault_mode::sigbus), or to pay for it now; with
  /// `for_writing`, writable at once. At most half of the local memory can be made so (too_large), and it stays so only until it is
  /// evicted: other threads' accesses may do that. Throws what the access failed with instead of asking on_failure.
  void populate(std::span<const std::byte> some, bool for_writing = false) const;
  /// Forgets what is in these bytes: whole pages of them are zero afterwards, and take no memory here; the rest is not
  /// changed. Regions of the agents in which nothing is left go back to them, and stay promised to this range. Not to be
  /// called while another thread uses these bytes. O(pages), and a message for each region. Throws timed_out when a page of them
  /// stays under way for access_within.
  void discard(std::span<std::byte> some) const;
  /// Changes paged_options::local. When it becomes less, waits until that much has been evicted. Throws invalid_argument when it is
  /// less than 8 blocks, and timed_out or what write-back failed with; the new limit holds then all the same.
  void resize_local(std::uint64_t bytes) const;

  /// Compares what is known of every page with the kernel's view, and clean pages with their home copies; asks the agents for
  /// an audit. Nobody may use the range meanwhile. Returns what is wrong, empty if nothing is. O(capacity).
  [[nodiscard]] std::string verify() const;
  /// `histogram` counts resident blocks, too: O(capacity).
  [[nodiscard]] paged_stats stats(bool histogram = false) const;

  /// For tests: evicts everything that it can. Throws as resize_local does.
  void evict_all() const;
  /// For tests: breaks the connections to all agents, as if the network had.
  void drop_connections() const noexcept;

 private:
  std::unique_ptr<detail::paged_core> core_;
};

}  // namespace fm

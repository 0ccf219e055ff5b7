// Opening and closing a range, its threads, and its statistics; see core.h for the invariants of a range. fm::paged
// (range.cc) is its only caller.
#include "core.h"

#include "base/log.h"
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>
#include <set>

#include "ranges.h"

namespace fm::detail {

paged_options paged_core::checked(paged_options o) {
  const auto bad = [](const std::string& text) { throw error(errc::invalid_argument, "paged_options::" + text); };
  if (!is_power_of_two(o.block) || o.block < page_bytes || o.block > (2u << 20))
    bad(fmt::format("block {}: a power of two from 4 KiB to 2 MiB is needed", o.block));
  if (o.capacity == 0 || o.capacity > (std::uint64_t{1} << 46))
    bad(fmt::format("capacity {}: 1 byte to 64 TiB are possible", o.capacity));
  o.capacity = round_up(o.capacity, o.block);
  if (o.agents.empty()) bad("agents is empty");
  if (o.agents.size() > paged_limits::agents_max)
    bad(fmt::format("agents has {}: {} are possible", o.agents.size(), paged_limits::agents_max));
  if (o.replicas == 0 || o.replicas > paged_limits::replicas_max)
    bad(fmt::format("replicas {}: 1 to {} are possible", o.replicas, paged_limits::replicas_max));
  if (o.replicas > o.agents.size()) bad(fmt::format("replicas {}: there are {} agents", o.replicas, o.agents.size()));
  std::set<std::string> named;
  for (const std::string& url : o.agents)
    if (o.replicas > 1 && !named.insert(url).second)
      bad(fmt::format("agents names {} twice: replicas need agents of their own", url));
  if (o.min_replicas == 0 || o.min_replicas > o.replicas)
    bad(fmt::format("min_replicas {}: 1 to {} are possible, which is `replicas`", o.min_replicas, o.replicas));
  if (o.replicas > 1 && o.suspect_within <= duration::zero()) bad("suspect_within is not positive");
  if (const std::size_t least = least_blocks(o.agents.size()); o.local / o.block < least)
    bad(fmt::format("local {}: at least {} blocks of {} bytes are needed with {} agents", o.local, least, o.block,
                    o.agents.size()));
  if (o.fault_threads == 0 || o.fault_threads > 64)
    bad(fmt::format("fault_threads {}: 1 to 64 are possible", o.fault_threads));
  if (!(o.promote_probability >= 0 && o.promote_probability <= 1))
    bad(fmt::format("promote_probability {} is not in [0, 1]", o.promote_probability));
  if (o.access_within <= duration::zero()) bad("access_within is not positive");
  if (o.faults != fault_mode::threads && o.faults != fault_mode::sigbus) bad("faults is no fault_mode");
  if (o.tracking != dirty_tracking::write_protect && o.tracking != dirty_tracking::none)
    bad("tracking is no dirty_tracking");
  if (o.name.size() >= sizeof(protocol::open_space_body::name))
    bad(fmt::format("name \"{}\": fewer than {} characters are possible", o.name,
                    sizeof(protocol::open_space_body::name)));
  return o;
}

void paged_core::check_zones() const {
  if (options_.replicas == 1 || home_.zones() >= options_.replicas) return;
  const std::string text = fmt::format("{} agents are in {} zones, and each page is stored on {}", home_.agents(),
                                       home_.zones(), options_.replicas);
  if (options_.strict_zones) throw error(errc::invalid_argument, "paged_options::strict_zones: " + text);
  log::warn("paged range {}: {}: some replicas of a page are in one zone", name_, text);
}

paged_core::paged_core(const paged_options& options)
    : options_(checked(options)),
      name_(options_.name.empty() ? program_invocation_short_name : options_.name),
      tracks_(options_.tracking == dirty_tracking::write_protect),
      order_max_(static_cast<std::uint32_t>(std::countr_zero(options_.block / page_bytes))),
      policy_{.promote_probability = options_.promote_probability},
      process_(::getpid()),
      memory_(options_.capacity, options_.faults, options_.tracking),
      table_(options_.capacity / page_bytes, std::max<std::uint32_t>(order_max_, paged_limits::stripe_order_least)),
      home_(options_, table_.pages(), table_.group_order(), mending_),
      streams_(std::min(options_.read_ahead, options_.local / 8) / page_bytes, std::uint64_t{1} << order_max_),
      limit_(std::min(options_.local, options_.capacity) / page_bytes),
      fetch_slots_(
          std::max(std::clamp<std::size_t>((8u << 20) / options_.block, 8, 32), least_blocks(options_.agents.size()))),
      write_slots_(fetch_slots_.size()),
      parked_(options_.faults == fault_mode::threads ? paged_limits::parked_max + options_.fault_threads : 0),
      staging_((fetch_slots_.size() + write_slots_.size()) * options_.block, page_bytes),
      extents_(
          memory_.base(), memory_.bytes(),
          [](void* core, void* from, std::size_t n) {
            static_cast<paged_core*>(core)->discard({static_cast<const std::byte*>(from), n});
          },
          this),
      small_(extents_) {
  check_zones();
  for (block_queue* q : {&active_, &proactive_, &inactive_}) q->reserve(limit_.load());
  std::byte* at = staging_.base();
  for (fetch_slot& s : fetch_slots_) {
    s.staging = at;
    s.core = this;
    s.request.on_done = fetched;  // for good: the end of one fetch may be told while the next one begins
    s.request.context = &s;
    s.request.attended_by = fabric::attendance::waiter;  // most are over before anybody parks
    at += options_.block;
  }
  for (write_slot& s : write_slots_) {
    s.staging = at;
    s.core = this;
    at += options_.block;
  }
  late_.reserve(paged_limits::agents_max * paged_limits::fetches_ahead);
  copies_.reserve(
      std::clamp<std::size_t>(paged_limits::copies_bytes / home_.stripe_bytes(), 1, paged_limits::copies_most));
  moved_away_.reserve(paged_limits::moved_away_most);
  mend_staging_ = os::reservation(copies_.capacity() * home_.stripe_bytes(), page_bytes);
  fault_waiters_.reserve(options_.fault_threads);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  parked_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_fd_ < 0 || parked_fd_ < 0) {
    for (const int fd : {stop_fd_, parked_fd_})
      if (fd >= 0) ::close(fd);
    throw error(errc::out_of_memory, "eventfd");
  }
  try {
    enter_range(*this, options_.faults == fault_mode::sigbus);
    start_threads();
  } catch (...) {
    stop();
    throw;
  }
}

void paged_core::start_threads() {
  try {
    for (std::uint32_t i = 0; i < home_.agents(); ++i) told_[i].known = true;
    events_.start(options_.on_agent_event);
    threads_.emplace_back([this] { run_evictor(); });
    threads_.emplace_back([this] { run_ahead(); });
    threads_.emplace_back([this] { run_mender(); });
    for (std::uint32_t i = 0; options_.faults == fault_mode::threads && i < options_.fault_threads; ++i) {
      fault_waiters_.push_back(fault_waiter());
      threads_.emplace_back([this, waits = fault_waiters_.back()] { serve_faults(waits); });
    }
  } catch (const std::system_error& e) {
    throw error(errc::out_of_memory, fmt::format("threads of paged range {}: {}", name_, e.what()));
  }
}

void paged_core::stop() noexcept {
  events_.stop();  // its function may be touching the range
  stopping_.store(true);
  work_.fetch_add(1);
  os::futex_wake(work_, INT32_MAX);
  ahead_.wake();
  home_.agent_changed();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_fd_, &one, sizeof one);
  for (std::thread& t : threads_) t.join();
  threads_.clear();
  for (const int fd : fault_waiters_) ::close(fd);
  fault_waiters_.clear();
  // Whatever is in flight is done when this returns, and its callbacks have been called.
  home_.close(options_.access_within);
  leave_range(*this);
  for (int* const fd : {&stop_fd_, &parked_fd_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

paged_core::~paged_core() { stop(); }

bool paged_core::in_child() const noexcept { return ::getpid() != process_; }

void paged_core::check_process() const {
  if (in_child())
    throw error(errc::unsupported, fmt::format("paged range {} does not exist in a child after fork", name_));
}

void paged_core::drop_connections() noexcept {
  for (std::uint32_t i = 0; i < home_.agents(); ++i)
    home_.agent(i).session().drop_connection(home_.agent(i).session().generation());
}

paged_stats paged_core::stats(bool histogram) {
  const auto get = [](const std::atomic<std::uint64_t>& c) { return c.load(std::memory_order_relaxed); };
  paged_stats s;
  s.faults = get(counts_.faults);
  s.faults_remote = get(counts_.remote);
  s.faults_new = get(counts_.fresh);
  s.faults_write = get(counts_.write);
  s.faults_near = get(counts_.near);
  s.hits_inactive = get(counts_.inactive);
  s.hits_writing = get(counts_.writing);
  s.waits = get(counts_.waits);
  s.failed = get(counts_.failed);
  s.fetched_bytes = get(counts_.fetched_bytes);
  s.written_bytes = get(counts_.written_bytes);
  s.write_failures = get(counts_.write_failures);
  s.writes_cancelled = get(counts_.cancelled);
  s.dropped_blocks = get(counts_.dropped);
  s.waits_for_room = get(counts_.room);
  s.promoted = get(counts_.promoted);
  s.stretched = get(counts_.stretched);
  s.reduced = get(counts_.reduced);
  s.ahead_pages = get(counts_.ahead_pages);
  s.ahead_sampled = get(counts_.ahead_sampled);
  s.ahead_used = get(counts_.ahead_used);
  s.ahead_bytes = get(counts_.ahead_bytes);
  for (std::size_t i = 0; i < paged_stats::orders; ++i) {
    s.filled_blocks[i] = get(counts_.filled[i]);
    s.beside_pages[i] = get(counts_.beside_pages[i]);
    s.sampled_pages[i] = get(counts_.sampled_pages[i]);
    s.sampled_used[i] = get(counts_.sampled_used[i]);
  }
  for (std::uint64_t p = 0; histogram && p < table_.pages(); ++p) {
    const page_word w = table_.get(p);
    if (w.present() && table_.head(p, w.order()) == p) ++s.resident_blocks[w.order()];
  }
  s.capacity_bytes = bytes();
  s.local_bytes = limit_.load() * page_bytes;
  s.local_used_bytes = used_.load() * page_bytes;
  s.active_bytes = active_.pages() * page_bytes;
  s.proactive_bytes = proactive_.pages() * page_bytes;
  s.inactive_bytes = inactive_.pages() * page_bytes;
  for (std::uint32_t i = 0; i < home_.agents(); ++i) {
    const home_agent& a = home_.agent(i);
    s.reconnects += a.reconnects();
    s.agents_lost += a.lost();
    // What it stored is known to be somewhere else when all stripes have been looked at.
    if (a.lost() && !a.is_swept.load()) s.degraded_bytes += a.places().taken() * home_.stripe_bytes();
    if (a.lost() || a.as.load() == home_agent::role::gone) continue;
    s.regions += a.regions();
    s.agents_up += a.up();
  }
  s.degraded_bytes += home_.degraded() * home_.stripe_bytes();
  s.surplus_bytes = home_.surplus() * home_.stripe_bytes();
  s.mended_bytes = get(counts_.mended);
  s.lost_pages = get(counts_.lost);
  s.fault_ns = fault_ns_.snapshot();
  return s;
}

}  // namespace fm::detail

namespace fm {

// Each kind is weighed by all its pages: blocks of some sizes are sampled far more often than others, and a sample of
// read-ahead is one block of a window.
double paged_stats::prefetch_accuracy() const {
  double pages = 0, used = 0;
  const auto add = [&](std::uint64_t all, std::uint64_t sampled, std::uint64_t of_them_used) {
    if (sampled == 0) return;
    pages += double(all);
    used += double(all) * double(of_them_used) / double(sampled);
  };
  for (std::size_t i = 0; i < orders; ++i) add(beside_pages[i], sampled_pages[i], sampled_used[i]);
  add(ahead_pages, ahead_sampled, ahead_used);
  return pages == 0 ? 1.0 : used / pages;
}

std::string paged_stats::text() const {
  const auto us = [](std::uint64_t ns) { return double(ns) / 1000.0; };
  const auto sum = [](const auto& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}); };
  std::string sizes;
  for (std::size_t i = 0; i < orders; ++i)
    if (filled_blocks[i] != 0)
      sizes += fmt::format("{}{} of {} KiB", sizes.empty() ? "" : ", ", filled_blocks[i], 4u << i);
  return fmt::format(
      "faults    {}: {} remote, {} new, {} first writes, {} near, {} in inactive, {} being written; {} failed\n"
      "          p50 {:.1f} us, p99 {:.1f} us, max {:.1f} us; {} waited for another's, {} for room\n"
      "blocks    {}; {} stretched, {} reduced\n"
      "ahead     {} bytes; of samples {} of {} blocks and {} of {} pages were used, {:.2f} of all pages\n"
      "traffic   {} bytes fetched, {} written; {} blocks dropped clean, {} writes in vain, {} failed\n"
      "local     {} of {} bytes: {} active, {} proactive, {} inactive\n"
      "agents    {} connected, {} lost, {} regions, {} reconnects; {} bytes degraded, {} in surplus, {} mended, {} "
      "pages lost\n",
      faults, faults_remote, faults_new, faults_write, faults_near, hits_inactive, hits_writing, failed,
      us(fault_ns.quantile_ns(0.5)), us(fault_ns.quantile_ns(0.99)), us(fault_ns.max_ns), waits, waits_for_room, sizes,
      stretched, reduced, ahead_bytes, ahead_used, ahead_sampled, sum(sampled_used), sum(sampled_pages),
      prefetch_accuracy(), fetched_bytes, written_bytes, dropped_blocks, writes_cancelled, write_failures,
      local_used_bytes, local_bytes, active_bytes, proactive_bytes, inactive_bytes, agents_up, agents_lost, regions,
      reconnects, degraded_bytes, surplus_bytes, mended_bytes, lost_pages);
}

}  // namespace fm

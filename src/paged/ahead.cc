// Fetching before the touch: for sequential streams, and for prefetch. One thread of the range runs it, with several
// fetches at a time. Faults and fm::paged::prefetch only leave requests for it.
#include <algorithm>

#include "core.h"
#include "paged_limits.h"

namespace fm::detail {

void paged_core::note_access(std::uint64_t first, std::uint64_t pages, bool write) noexcept {
  ahead_job job;
  if (!streams_.advance(first, pages, write, job) || job.first >= table_.pages()) return;
  job.pages = std::min(job.pages, table_.pages() - job.first);
  // It is read in the largest blocks from here on, by whoever comes first: growing by one order in every pass would
  // take many.
  const std::uint64_t largest = std::uint64_t{1} << order_max_, end = job.first + job.pages;
  for (std::uint64_t p = table_.head(job.first, order_max_); options_.elastic && p < end; p += largest) {
    page_group& g = table_.group(p);
    g.lock();
    table_.update(p, order_max_, [&](page_word& w) { w.hint(order_max_); });
    g.unlock();
  }
  ahead_.push(job);
}

void paged_core::run_ahead() noexcept {
  os::name_thread("fm-paged-ahead");
  while (!stopping_.load()) {
    const std::uint32_t seen = ahead_.seen();
    ahead_job job;
    if (ahead_.pop(job)) {
      if (job.stream && !streams_.awaits(job.first)) continue;
      const std::lock_guard lock(ahead_at_work_);
      fill_ahead(job);
    } else {
      ahead_.wait(seen);
    }
  }
}

// False when it was given up, for want of room or because a fetch failed; whoever touches the pages will see why.
bool paged_core::fill_ahead(const ahead_job& job) noexcept {
  std::array<fill_op, paged_limits::fetches_ahead> ops;
  std::array<fill_how, paged_limits::fetches_ahead> hows;
  const std::uint64_t end = job.first + job.pages;
  bool good = true, trigger = job.stream;
  for (std::uint64_t page = job.first; page < end && good && !stopping_.load();) {
    std::size_t n = 0;
    while (n < paged_limits::fetches_ahead && page < end && good) {
      page_group& g = table_.group(page);
      g.lock();
      const page_word w = table_.get(page);
      if (!w.absent() || w.poisoned()) {
        g.unlock();
        ++page;
        continue;
      }
      const block b = choose(page, w);
      if (!take_room(b.pages())) {
        g.unlock();
        if (n != 0) break;  // end what is under way first
        // The limit leaves room for this only by evicting, which must not be left to the one who waits for its page.
        for (int i = 0; i < 8 && free_pages() < b.pages() && evict_step(); ++i) {
        }
        good = free_pages() >= b.pages();
        continue;
      }
      claim(b);
      g.unlock();
      begin_fill(b, ops[n], n == 0);
      if (ops[n].no_slot) {
        undo_fill(b, false);
        ops[n] = fill_op();
        if (n != 0) break;  // end what is under way first
        wait_for_slot(home_.agent_of(b.first));
        good = !stopping_.load();
        continue;
      }
      hows[n] = {.write = job.write, .mapped = !trigger, .ahead = true};
      trigger = false;
      ++n;
      page = b.first + b.pages();
    }
    // In the order in which they end: accesses may be waiting for one agent's blocks while another one is silent.
    std::array<bool, paged_limits::fetches_ahead> over{};
    for (std::size_t left = n, i = 0; left != 0; i = (i + 1) % n) {
      if (over[i]) continue;
      if (fetch_slot* const slot = ops[i].slot;
          slot != nullptr && left != 1 &&
          !ops[i].agent->session().wait_until(slot->request, clock::now() + paged_limits::wait_in_place))
        continue;
      over[i] = true;
      --left;
      const block filled = ops[i].what;
      if (end_fill(ops[i], hows[i]) == errc::ok) {
        count(counts_.ahead_bytes, filled.bytes());
        if (job.stream) count(counts_.ahead_pages, filled.pages());
        count(counts_.ahead_sampled, !hows[i].mapped);
      } else {
        good = false;
      }
      ops[i] = fill_op();
    }
  }
  return good;
}

}  // namespace fm::detail

// Fetching before the touch: for sequential streams, and for prefetch. One thread of the range runs it, with several
// fetches at a time. Faults and fm::paged::prefetch only leave requests for it.
//
// A fetch that an agent does not answer for ahead_waits becomes late. It is ended when its answer or its deadline
// comes, and until then nothing more of that agent is read ahead. So at most fetches_ahead of each agent are late.
// The end of a late fetch is heard as that of a parked one is (parked.cc).
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
    {
      const std::lock_guard lock(ahead_at_work_);
      end_late(false);
    }
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
  std::array<ahead_fill, paged_limits::fetches_ahead> fills;
  const std::uint64_t end = job.first + job.pages;
  bool good = true, trigger = job.stream;
  for (std::uint64_t page = job.first; page < end && good && !stopping_.load();) {
    std::size_t n = 0;
    while (n < paged_limits::fetches_ahead && page < end && good) {
      page_group& g = table_.group(page);
      g.lock();
      const page_word w = table_.get(page);
      if (!w.absent() || w.poisoned() || w.lost()) {
        g.unlock();
        ++page;
        continue;
      }
      const block b = choose(page, w);
      if (const home::member m = home_.reader_of(b.first);
          m.agent != nullptr && has_late(*m.agent)) {  // others' blocks are still worth reading
        g.unlock();
        page = b.first + b.pages();
        continue;
      }
      if (!take_room(b.pages())) {
        g.unlock();
        if (n != 0) break;  // end what is under way first
        // The limit leaves room for this only by evicting, which must not be left to the one who waits for its page.
        for (int i = 0; i < 8 && free_pages() < b.pages() && evict_step(false, asking::soon); ++i) {
        }
        good = free_pages() >= b.pages();
        continue;
      }
      claim(b);
      g.unlock();
      ahead_fill& f = fills[n] = ahead_fill();
      begin_fill(b, f.op, n == 0);
      if (f.op.no_slot) {
        undo_fill(b, false);
        if (n != 0) break;  // end what is under way first
        wait_for_slot(*f.op.agent, b.first, clock::now() + paged_limits::ahead_waits);
        if (!has_fetch_slot(*f.op.agent) && f.op.agent->up()) page = b.first + b.pages();
        good = !stopping_.load();
        continue;
      }
      f.how = {.write = job.write, .mapped = !trigger, .ahead = true};
      f.of_stream = job.stream;
      trigger = false;
      ++n;
      page = b.first + b.pages();
    }
    good = end_ahead({fills.data(), n}) && good;
  }
  return good;
}

// In the order in which they end: accesses may be waiting for one agent's blocks while another one is silent.
bool paged_core::end_ahead(std::span<ahead_fill> fills) noexcept {
  bool good = true;
  std::size_t left = fills.size();
  for (time_point until = clock::now() + paged_limits::ahead_waits; left != 0;) {
    for (ahead_fill& f : fills) {
      if (f.over) continue;
      fetch_slot* const slot = f.op.slot;
      if (slot != nullptr &&
          !f.op.agent->session().wait_until(slot->request, clock::now() + paged_limits::wait_in_place))
        continue;
      f.over = true;
      --left;
      good = finish_ahead(f) && good;
      until = clock::now() + paged_limits::ahead_waits;
    }
    if (clock::now() < until && !stopping_.load()) continue;
    for (ahead_fill& f : fills)
      if (!f.over) {
        f.op.slot->parked.exchange(fetch_slot::is_late, std::memory_order_seq_cst);
        late_.push_back(f);  // has room
      }
    end_late(false);  // their ends are told from here on: those that came before are seen now
    break;
  }
  return good;
}

bool paged_core::finish_ahead(ahead_fill& f) noexcept {
  const block filled = f.op.what;
  if (end_fill(f.op, f.how) != errc::ok) return false;
  count(counts_.ahead_bytes, filled.bytes());
  if (f.of_stream) count(counts_.ahead_pages, filled.pages());
  count(counts_.ahead_sampled, !f.how.mapped);
  return true;
}

void paged_core::end_late(bool waits) noexcept {
  std::erase_if(late_, [&](ahead_fill& f) {
    if (!waits && !f.op.slot->request.done()) return false;
    finish_ahead(f);
    return true;
  });
}

bool paged_core::has_late(const home_agent& agent) const noexcept {
  return std::any_of(late_.begin(), late_.end(), [&](const ahead_fill& f) { return f.op.agent == &agent; });
}

}  // namespace fm::detail

// The members of fm::paged that touch many pages: populate, discard, resize_local, verify; see farmem/paged/paged.h. They
// take the same locks as faults do, one group at a time. Any thread of the program calls them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core.h"

namespace fm::detail {

paged_core::page_range paged_core::pages_of(std::span<const std::byte> some, bool whole_pages) const {
  const auto from = reinterpret_cast<std::uintptr_t>(some.data()), low = reinterpret_cast<std::uintptr_t>(base());
  if (some.empty()) return {};
  if (from < low || some.size() > bytes() || from - low > bytes() - some.size())
    throw error(errc::out_of_range, fmt::format("{} bytes at {} are not in paged range {}", some.size(),
                                                static_cast<const void*>(some.data()), name_));
  const std::uint64_t begin = from - low, end = begin + some.size();
  if (!whole_pages) return {begin / page_bytes, round_up(end, page_bytes) / page_bytes};
  const page_range r{round_up(begin, page_bytes) / page_bytes, end / page_bytes};
  return r.first < r.end ? r : page_range{};
}

void paged_core::raise(const trouble& why, const char* what) const {
  throw error(why.code, fmt::format("paged range {}: {}{}{}", name_, what, why.agent != nullptr ? ", agent " : "",
                                    why.agent != nullptr ? why.agent->url() : ""));
}

void paged_core::prefetch(std::span<const std::byte> some) {
  const page_range r = pages_of(some, false);
  if (r.first == r.end) return;
  // No more than is sure to be still there when it is used.
  const std::uint64_t most = std::max<std::uint64_t>(limit_.load() / 4, 1);
  ahead_.push({r.first, std::min(r.end - r.first, most), false, false});
}

void paged_core::populate(std::span<const std::byte> some, bool for_writing) {
  const page_range r = pages_of(some, false);
  if (r.end - r.first > limit_.load() / 2)
    throw error(errc::too_large,
                fmt::format("populating {} bytes of paged range {}: at most half of its local {} bytes are possible",
                            some.size(), name_, limit_.load() * page_bytes));
  for (std::uint64_t p = r.first; p < r.end; ++p) {
    trouble why;
    if (!serve(p, for_writing, why)) raise(why, "populating");
  }
}

// Makes the block that a present page belongs to into single pages; the group is locked.
void paged_core::break_up(std::uint64_t page, page_word w) noexcept {
  const std::uint64_t first = table_.head(page, w.order());
  const std::uint64_t pages = std::uint64_t{1} << w.order();
  page_word head = table_.get(first);
  const page_queue q = head.queue();
  // Who has cooled it may not have unmapped it yet. Its parts are in the queue from here on, where all are unmapped.
  if (w.state() == block_state::inactive) {
    const byte_run all{offset(first), pages * page_bytes};
    memory_.unmap({&all, 1});
  }
  head.sampled(false);
  head.ahead(false);
  table_.set(first, head);
  table_.update(first, w.order(), [](page_word& p) { p.order(0); });
  for (std::uint64_t p = first; p < first + pages; ++p) enter(p, q);
}

void paged_core::discard_page(std::uint64_t page) {
  page_group& g = table_.group(page);
  // Also of a page that is not at home: its stripe may have places, and a write-back that waited for their regions.
  const auto leave_home = [&](page_word& w) {
    home_.drop(home_.stripe_of(page), w.home() ? 1 : 0);
    w.home(false);
  };
  for (const time_point until = clock::now() + options_.access_within;;) {
    g.lock();
    page_word w = table_.get(page);
    if (w.poisoned()) {
      const byte_run one{offset(page), page_bytes};
      memory_.unmap({&one, 1});
    }
    if (w.absent()) {
      w.poisoned(false);
      w.dirty(false);
      leave_home(w);
      w.state(block_state::untouched);
      table_.set(page, w);
      g.unlock();
      return;
    }
    if (w.state() == block_state::busy || table_.get(table_.head(page, w.order())).writing_back()) {
      const std::uint32_t seen = g.seen();
      g.unlock();
      harvest();
      home_.poll();
      g.wait(seen);
      if (clock::now() >= until)
        throw error(errc::timed_out, fmt::format("discarding in paged range {}: a page is still on its way", name_));
      continue;
    }
    if (w.order() != 0) {
      break_up(page, w);
      w = table_.get(page);
    }
    w.state(block_state::busy);
    leave_home(w);
    w.dirty(false);
    w.touched(false);
    table_.set(page, w);
    g.unlock();
    block_entry e = block_entry::of(page, w);
    remove({&e, 1});
    return;
  }
}

void paged_core::discard(std::span<const std::byte> some) {
  const page_range r = pages_of(some, true);
  for (std::uint64_t p = r.first; p < r.end; ++p) discard_page(p);
  home_.release_empty(options_.access_within, true);
}

void paged_core::shrink_to(std::uint64_t pages, bool everything) {
  std::uint64_t least = ~std::uint64_t{0};
  for (time_point until = clock::now() + options_.access_within; used_.load() > pages;) {
    if (used_.load() < least) {  // as long as it goes on, it may take its time
      least = used_.load();
      until = clock::now() + options_.access_within;
    }
    const std::uint32_t seen = moved_.load();
    if (evict_step(everything, asking::waits)) continue;
    home_.poll();
    if (harvest()) continue;
    os::futex_wait(moved_, seen, clock::now() + std::chrono::milliseconds(5));
    const auto why = static_cast<errc>(last_error_.load());
    const home_agent* const agent = last_error_agent_.load();
    if (why == errc::agent_lost || clock::now() >= until)
      raise({why == errc::ok ? errc::timed_out : why, agent, true}, "evicting");
  }
}

void paged_core::resize_local(std::uint64_t bytes) {
  const std::uint64_t blocks = least_blocks(home_.serving()), least = blocks * (page_bytes << order_max_);
  if (bytes < least)
    throw error(errc::invalid_argument,
                fmt::format("paged range {}: {} bytes of local memory, at least {} blocks ({} bytes) are needed", name_,
                            bytes, blocks, least));
  const std::uint64_t pages = std::min(bytes / page_bytes, table_.pages());
  for (block_queue* q : {&active_, &proactive_, &inactive_}) q->reserve(pages);
  limit_.store(pages);
  shrink_to(pages, false);
}

void paged_core::evict_all() { shrink_to(0, true); }

void paged_core::verify_group(std::uint64_t first, std::uint64_t& present, std::string& faults) {
  const std::uint64_t end = std::min(first + (std::uint64_t{1} << table_.group_order()), table_.pages());
  const auto fault = [&](std::uint64_t page, const std::string& what) {
    if (faults.size() < 4096) faults += fmt::format("page {} (word {:#x}): {}\n", page, table_.get(page).bits, what);
  };
  // A thread whose page came may be here before the one that brought it has said so.
  page_group& g = table_.group(first);
  for (const time_point until = clock::now() + options_.access_within; clock::now() < until;) {
    const std::uint32_t seen = g.seen();
    bool busy = false;
    for (std::uint64_t p = first; p < end; ++p) busy = busy || table_.get(p).state() == block_state::busy;
    if (!busy) break;
    g.wait(seen);
  }
  const std::lock_guard lock(g);
  std::array<std::byte, page_bytes> here, there;
  for (std::uint64_t p = first; p < end; ++p) {
    const page_word w = table_.get(p);
    if (w.state() > block_state::writing) fault(p, "no such state");
    if (w.state() == block_state::busy) fault(p, "busy, but nobody is at it");
    if (w.state() == block_state::remote && !w.home()) fault(p, "remote, but not at home");
    if (w.state() == block_state::untouched && w.home()) fault(p, "untouched, but at home");
    if (!w.present()) continue;
    ++present;
    const std::uint64_t first_of = table_.head(p, w.order());
    const page_word head = table_.get(first_of);
    if (head.state() != w.state() || head.order() != w.order() || head.dirty() != w.dirty())
      fault(p, fmt::format("differs from the head of its block, {:#x}", head.bits));
    if (p == first_of) {
      const page_queue q = head.queue();
      const bool cooled = w.state() != block_state::resident;
      if (q == page_queue::none || cooled != (q == page_queue::inactive))
        fault(p, "is in a queue that its state is not of");
    }
    if (w.dirty()) continue;
    // A clean page is its home copy on every member, or zero.
    memory_.read(offset(p), here.data(), page_bytes);
    there.fill(std::byte{0});
    if (!w.home() && here != there) fault(p, "clean and without a home copy, but not zero");
    for (const home::member& m : w.home() ? home_.members(home_.stripe_of(p)) : home::member_list()) {
      home_agent& agent = *m.agent;
      fabric::request r;
      r.kind = fabric::op_kind::read;
      r.sg_count = 1;
      r.sg[0] = {there.data(), page_bytes};
      r.deadline = clock::now() + options_.access_within;
      if (!agent.up() || !agent.find(home_.offset_in(m, p), r.where))
        raise({errc::disconnected, &agent, false}, "verifying");
      agent.session().post(r);
      agent.session().wait(r);
      if (r.status != errc::ok) raise({r.status, &agent, false}, "verifying");
      if (here != there) fault(p, fmt::format("clean, but not its home copy on {}", agent.url()));
    }
  }
}

// The books of stripes and places. Nobody reads from the old places of stripes that have moved any more: the mender would
// have given them back at its next look.
void paged_core::verify_homes(std::string& faults) {
  if (!give_old_places()) faults += "stripes have moved, and their old places are still read\n";
  std::array<std::uint64_t, paged_limits::agents_max> places{};  // one may be added meanwhile
  for (std::uint64_t s = 0; s < home_.stripes(); ++s) {
    const std::uint64_t first = s << table_.group_order(),
                        end = std::min(first + (std::uint64_t{1} << table_.group_order()), table_.pages());
    std::uint32_t kept = 0, dirty = 0;
    const std::lock_guard lock(table_.group(first));
    for (std::uint64_t p = first; p < end; ++p) {
      kept += table_.get(p).home();
      dirty += table_.get(p).dirty();
    }
    const home::member_list list = home_.members(s);
    if (kept != home_.kept(s)) faults += fmt::format("stripe {}: {} home copies, {} known\n", s, kept, home_.kept(s));
    if (kept == 0 && dirty == 0 && list.count != 0)
      faults += fmt::format("stripe {}: places, and nothing for them\n", s);
    if (kept != 0 && list.count == 0) faults += fmt::format("stripe {}: home copies, and no member\n", s);
    for (const home::member& m : list) {
      ++places[m.agent->number()];
      if (!m.agent->places().is_taken(m.place)) faults += fmt::format("stripe {}: its place is free\n", s);
      for (const home::member& o : list)
        if (&o != &m && o.agent == m.agent) faults += fmt::format("stripe {}: twice on {}\n", s, m.agent->url());
    }
  }
  for (std::uint32_t i = 0; i < home_.agents(); ++i) {
    home_agent& a = home_.agent(i);
    if (a.lost() || a.as.load() == home_agent::role::gone) continue;
    if (places[i] != a.places().taken())
      faults += fmt::format("{}: {} stripes, {} places\n", a.url(), places[i], a.places().taken());
    const protocol::audit_space_answer audit = a.audit();
    if (audit.faults != 0 || audit.regions != a.regions())
      faults +=
          fmt::format("{}: {} regions, {} are known; {} faults\n", a.url(), audit.regions, a.regions(), audit.faults);
  }
}

std::string paged_core::verify() {
  const std::scoped_lock quiet(ahead_at_work_, evictor_at_work_, mender_at_work_);
  end_late(true);
  // First the fault threads, which may begin writes and end them.
  for (const time_point until = clock::now() + options_.access_within; clock::now() < until;) {
    const std::uint32_t seen = moved_.load();
    if (faults_at_work_.load() == 0 && !writes_in_flight()) break;
    home_.poll();
    if (!harvest()) os::futex_wait(moved_, seen, clock::now() + std::chrono::milliseconds(2));
  }
  std::string faults;
  std::uint64_t present = 0;
  for (std::uint64_t first = 0; first < table_.pages(); first += std::uint64_t{1} << table_.group_order())
    verify_group(first, present, faults);
  if (present != used_.load()) faults += fmt::format("{} pages are present, {} are accounted\n", present, used_.load());
  if (const std::uint64_t kernel = memory_.present_bytes(); kernel != present * page_bytes)
    faults += fmt::format("{} bytes are present, the kernel says {}\n", present * page_bytes, kernel);
  verify_homes(faults);
  return faults;
}

}  // namespace fm::detail

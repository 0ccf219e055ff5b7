// An access that needs something; see core.h. Runs on the library's fault threads, or in a handler of SIGBUS on the
// thread that touched the page, so nothing here allocates, throws or touches the range.
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core.h"

namespace fm::detail {

namespace {

/// Trying again may help.
bool passes(errc e) noexcept {
  return e == errc::disconnected || e == errc::timed_out || e == errc::cancelled || e == errc::out_of_memory;
}

}  // namespace

bool paged_core::serve(std::uint64_t page, bool write, trouble& why) noexcept {
  const time_point arrived = clock::now();
  const auto served = [&] {
    count(counts_.faults);
    fault_ns_.add(static_cast<std::uint64_t>((clock::now() - arrived).count()));
    return true;
  };
  bool waited_for_room = false;
  for (time_point until{};;) {
    const step s = attempt(page, write, why);
    if (s == step::served) return served();
    if (s == step::again) continue;
    if (stopping_.load(std::memory_order_relaxed)) return served();  // nothing may touch the range any more
    const time_point now = clock::now();
    if (until == time_point{}) until = now + options_.access_within;
    if (s == step::hopeless || now >= until) break;
    if (s == step::no_room) {
      if (!waited_for_room) count(counts_.room);
      waited_for_room = true;
      make_room(std::uint64_t{1} << order_max_);
    } else {
      os::futex_wait(never_, 0, now + std::chrono::milliseconds(2));
    }
  }
  count(counts_.failed);
  return false;
}

paged_core::step paged_core::attempt(std::uint64_t page, bool write, trouble& why) noexcept {
  page_group& g = table_.group(page);
  g.lock();
  const page_word w = table_.get(page);
  if (w.present()) {
    const std::uint64_t first = table_.head(page, w.order());
    if (page_word head = table_.get(first); head.ahead()) {  // the first touch of a window that was read ahead
      head.ahead(false);
      table_.set(first, head);
      g.unlock();
      count(counts_.ahead_used);
      note_access(first, std::uint64_t{1} << w.order(), write);
      return step::again;
    }
  }
  switch (w.state()) {
    case block_state::resident: return serve_resident(page, w, write, why);
    case block_state::inactive:
    case block_state::writing: return serve_cooled(page, w, write, why);
    case block_state::busy: {
      const std::uint32_t seen = g.seen();
      g.unlock();
      count(counts_.waits);
      g.wait(seen);
      return step::again;
    }
    default: break;
  }
  if (w.poisoned()) {
    g.unlock();
    why = {errc::agent_lost, &home_.agent_of(page), false};
    return step::hopeless;
  }
  const block b = choose(page, w);
  if (!take_room(b.pages())) {
    g.unlock();
    why = {static_cast<errc>(last_error_.load()), last_error_agent_.load(), true};
    if (why.code == errc::ok) why.code = errc::timed_out;
    return step::no_room;
  }
  claim(b);
  g.unlock();
  count(w.state() == block_state::remote ? counts_.remote : counts_.fresh);

  note_access(b.first, b.pages(), write);  // before the thread that waits goes on: streams are told by the order
  fill_op op;
  begin_fill(b, op);
  // dcm, section 3.3: while the fetch is under way, room is made for the next one.
  if (op.slot != nullptr && free_pages() < reserve_pages()) evict_step();
  const errc e =
      end_fill(op, {.page = page, .write = write, .sample = options_.elastic && record_.samples(b.order, random())});
  if (e == errc::ok) return step::served;
  why = {e, op.agent, false};
  return passes(e) && !(op.agent != nullptr && op.agent->lost()) ? step::failed : step::hopeless;
}

paged_core::step paged_core::serve_resident(std::uint64_t page, page_word w, bool write, trouble& why) noexcept {
  page_group& g = table_.group(page);
  const block b{table_.head(page, w.order()), w.order()};
  page_word head = table_.get(b.first);
  const bool begins_dirty = write && tracks_ && !w.dirty();
  const bool was_mapped = w.mapped();
  if (begins_dirty) table_.update(b.first, b.order, [](page_word& p) { p.dirty(true); });
  const bool protect = tracks_ && !w.dirty() && !write;
  // A page that is noted as mapped most often is, because it came while its fault was on the way here; so it is tried
  // alone. But it may have been unmapped by an eviction that a touch has overtaken: then the rest of its block was,
  // too. One that begins to be dirty comes back here if it was.
  errc e = errc::ok;
  bool rest = !head.sampled();
  if (begins_dirty && was_mapped)
    rest = false;
  else if (was_mapped || !rest)
    rest = memory_.map(offset(page), page_bytes, protect, e) && rest;
  if (e == errc::ok && rest) e = memory_.map(b.from(), b.bytes(), protect);
  if (e == errc::ok) {
    if (!head.sampled()) table_.update(b.first, b.order, [](page_word& p) { p.mapped(true); });
    page_word mine = table_.get(page);
    mine.mapped(true);
    mine.touched(true);
    table_.set(page, mine);
    if (write && tracks_) memory_.unprotect(b.from(), b.bytes());
  }
  g.unlock();
  if (e != errc::ok) {
    why = {e, nullptr, false};
    return step::failed;
  }
  count(begins_dirty && was_mapped ? counts_.write : counts_.near);
  return step::served;
}

// A touch in inactive, or while the block is written back: it is wanted again (dcm, section 3.2).
paged_core::step paged_core::serve_cooled(std::uint64_t page, page_word w, bool write, trouble& why) noexcept {
  page_group& g = table_.group(page);
  const block b{table_.head(page, w.order()), w.order()};
  page_word head = table_.get(b.first);
  const bool was_writing = w.state() == block_state::writing;
  // What is being written may be changed now, so it stays dirty, and that write-back is in vain.
  const bool dirty = w.dirty() || write || !tracks_;
  if (memory_.map(b.from(), b.bytes(), !dirty) != errc::ok) {
    g.unlock();
    why = {errc::out_of_memory, nullptr, false};
    return step::failed;
  }
  table_.update(b.first, b.order, [&](page_word& p) {
    p.state(block_state::resident);
    p.dirty(dirty);
    p.mapped(true);
  });
  page_word mine = table_.get(page);
  mine.touched(true);
  table_.set(page, mine);
  head = table_.get(b.first);
  head.sampled(false);
  table_.set(b.first, head);
  // It may still be mapped, as it was before, by an unmapping that is on its way.
  if (write && tracks_) memory_.unprotect(b.from(), b.bytes());
  enter(b.first, page_queue::proactive);
  g.unlock();
  count(was_writing ? counts_.writing : counts_.inactive);
  return step::served;
}

fault_action paged_core::settle(std::uint64_t page, const trouble& why) noexcept {
  if (!options_.on_failure) die(page, why);
  const fault_failure f{.address = base() + offset(page),
                        .agent = why.agent != nullptr ? why.agent->url() : "",
                        .code = why.code,
                        .for_room = why.for_room};
  const fault_action a = options_.on_failure(f);
  if (a == fault_action::abort) die(page, why);
  return a;
}

void paged_core::die(std::uint64_t page, const trouble& why) const noexcept {
  std::array<char, 512> text;
  const auto end =
      fmt::format_to_n(text.data(), text.size() - 1,
                       "farmem: paged range {}: the page at {} (offset {}) cannot be {}: {}{}{}. The access can "
                       "neither go on nor be given "
                       "other bytes: aborting. See paged_options::on_failure\n",
                       name_, static_cast<const void*>(base() + offset(page)), offset(page),
                       why.for_room ? "fetched, because no other page can be evicted" : "fetched", to_string(why.code),
                       why.agent != nullptr ? ", agent " : "", why.agent != nullptr ? why.agent->url() : "");
  [[maybe_unused]] const ssize_t n =
      ::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(end.out - text.data()));
  std::abort();
}

bool paged_core::fault_in_place(const void* address, bool write) noexcept {
  const auto page = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base()) / page_bytes;
  for (trouble why; !serve(page, write, why);)
    if (settle(page, why) == fault_action::signal) return false;
  return true;
}

// The page stays absent, and every access to it fails by itself from now on.
void paged_core::poison(std::uint64_t page, const trouble& why) noexcept {
  page_group& g = table_.group(page);
  g.lock();
  if (page_word w = table_.get(page); w.absent() && !w.poisoned()) {
    if (!memory_.poison(offset(page), page_bytes)) die(page, why);
    w.poisoned(true);
    table_.set(page, w);
  }
  g.unlock();
}

// One thread is woken for one fault: `waits` is a descriptor of its own, so that the kernel can choose (epoll_ctl's
// EPOLLEXCLUSIVE).
int paged_core::fault_waiter() const {
  const int waits = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event fault{.events = EPOLLIN | EPOLLEXCLUSIVE, .data = {}}, stop{.events = EPOLLIN, .data = {}};
  if (waits >= 0 && ::epoll_ctl(waits, EPOLL_CTL_ADD, memory_.fd(), &fault) == 0 &&
      ::epoll_ctl(waits, EPOLL_CTL_ADD, stop_fd_, &stop) == 0)
    return waits;
  const int e = errno;
  if (waits >= 0) ::close(waits);
  throw error(errc::out_of_memory, fmt::format("epoll for paged range {}: {}", name_, std::strerror(e)));
}

void paged_core::serve_faults(int waits) noexcept {
  os::name_thread("fm-paged-fault");
  while (!stopping_.load()) {
    epoll_event ready;
    if (::epoll_wait(waits, &ready, 1, -1) != 1) continue;
    // From before the fault is read: until then the kernel takes it back when its page comes otherwise.
    faults_at_work_.fetch_add(1);
    serve_next_fault();
    faults_at_work_.fetch_sub(1);
  }
}

void paged_core::serve_next_fault() noexcept {
  uffd_msg m;
  if (::read(memory_.fd(), &m, sizeof m) != sizeof m) return;  // another thread has it
  if (m.event != UFFD_EVENT_PAGEFAULT) return;
  const std::uint64_t page = (m.arg.pagefault.address - reinterpret_cast<std::uintptr_t>(base())) / page_bytes;
  const bool write = (m.arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0;
  fault_action then = fault_action::signal;
  for (trouble why; !serve(page, write, why);)
    if ((then = settle(page, why)) == fault_action::signal) {
      if (!memory_.can_poison()) die(page, why);
      poison(page, why);
      break;
    }
  // Served by another thread's fault just now, perhaps; nobody may be left asleep.
  memory_.wake(offset(page), page_bytes);
}

}  // namespace fm::detail

// The fault threads: they read faults and serve them, and park an access that waits for an agent, for another access or
// for room longer than a moment. So an agent that does not answer holds up the accesses to its own pages, and no others.
//
//   read ──► go_on ──served, failed──► the thread that touched the page goes on
//              │ ▲
//       parked │ │ its fetch has ended (fetched), or its turn at a fetch slot or again_at has come
//              ▼ │
//            its place in parked_
//
// Invariants
//   - A fault thread has a place before it reads a fault, so what it reads can always be parked. While all places are
//     taken, it reads none: the kernel keeps them.
//   - What is in a place that is `taken` is that thread's alone. Once it is `waiting`, it is any fault thread's.
//   - The end of a parked fetch is heard. The one who parks makes the place `waiting`, then sets slot.parked, then looks
//     whether the request is done. The other one makes the request done, and then looks at slot.parked (fetched). Both
//     change that word in one step. So the first sees that it is done, or the second sees that it is parked, and then
//     whoever it wakes finds the place `waiting`.
//   - Of an access that is tried again at a time, the thread that put it down last knows the time. It sleeps no longer,
//     and before it calls the program's on_failure it has the others look.
//   - Accesses that found no fetch slot of an agent stand in its line (homes/fetch_line.h), so none is overtaken for ever.
//     The first one is tried when there is a slot, and then leaves the line, unless it still has none. Any other one
//     leaves it as soon as another agent has its page, and those behind it move up. Whoever gives a slot or leaves a line
//     wakes a thread while accesses wait in lines, and so does who puts the access down and finds that its turn has come.
//     They are also looked at when others are, every parked_again_at_last at least.
//   - An access that was parked waits in no other way any more: fault threads go through all of them.
//
// A parked access keeps its fetch slot, so the slots that one agent may have (share_of) bound what a silent one costs.
// At a close, what is parked stays where it is; home_.close() ends its fetches, and closing the userfaultfd its threads'
// waiting.
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core.h"

namespace fm::detail {

namespace {

enum : std::uint64_t { on_fault, on_stop, on_parked };

int timeout_ms(time_point until) noexcept {
  if (until == time_point::max()) return -1;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 1000));
}

}  // namespace

// One thread is woken for one fault: `waits` is a descriptor of its own, so that the kernel can choose (epoll_ctl's
// EPOLLEXCLUSIVE).
int paged_core::fault_waiter() const {
  const int waits = ::epoll_create1(EPOLL_CLOEXEC);
  const auto watch = [waits](int fd, std::uint64_t what, std::uint32_t events) {
    epoll_event e{.events = events, .data = {}};
    e.data.u64 = what;
    return ::epoll_ctl(waits, EPOLL_CTL_ADD, fd, &e) == 0;
  };
  if (waits >= 0 && watch(memory_.fd(), on_fault, EPOLLIN | EPOLLEXCLUSIVE) && watch(stop_fd_, on_stop, EPOLLIN) &&
      watch(parked_fd_, on_parked, EPOLLIN))
    return waits;
  const int e = errno;
  if (waits >= 0) ::close(waits);
  throw error(errc::out_of_memory, fmt::format("epoll for paged range {}: {}", name_, std::strerror(e)));
}

void paged_core::serve_faults(int waits) noexcept {
  os::name_thread("fm-paged-fault");
  parked_access* mine = nullptr;
  for (time_point next = time_point::max(); !stopping_.load();) {
    if (mine == nullptr) mine = take_place();
    if (mine == nullptr) {
      std::array<pollfd, 2> others{{{stop_fd_, POLLIN, 0}, {parked_fd_, POLLIN, 0}}};
      ::poll(others.data(), others.size(),
             timeout_ms(std::min(next, clock::now() + paged_limits::parked_again_at_last)));
      hear_parked();
    } else {
      std::array<epoll_event, 3> ready;
      const int n = ::epoll_wait(waits, ready.data(), static_cast<int>(ready.size()), timeout_ms(next));
      for (int i = 0; i < n; ++i) {
        const std::uint64_t what = ready[static_cast<std::size_t>(i)].data.u64;
        if (what == on_parked) hear_parked();
        if (what == on_fault && mine != nullptr && !serve_next_fault(*mine)) mine = nullptr;
      }
    }
    next = parked_count_.load() == 0 ? time_point::max() : go_on_with_parked();
  }
}

bool paged_core::serve_next_fault(parked_access& place) noexcept {
  // From before the fault is read: until then the kernel takes it back when its page comes otherwise.
  faults_at_work_.fetch_add(1);
  uffd_msg m;
  if (::read(memory_.fd(), &m, sizeof m) != sizeof m || m.event != UFFD_EVENT_PAGEFAULT) {  // another thread has it
    faults_at_work_.fetch_sub(1);
    return true;
  }
  access& a = place.what = access();
  a.page = (m.arg.pagefault.address - reinterpret_cast<std::uintptr_t>(base())) / page_bytes;
  a.write = (m.arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0;
  a.may_park = true;
  a.arrived = clock::now();
  a.patience = a.arrived + paged_limits::wait_in_place;
  return serve_or_park(place);
}

bool paged_core::serve_or_park(parked_access& place) noexcept {
  access& a = place.what;
  for (;;) {
    const step s = go_on(a);
    if (s == step::served) break;
    if (s == step::parked) {
      put_down(place);
      return false;
    }
    if (parked_count_.load() != 0) wake_parked();  // on_failure may take its time
    const fault_action then = settle(a.page, a.why);
    if (then == fault_action::signal) {
      if (!memory_.can_poison()) die(a.page, a.why);
      poison(a.page, a.why);
      break;
    }
    a.until = a.room_until = {};
  }
  // Served by another thread's fault just now, perhaps; nobody may be left asleep.
  memory_.wake(offset(a.page), page_bytes);
  faults_at_work_.fetch_sub(1);
  return true;
}

paged_core::parked_access* paged_core::take_place() noexcept {
  for (parked_access& p : parked_) {
    std::uint32_t expected = parked_access::free;
    if (p.state.load(std::memory_order_relaxed) == parked_access::free &&
        p.state.compare_exchange_strong(expected, parked_access::taken, std::memory_order_acquire))
      return &p;
  }
  return nullptr;
}

void paged_core::give_place(parked_access& place) noexcept {
  if (std::exchange(place.counted, false)) parked_count_.fetch_sub(1);
  place.state.store(parked_access::free, std::memory_order_release);
}

void paged_core::put_down(parked_access& place) noexcept {
  fetch_slot* const slot = place.what.fetching ? place.what.op.slot : nullptr;
  const home_agent* const queue = place.what.queue;
  if (!std::exchange(place.counted, true)) parked_count_.fetch_add(1);
  place.state.store(parked_access::waiting, std::memory_order_seq_cst);
  if (queue != nullptr && queue->line.is_first(place.what.position) && has_fetch_slot(*queue)) wake_parked();
  if (slot == nullptr) return;
  // Another thread may go on with it already. Slots live as long as the range: one that is another fetch's by now costs
  // a look in vain.
  slot->parked.exchange(fetch_slot::is_parked, std::memory_order_seq_cst);
  if (slot->request.done()) wake_parked();
}

bool paged_core::is_due(const access& a, time_point now) const noexcept {
  if (a.fetching) return a.op.slot->request.done();
  if (a.queue == nullptr) return now >= a.again_at;
  // Without a connection no slot is needed to find that out.
  if (home_.reader_of(a.page).agent != a.queue) return true;  // another one has it, too
  return a.queue->line.is_first(a.position) && (has_fetch_slot(*a.queue) || !a.queue->up());
}

time_point paged_core::go_on_with_parked() noexcept {
  time_point next = time_point::max();
  for (parked_access& p : parked_) {
    std::uint32_t expected = parked_access::waiting;
    if (p.state.load(std::memory_order_relaxed) != parked_access::waiting ||
        !p.state.compare_exchange_strong(expected, parked_access::taken, std::memory_order_acquire))
      continue;
    access& a = p.what;
    const time_point now = clock::now();
    if (is_due(a, now)) {
      a.patience = now;
      if (serve_or_park(p))
        give_place(p);
      else
        next = std::min(next, clock::now() + paged_limits::parked_again_after);
    } else {
      if (!a.fetching)
        next = std::min(next, a.queue != nullptr ? now + paged_limits::parked_again_at_last : a.again_at);
      put_down(p);
    }
  }
  return next;
}

void paged_core::fetched(fabric::request& r) noexcept {
  auto* const slot = static_cast<fetch_slot*>(r.context);
  switch (slot->parked.fetch_add(0, std::memory_order_seq_cst)) {
    case fetch_slot::is_parked: return slot->core->wake_parked();
    case fetch_slot::is_late: return slot->core->ahead_.wake();
    default: return;
  }
}

void paged_core::wake_parked() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(parked_fd_, &one, sizeof one);
}

void paged_core::hear_parked() noexcept {
  std::uint64_t times = 0;
  [[maybe_unused]] const ssize_t n = ::read(parked_fd_, &times, sizeof times);
}

}  // namespace fm::detail

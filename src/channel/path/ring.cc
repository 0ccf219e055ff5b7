// Writing and reading records in shared memory, and sleeping on its bells; see ring.h. Owns the check of everything
// that the other process can change: each word is read once, and used only if it is possible. `sender` and `receiver`
// call it.
#include "ring.h"
#include "base/channel_limits.h"

#include <algorithm>
#include <climits>
#include <new>
#include <utility>

#include "credit.h"

namespace fm::detail {

namespace {

constexpr std::uint64_t wrap_mark = ~std::uint64_t{0};  ///< in place of a size: the rest up to the end is passed over

std::atomic<std::uint64_t>& size_at(const ring_place& p, std::uint64_t position) noexcept {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(p.data + position);
}

void ring_bell(std::atomic<std::uint32_t>& bell) noexcept {
  bell.fetch_add(1, std::memory_order_seq_cst);
  os::futex_wake_shared(bell, INT_MAX);
}

void wake(std::atomic<std::uint32_t>& waits, std::atomic<std::uint32_t>& bell) noexcept {
  if (waits.load(std::memory_order_seq_cst) == 0) return;
  waits.store(0, std::memory_order_seq_cst);
  ring_bell(bell);
}

/// Polls, then sleeps on the bell, unless `changed`.
template <class Changed>
void wait_on(std::atomic<std::uint32_t>& bell, std::atomic<std::uint32_t>& waits, std::uint32_t seen,
             time_point deadline, const Changed& changed) noexcept {
  const auto over = [&] { return bell.load(std::memory_order_seq_cst) != seen || changed(); };
  static os::spin_place place;
  {
    os::spin spin(place, channel_limits::ring_spin_for);
    do
      if (over()) return;
    while (spin.again());
  }
  waits.store(1, std::memory_order_seq_cst);
  if (over()) return;
  os::futex_wait_shared(bell, seen, std::min(deadline, clock::now() + channel_limits::ring_wait_max));
}

}  // namespace

// ---- writing ----

bool ring_writer::broken() const noexcept {
  const std::uint64_t taken = p_.shared->taken.load(std::memory_order_seq_cst);
  return taken % 64 != 0 || written_.load(std::memory_order_relaxed) - taken > p_.bytes;
}

std::uint64_t ring_writer::free_bytes() const noexcept {
  const std::uint64_t under_way =
      written_.load(std::memory_order_relaxed) - p_.shared->taken.load(std::memory_order_seq_cst);
  return under_way > p_.bytes ? 0 : p_.bytes - under_way;
}

ring_writer::plan ring_writer::plan_for(std::uint64_t bytes, std::uint64_t reserve) const noexcept {
  const std::uint64_t n = record(bytes), free = free_bytes(), to_end = p_.bytes - place_;
  if (free == p_.bytes && place_ >= std::min(channel_limits::ring_restart_from, p_.bytes / 4))
    return {n + reserve <= free, start::again};
  if (n <= to_end) return {n + reserve <= free, start::here};
  return {n + to_end + reserve <= free, start::passing_the_end};
}

bool ring_writer::has_room(std::uint64_t bytes, std::uint64_t reserve) const noexcept {
  return plan_for(bytes, reserve).fits;
}

std::span<std::byte> ring_writer::room(std::uint64_t bytes, std::uint64_t reserve) noexcept {
  const plan p = plan_for(bytes, reserve);
  if (!p.fits) return {};
  next_ = p.from;
  return {p_.data + (next_ == start::here ? place_ : 0) + 8, bytes};
}

void ring_writer::publish(std::uint64_t bytes) noexcept {
  std::uint64_t written = written_.load(std::memory_order_relaxed);
  if (next_ != start::here) {
    if (next_ == start::again) {
      p_.shared->again.store(written, std::memory_order_relaxed);
    } else {
      size_at(p_, place_).store(wrap_mark, std::memory_order_relaxed);
      written += p_.bytes - place_;
    }
    place_ = 0;
    next_ = start::here;
  }
  size_at(p_, place_).store(bytes, std::memory_order_relaxed);
  place_ = (place_ + record(bytes)) % p_.bytes;
  written += record(bytes);
  written_.store(written, std::memory_order_relaxed);
  p_.shared->written.store(written, std::memory_order_seq_cst);
  wake(p_.shared->reader_waits, p_.shared->reader_bell);
}

part_answers ring_writer::answers() noexcept {
  const ring_shared& s = *p_.shared;
  part_answers a;
  a.bytes = s.bytes.load(std::memory_order_seq_cst);
  a.parts = s.parts.load(std::memory_order_seq_cst);
  a.judged = s.judged.load(std::memory_order_seq_cst);
  a.refused = s.refused.load(std::memory_order_seq_cst);  // after the verdicts, and stored before them
  return a;
}

void ring_writer::wait(std::uint32_t seen, const part_answers& before, time_point deadline) noexcept {
  wait_on(p_.shared->writer_bell, p_.shared->writer_waits, seen, deadline, [&] {
    const part_answers now = answers();
    return now.bytes != before.bytes || now.parts != before.parts || now.judged != before.judged;
  });
}

void ring_writer::kick() noexcept { ring_bell(p_.shared->writer_bell); }

// ---- reading ----

ring_reader::found ring_reader::next(std::uint64_t most, std::span<const std::byte>& message) noexcept {
  std::uint64_t left = p_.shared->written.load(std::memory_order_seq_cst) - taken_;
  if (left == 0) return found::nothing;
  if (left > p_.bytes || left % 64 != 0) return found::broken;
  std::uint64_t at = p_.shared->again.load(std::memory_order_relaxed) == taken_ ? 0 : place_, skip = 0;
  std::uint64_t size = size_at(p_, at).load(std::memory_order_relaxed);
  if (size == wrap_mark) {
    skip = p_.bytes - at;
    if (skip >= left) return found::broken;
    left -= skip;
    at = 0;
    size = size_at(p_, at).load(std::memory_order_relaxed);
  }
  if (size == 0 || size > most) return found::broken;
  const std::uint64_t n = round_up(8 + size, 64);
  if (n > left || n > p_.bytes - at) return found::broken;
  passing_ = skip + n;
  next_place_ = (at + n) % p_.bytes;
  message = {p_.data + at + 8, size};
  return found::message;
}

void ring_reader::release() noexcept {
  taken_ += passing_;
  place_ = next_place_;
  passing_ = 0;
  p_.shared->taken.store(taken_, std::memory_order_seq_cst);
}

bool ring_reader::answer(const part_answers& a) noexcept {
  ring_shared& s = *p_.shared;
  s.bytes.store(a.bytes, std::memory_order_seq_cst);
  s.parts.store(a.parts, std::memory_order_seq_cst);
  s.refused.store(a.refused, std::memory_order_seq_cst);
  s.judged.store(a.judged, std::memory_order_seq_cst);
  wake(s.writer_waits, s.writer_bell);
  return true;
}

void ring_reader::wait(std::uint32_t seen, time_point deadline) noexcept {
  wait_on(p_.shared->reader_bell, p_.shared->reader_waits, seen, deadline,
          [&] { return p_.shared->written.load(std::memory_order_seq_cst) != taken_; });
}

void ring_reader::kick() noexcept { ring_bell(p_.shared->reader_bell); }

// ---- both ----

/// Beside the window: what is lost at the end, the room of a whole part that is then a short one, rounding, and the
/// reserve.
std::uint64_t ring_pair::bytes_for(std::uint64_t window, std::uint64_t parts, std::uint64_t part) noexcept {
  return round_up(window + 2 * (part + 256) + 128 * parts + 2 * ring_reserve, page_bytes);
}

ring_pair::ring_pair(std::uint64_t bytes)
    : memory_("farmem channel", whole(bytes)), out(place(0, bytes)), in(place(1, bytes)) {
  for (const std::uint64_t which : {0, 1}) new (place(which, bytes).shared) ring_shared;
}

ring_pair::ring_pair(os::memory_file memory, std::uint64_t bytes)
    : memory_(std::move(memory)), out(place(1, bytes)), in(place(0, bytes)) {}

std::unique_ptr<receive_credit> ring_pair::make_credit(const channel_terms& terms) const {
  return std::make_unique<credit_by_counters>(terms);
}

ring_place ring_pair::place(std::uint64_t which, std::uint64_t bytes) const noexcept {
  std::byte* const at = memory_.base() + which * (page_bytes + bytes);
  return {reinterpret_cast<ring_shared*>(at), at + page_bytes, bytes};
}

}  // namespace fm::detail

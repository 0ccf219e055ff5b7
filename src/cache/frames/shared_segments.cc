// Cutting pieces, keeping tails, and handing segments to their queues; see shared_segments.h.
//
// Invariant: a segment in filling_ counts its pieces and its tails; it leaves filling_ when it enters its queue.
#include "shared_segments.h"

#include <algorithm>
#include <utility>

#include "retire_frame.h"

namespace fm::detail {

void make_filler(char* at, std::uint64_t bytes) noexcept {
  FM_ASSERT(bytes % frame::unit_bytes == 0, "fillers are whole units");
  if (bytes == 0) return;
  reuse_memory(at, std::min<std::uint64_t>(bytes, sizeof(frame_prefix)));
  frame_prefix& px = *reinterpret_cast<frame_prefix*>(at);
  px.shape.store(static_cast<std::uint32_t>(bytes / frame::unit_bytes), std::memory_order_relaxed);
  if (bytes < sizeof(frame_prefix)) return;
  px.pins.store(0, std::memory_order_relaxed);
  px.header.store(0, std::memory_order_relaxed);
}

shared_segments::shared_segments(arena& memory, const replacement_policy& policy) noexcept
    : arena_(memory), policy_(policy) {
  filling_.reserve(memory.capacity_most() + std::size_t{2});
  tails_.reserve(limits::tails_max);
}

piece shared_segments::cut(segment& s, std::uint64_t bytes) noexcept {
  const piece p{&s, s.base + s.used, s.base + s.used + bytes, s.base + s.used};
  s.used += bytes;
  ++s.pieces;
  return p;
}

bool shared_segments::take_tail(piece& p, fill_kind kind, std::uint64_t need, std::uint64_t wish) {
  const std::uint64_t bytes = std::max(need, wish);
  for (std::size_t i = tails_.size(), looks = 0; i-- > 0 && looks < limits::tails_looked_at; ++looks) {
    piece& t = tails_[i];
    segment& s = *t.seg;
    if (s.kind != kind || t.room() < need) continue;
    p = t;
    ++s.pieces;
    if (t.room() > bytes + limits::tail_min) {
      p.end = t.at = t.warm = p.at + bytes;
    } else {
      --s.tails;
      tails_.erase(tails_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return true;
  }
  return false;
}

shared_segments::got shared_segments::exchange(piece& p, fill_kind wanted, std::uint64_t need, std::uint64_t wish,
                                               std::uint32_t leave) {
  const fill_kind kind = kind_of(wanted);
  segment*& open = open_[static_cast<std::size_t>(kind)];
  const std::uint64_t bytes = std::max(need, wish);
  // Who may wait takes nothing that somebody has opened who may not: the reserve is for those.
  if (arena_.available() < leave) return got::nothing;
  // A thread that is alone goes on in the same piece.
  if (p.seg && p.seg == open && p.end == open->base + open->used &&
      static_cast<std::uint64_t>(end_of(*open) - p.at) >= need) {
    p.end = std::max(p.end, p.at + std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(end_of(*open) - p.at)));
    open->used = static_cast<std::uint64_t>(p.end - open->base);
    return got::room;
  }
  piece next;
  got result = got::room;
  if (!take_tail(next, kind, need, wish)) {
    if (!open || static_cast<std::uint64_t>(end_of(*open) - open->base) - open->used < need) {
      if (!open_next(kind, leave)) return got::nothing;
      result = got::segment;
    }
    next =
        cut(*open, std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(end_of(*open) - open->base) - open->used));
  }
  give_back(p);
  p = next;
  return result;
}

bool shared_segments::open_next(fill_kind kind, std::uint32_t leave) {
  segment* const s = arena_.take(1, leave);
  if (!s) return false;
  s->used = 8;
  s->pieces = s->tails = 0;
  s->returned.store(0, std::memory_order_relaxed);
  s->closing = false;
  s->kind = kind;
  s->warm = kind == fill_kind::made;
  segment*& open = open_[static_cast<std::size_t>(kind)];
  segment* const full = std::exchange(open, s);
  filling_.push_back(s);
  if (full) retire_if_done(*full);
  for (std::size_t i = 0; filling_.size() > filling_max() && i < filling_.size();) {
    segment& oldest = *filling_[i];
    const std::size_t before = filling_.size();
    if (!is_open(oldest) && !oldest.closing) start_closing(oldest);
    if (filling_.size() == before) ++i;
  }
  return true;
}

void shared_segments::give_back(piece& p) {
  if (!p.seg) return;
  segment& s = *p.seg;
  --s.pieces;
  s.warm |= p.warm != p.at && s.kind == fill_kind::fetched;
  p.warm = p.at;
  if (p.end == s.base + s.used) {
    s.used = static_cast<std::uint64_t>(p.at - s.base);
  } else if (s.closing || p.room() < limits::tail_min || tails_.size() == limits::tails_max) {
    make_filler(p.at, p.room());
    s.filler += p.room();
  } else {
    ++s.tails;
    tails_.push_back(p);
  }
  p = {};
  retire_if_done(s);
}

void shared_segments::start_closing(segment& s) {
  s.closing = true;
  std::erase_if(tails_, [&](const piece& t) {
    if (t.seg != &s) return false;
    make_filler(t.at, t.room());
    s.filler += t.room();
    --s.tails;
    return true;
  });
  retire_if_done(s);
}

void shared_segments::retire_if_done(segment& s) {
  if (s.pieces + s.tails != 0 || is_open(s)) return;
  std::erase(filling_, &s);
  if (s.used == 8) return arena_.release(s);
  const std::uint64_t returned = s.returned.load(std::memory_order_relaxed);
  arena_.retire(s, s.used,
                policy_.promotes(returned, s.used, arena_.trial_overflows(), arena_.wanted(), next_random(random_)));
}

void shared_segments::close() {
  open_ = {};
  for (std::size_t i = 0; i < filling_.size();) {
    const std::size_t before = filling_.size();
    start_closing(*filling_[i]);
    if (filling_.size() == before) ++i;
  }
}

std::size_t shared_segments::lingering() const noexcept {
  return filling_.size() - open_.size() + static_cast<std::size_t>(std::count(open_.begin(), open_.end(), nullptr));
}

}  // namespace fm::detail

// Objects that expire: their times, the queue of frames that have some, and freeing them in steps; members of
// pool_blocks.
//
// Times are the agent's alone, in ms of its clock, and rounded up. Each frame has those of its objects, and the pool
// queues frames by their soonest. A time that goes, or that is put off, leaves the frame queued too early; the next step
// that comes to the frame corrects that. So the queue changes only where a frame's soonest time becomes earlier, where
// it gets its first one, and where it loses its last one.
// Times are set and dropped with the structure shared; steps have it exclusively.
#include "blocks.h"

namespace fm::agent {

using blocks::object_header;

namespace {

using std::chrono::milliseconds;

duration time_of(const environment* agent) {
  return (agent != nullptr ? agent->now() : clock::now()).time_since_epoch();
}

}  // namespace

expiry pool_blocks::now_ms() const {
  return static_cast<expiry>(std::chrono::floor<milliseconds>(time_of(options_.agent)).count());
}

expiry pool_blocks::expiry_in(std::uint64_t ms) const {
  return static_cast<expiry>(std::chrono::ceil<milliseconds>(time_of(options_.agent)).count()) + ms;
}

bool pool_blocks::has_expired(const frame& f, std::uint32_t slot) const {
  if (f.expiries == nullptr) return false;
  const expiry at = f.expiries->of(slot);
  return at != no_expiry && at <= now_ms();
}

errc pool_blocks::expire_after(const where& at, std::uint64_t ms, const asked_change& by) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  if (by.has_passed()) return errc::timed_out;
  pool_log::entry note;
  const expiry expires = ms != 0 ? expiry_in(ms) : 0;
  if (writes_down(*o.f))
    note = pool_log::make(record_kind::expiry, expiry_record{by.origin, o.f->number, o.slot, expires});
  if (log_ != nullptr) (void)write_down(std::move(note));
  if (expires != 0)
    set_expiry(*o.f, o.slot, expires);
  else
    drop_expiry(*o.f, o.slot);
  return errc::ok;
}

// ---- times of a frame ----

void pool_blocks::set_expiry(frame& f, std::uint32_t slot, expiry time) {
  std::uint64_t before = 0;
  if (f.expiries == nullptr)
    f.expiries = std::make_unique<frame_expiries>();
  else
    before = f.expiries->bytes();
  if (f.expiries->set(slot, time)) expiring_.fetch_add(1, std::memory_order_relaxed);
  frame_books_.fetch_add(f.expiries->bytes() - before, std::memory_order_relaxed);
  if (f.expiries->soonest() < f.expiries->queued) queue_expiries(f);
}

void pool_blocks::drop_expiry(frame& f, std::uint32_t slot) {
  if (f.expiries == nullptr) return;
  const std::uint64_t before = f.expiries->bytes();
  if (!f.expiries->drop(slot)) return;
  expiring_.fetch_sub(1, std::memory_order_relaxed);
  std::uint64_t after = f.expiries->bytes();
  if (f.expiries->size() == 0) {
    queue_expiries(f);
    f.expiries.reset();
    after = 0;
  }
  frame_books_.fetch_sub(before - after, std::memory_order_relaxed);
}

void pool_blocks::move_expiry(frame& from, std::uint32_t slot, frame& to, std::uint32_t to_slot) {
  if (from.expiries == nullptr) return;
  const expiry at = from.expiries->of(slot);
  if (at == no_expiry) return;
  set_expiry(to, to_slot, at);
  drop_expiry(from, slot);
}

// ---- the queue ----

void pool_blocks::queue_expiries(frame& f) {
  const std::lock_guard lock(expiry_mutex_);
  frame_expiries& e = *f.expiries;
  if (e.queued != no_expiry) expiry_queue_.erase({e.queued, f.number});
  e.queued = e.soonest();
  if (e.queued != no_expiry) expiry_queue_.emplace(e.queued, f.number);
  soonest_.store(expiry_queue_.empty() ? no_expiry : expiry_queue_.begin()->first, std::memory_order_release);
}

pool_blocks::frame* pool_blocks::due_frame(expiry now) {
  const std::lock_guard lock(expiry_mutex_);
  if (expiry_queue_.empty() || expiry_queue_.begin()->first > now) return nullptr;
  return all_[expiry_queue_.begin()->second].get();
}

std::uint64_t pool_blocks::expiry_queue_bytes() const {
  constexpr std::uint64_t links = 4 * sizeof(void*);  // of a tree: three, and a colour
  const std::lock_guard lock(expiry_mutex_);
  return expiry_queue_.size() * (sizeof(std::pair<expiry, std::uint32_t>) + links);
}

// ---- steps ----

bool pool_blocks::expire(std::uint32_t most) {
  const expiry now = now_ms();
  for (; most > 0; --most) {
    frame* const f = due_frame(now);
    if (f == nullptr) return false;
    frame_guard inside = enter(*f);
    if (f->expiries->soonest() > now) {
      queue_expiries(*f);
      continue;
    }
    const std::uint32_t slot = f->expiries->soonest_slot();
    const object_header h = header_of(*f, slot);
    const blocks::identity id{h.vblock, h.generation, h.index};
    const bool is_known = is_resident(*f, slot, h) && h.vblock < vblocks_.size() &&
                          vblocks_[h.vblock].frame == f->number &&
                          (!classes_[f->size_class].random() || h.index / 64 < f->ids.words().size());
    if (!is_known) {  // not what the agent has written there
      drop_expiry(*f, slot);
      continue;
    }
    vacate(*f, slot, id, h.bytes, {});
    ++expired_;
    const bool listed = f->listed;
    inside.unlock();
    if (!listed) list_room(*f);
    bury_if_empty(*f, false);
  }
  return soonest_expiry() <= now;
}

}  // namespace fm::agent

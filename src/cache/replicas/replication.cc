// The steps of completing a set; see replication.h.
//
// Invariant: what is read from an agent is checked before it is sent on: the slot, the type and the length.
#include "cache/replicas/replication.h"
#include "base/log.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "os/os.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "cache/frames/frame_contents.h"

namespace fm::detail {

// At most limits::imports_in_flight of them. Acknowledgements come on threads of the session.
struct replication::imports {
  imports(remote::agent_session& member, const replication& of, counters& c) noexcept
      : to(member), owner(of), counts(c) {}
  imports(const imports&) = delete;
  imports& operator=(const imports&) = delete;

  bool add(const char* home_copy, std::uint64_t bytes) {
    if (open && !open->fits(bytes)) submit();
    while (!open) {
      if (!await([this] { return in_flight < limits::imports_in_flight; }) || is_late() || has_failed()) return false;
      errc why = errc::ok;
      open = to.begin_batch(bytes, clock::now() + std::chrono::milliseconds(10), why);
      if (!open && why != errc::timed_out) return false;
    }
    copy_bytes(open->data + open->used, home_copy, bytes);
    open->used += static_cast<std::uint32_t>(bytes);
    ++open->count;
    counts.objects.fetch_add(1, std::memory_order_relaxed);
    counts.bytes.fetch_add(bytes, std::memory_order_relaxed);
    return true;
  }
  void submit() {
    if (!open) return;
    remote::batch* const b = std::exchange(open, nullptr);
    b->imports = true;
    b->owner = this;
    b->on_acknowledged = [](remote::batch& of, errc code) noexcept {
      auto& self = *static_cast<imports*>(of.owner);
      const std::lock_guard lock(self.mutex);
      self.failed |= code != errc::ok;
      --self.in_flight;
      self.moved = clock::now();
      self.changed.notify_all();
    };
    {
      const std::lock_guard lock(mutex);
      ++in_flight;
      moved = clock::now();
    }
    to.submit(b);
  }
  /// Everything is indexed there.
  bool finish() {
    submit();
    return await([this] { return in_flight == 0; }) && !has_failed();
  }
  [[nodiscard]] bool has_failed() {
    const std::lock_guard lock(mutex);
    return failed;
  }
  /// Nothing has moved for too long, or the heap closes.
  [[nodiscard]] bool is_late() {
    const std::lock_guard lock(mutex);
    return owner.ends() || clock::now() - moved > limits::import_within;
  }
  /// False when it gets late.
  template <class Done>
  bool await(Done&& done) {
    std::unique_lock lock(mutex);
    while (!done()) {
      if (owner.ends() || clock::now() - moved > limits::import_within) return false;
      lock.unlock();
      to.poll();
      lock.lock();
      changed.wait_for(lock, std::chrono::milliseconds(1), done);
    }
    return true;
  }

  remote::agent_session& to;
  const replication& owner;
  counters& counts;
  remote::batch* open = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::uint32_t in_flight = 0;
  bool failed = false;
  time_point moved = clock::now();
};

replication::replication(object_cache& cache, const std::atomic<bool>& stopping) noexcept
    : cache_(cache), stopping_(stopping) {}
replication::~replication() = default;

// Copying a tablet takes up to seconds. Threads that wait for a failover would wait for it.
bool replication::ends() const noexcept {
  return stopping_.load(std::memory_order_acquire) || cache_.closed() || cache_.losses().is_look_due();
}

bool replication::join(std::uint32_t tablet, std::uint32_t member) {
  evictor& eviction = cache_.eviction();
  remote::agent_session& to = *cache_.agents()[member];
  if (to.replicate_tablets(tablet, 1) != errc::ok) return false;
  replica_set set = replica_set::of_tablet(tablet);
  remote::agent_session& from = *cache_.agents()[set.primary()];
  const auto settled = [&](std::uint64_t number) {
    return eviction.await_batches(number, set.primary(), clock::now() + limits::batches_end_within, true);
  };
  eviction.begin_join();
  set.begin_joining(member);
  const std::uint64_t before = eviction.change_sets([&] { set.store(tablet); });
  // What goes wrong, for the log; null: nothing.
  const char* wrong = nullptr;
  try {
    wrong = !settled(before) ? "what was sent before is not settled" : copy(tablet, from, to);
  } catch (const std::bad_alloc&) {
    wrong = "there is no memory";
  }
  replica_set without = set;
  without.remove(member);
  if (!wrong) {
    set.add(member);  // on probation
    const std::uint64_t joined = eviction.change_sets([&] { set.store(tablet); });
    if (!settled(joined)) wrong = "what was sent meanwhile is not settled";
    if (!wrong && (eviction.join_missed() || to.lost())) wrong = "it missed a batch";
  }
  if (!wrong) {
    set.end_joining();
    eviction.change_sets([&] { set.store(tablet); });
    counts.joined.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  counts.failed.fetch_add(1, std::memory_order_relaxed);
  eviction.change_sets([&] { without.store(tablet); });
  if (!to.lost()) to.replicate_tablets(tablet, 1);  // leaves nothing behind
  log::warn("{} does not become a replica of tablet {} of {}: {}", to.url(), tablet, from.url(), wrong);
  return false;
}

// ---- what the primary has ----

// In pieces: an agent that is busy with one long answer seems silent.
bool replication::read_entries(std::uint32_t tablet, remote::agent_session& of) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  std::vector<word_t> some;
  entries_.clear();
  while (entries_.size() < tablet_slots && !ends()) {
    const errc e = of.read_entries(first + entries_.size(), limits::entries_read_at_once, some);
    if (e != errc::ok || some.size() != limits::entries_read_at_once) return false;
    entries_.insert(entries_.end(), some.begin(), some.end());
  }
  return entries_.size() == tablet_slots;
}

bool replication::list(std::uint32_t tablet, remote::agent_session& from) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  if (!read_entries(tablet, from)) return false;
  all_.clear();
  for (std::uint64_t i = 0; i < tablet_slots; ++i)
    if (word::is_remote(entries_[i])) all_.push_back({home_address::unpack(entries_[i]), first + i});
  // As they lie there, so that one read brings many, and so that they lie together at the new member, too.
  std::sort(all_.begin(), all_.end(), [](const stored& a, const stored& b) {
    return a.at.region != b.at.region ? a.at.region < b.at.region : a.at.offset < b.at.offset;
  });
  return true;
}

const char* replication::copy(std::uint32_t tablet, remote::agent_session& from, remote::agent_session& to) {
  if (!list(tablet, from)) return "its entries cannot be read";
  if (mutated(mutation::join_unfinished)) return nullptr;
  buffer_.resize(limits::import_read_bytes);
  abandoned_.reserve(abandoned_.size() + 1);
  auto out = std::make_unique<imports>(to, *this, counts);
  bool sent = false;
  try {
    std::size_t i = 0;
    for (std::size_t next = i; i < all_.size(); i = next)
      if ((next = copy_some(i, from, *out)) == i) break;
    sent = i == all_.size() && out->finish();
  } catch (...) {
    abandon(std::move(out));  // its batches are on their way
    throw;
  }
  if (!sent) abandon(std::move(out));
  return !sent ? "a copy cannot be read or sent" : has_all(tablet, to) ? nullptr : "some copies did not arrive";
}

// The session acknowledges what is on its way at the latest when it is closed, which is after the last step. There is room
// for one more.
void replication::abandon(std::unique_ptr<imports> given_up) noexcept {
  std::erase_if(abandoned_, [](const std::unique_ptr<imports>& i) {
    const std::lock_guard lock(i->mutex);
    return i->in_flight == 0;
  });
  given_up->submit();
  abandoned_.push_back(std::move(given_up));
}

std::size_t replication::copy_some(std::size_t i, remote::agent_session& from, imports& to) {
  const home_address first = all_[i].at;
  const auto end_of = [](const home_address& a) { return a.offset + size_class::bytes(a.size_class); };
  // Beyond what is readable as a whole, batches that are being built lie between those that are indexed.
  const std::uint64_t readable_end = from.readable(first.region);
  const auto goes_on_at = [&](const home_address& a, std::uint64_t until) {
    return a.region == first.region && a.generation == first.generation && end_of(a) - first.offset <= buffer_.size() &&
           (end_of(a) <= readable_end || a.offset == until);
  };
  std::size_t end = i;
  std::uint64_t bytes = 0;
  for (; end < all_.size() && goes_on_at(all_[end].at, first.offset + bytes); ++end)
    bytes = std::max(bytes, end_of(all_[end].at) - first.offset);
  fabric::request r;
  bool readable = bytes != 0 && (from.region_generation(first.region) == first.generation ||
                                 from.learn_region(first.region) == errc::ok);
  if (readable) {
    // The region stays until the read has ended, as that of a miss does.
    fetch& hold = cache_.here().waited;
    {
      const section in_section;
      readable = from.prepare_read(r, first, buffer_.data(), bytes);
      if (readable) hold.posted_at.store(this_thread.epoch.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    }
    if (readable) {
      r.deadline = clock::now() + limits::import_within;
      from.session().post(r);
      from.session().wait(r);
      hold.posted_at.store(0, std::memory_order_seq_cst);
      readable = r.status == errc::ok;
    }
  }
  const std::uint64_t got = readable ? r.bytes() : 0;
  if (end == i) end = i + 1;  // larger than the buffer
  for (std::size_t k = i; k < end; ++k) {
    if (ends()) return i;
    const std::uint64_t at = all_[k].at.offset - first.offset;
    const char* const p = reinterpret_cast<const char*>(buffer_.data()) + at;
    std::uint64_t h = 0, size = 0;
    if (at + header::bytes <= got) {
      std::memcpy(&h, p, sizeof h);
      if (header::slot(h) == all_[k].slot) size = home_bytes(h, p + header::bytes, got - at);
    }
    const bool added = size != 0 && at + size <= got ? to.add(p, size) : copy_one(all_[k].slot, from, to);
    if (!added) return i;
  }
  return end;
}

// By slot: of what has moved since, and of what is larger than the buffer or in a region that is not known here.
bool replication::copy_one(slot_t slot, remote::agent_session& from, imports& to) {
  const remote::slot_answer a =
      from.fetch_slot(slot, false, limits::answer_bytes_max, clock::now() + limits::import_within);
  if (a.status != errc::ok) return false;
  const auto whole = [&](const char* p, std::uint64_t bytes) {
    std::uint64_t h = 0;
    if (bytes < header::bytes) return std::uint64_t{0};
    std::memcpy(&h, p, sizeof h);
    const std::uint64_t size = header::slot(h) == slot ? home_bytes(h, p + header::bytes, bytes) : 0;
    return size <= bytes ? size : 0;
  };
  const char* const copy = reinterpret_cast<const char*>(a.copy.data());
  if (const std::uint64_t size = whole(copy, a.copy.size()); size != 0) return to.add(copy, size);
  if (!word::is_remote(a.entry)) return false;
  const home_address at = home_address::unpack(a.entry);
  if (from.region_generation(at.region) != at.generation && from.learn_region(at.region) != errc::ok) return false;
  std::vector<std::byte> large(size_class::bytes(at.size_class));
  fabric::request r;
  fetch& hold = cache_.here().waited;
  {
    const section in_section;
    if (!from.prepare_read(r, at, large.data(), large.size())) return false;
    hold.posted_at.store(this_thread.epoch.load(std::memory_order_relaxed), std::memory_order_seq_cst);
  }
  r.deadline = clock::now() + limits::import_within;
  from.session().post(r);
  from.session().wait(r);
  hold.posted_at.store(0, std::memory_order_seq_cst);
  const char* const p = reinterpret_cast<const char*>(large.data());
  const std::uint64_t size = r.status == errc::ok ? whole(p, r.bytes()) : 0;
  return size != 0 && to.add(p, size);
}

bool replication::has_all(std::uint32_t tablet, remote::agent_session& of) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  if (!read_entries(tablet, of)) return false;
  return std::all_of(all_.begin(), all_.end(),
                     [&](const stored& s) { return word::is_remote(entries_[s.slot - first]); });
}

}  // namespace fm::detail

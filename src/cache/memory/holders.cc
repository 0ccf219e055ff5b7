// Counting holders of memory, and putting them into words; see holders.h.
//
// Invariant: a segment is walked only between two steps of eviction, while no fetch is in flight into it, and in a
// section, so that its frames stay.
#include "cache/memory/holders.h"
#include "base/log.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace fm::detail {

namespace {

struct held {
  std::uint64_t objects = 0, bytes = 0;
  void add(std::uint64_t frame_bytes) noexcept {
    ++objects;
    bytes += frame_bytes;
  }
};

struct census {
  held pinned;
  std::vector<held> unwritten;  ///< by agent
  bool whole = true;            ///< all frames were looked at
};

void look_at(char* payload, census& out) {
  const frame_prefix& px = frame::prefix(payload);
  const slot_t slot = header::slot(px.header.load(std::memory_order_relaxed));
  if (slot == 0 || slot >= hit.slots) return;
  const word_t w = word_at(slot).load(std::memory_order_acquire);
  if (!word::is_resident(w) || word::payload(w) != payload) return;
  const std::uint64_t bytes = frame::total_bytes_of(payload);
  if (px.pins.load(std::memory_order_relaxed) != 0) out.pinned.add(bytes);
  const bool writing = (px.shape.load(std::memory_order_relaxed) & frame::writing_bit) != 0;
  const std::uint32_t agent = tablet_info_of(slot).agent.load(std::memory_order_relaxed);
  if ((writing || !word::is_clean(w)) && agent < out.unwritten.size()) out.unwritten[agent].add(bytes);
}

/// Calls visit(payload) with the frames of a segment that is full, until it returns false. Whether it never did.
template <class Visit>
bool each_frame(const segment& s, Visit&& visit) {
  const char* const end = s.base + s.used;
  for (char* at = s.base + 8; at < end;) {
    __builtin_prefetch(at + limits::prefetch_bytes);
    char* const payload = at + sizeof(frame_prefix);
    const std::uint64_t total = frame::total_bytes_of(payload);
    FM_ASSERT(total != 0, "a frame has a size");
    at += total;
    if (at > payload && !visit(payload)) return false;  // and not a filler
  }
  return true;
}

census count_frames(object_cache& cache) {
  census out;
  out.unwritten.resize(cache.agents().size());
  const auto no_step = cache.eviction().hold();
  const section in_section;
  std::vector<const segment*> filled;
  cache.memory().for_each([&](const segment& s) {
    const segment_state state = s.state.load(std::memory_order_relaxed);
    const bool being_filled = state == segment_state::filling || s.inflight.load(std::memory_order_acquire) != 0;
    if (!being_filled && s.base != nullptr) filled.push_back(&s);
  });
  std::uint64_t looked_at = 0;
  const auto look = [&](char* payload) {
    if (++looked_at > limits::frames_counted_max) return false;
    look_at(payload, out);
    return true;
  };
  for (const segment* s : filled) {
    if (each_frame(*s, look)) continue;
    out.whole = false;
    break;
  }
  return out;
}

struct open_scopes {
  std::vector<epochs::section_site> sites;  ///< oldest first
  std::size_t sections = 0;                 ///< threads inside of any section
};

open_scopes find_scopes() {
  open_scopes out;
  epochs::for_each_thread(
      [](thread_state& t, void* context) {
        auto& to = *static_cast<open_scopes*>(context);
        const std::uint64_t e = t.epoch.load(std::memory_order_acquire);
        if (e == 0) return;
        ++to.sections;
        const std::uint64_t now = epochs::current.load(std::memory_order_relaxed);
        if (const char* file = t.file.load(std::memory_order_relaxed))
          to.sites.push_back({file, t.line.load(std::memory_order_relaxed), now - std::min(e, now)});
      },
      &out);
  std::sort(out.sites.begin(), out.sites.end(), [](const auto& a, const auto& b) { return a.epochs > b.epochs; });
  return out;
}

}  // namespace

std::string describe_holders(object_cache& cache) {
  std::string out;
  const auto to = std::back_inserter(out);
  const open_scopes scopes = find_scopes();
  const lease_book::counts leases = cache.leases().count();
  fmt::format_to(to, "threads that use it: {}, with {} bytes of their own; threads inside of sections: {}",
                 cache.mutators().count(), leases.bytes, scopes.sections);
  for (std::size_t i = 0; i < std::min(scopes.sites.size(), limits::scopes_named_max); ++i) {
    const epochs::section_site& s = scopes.sites[i];
    fmt::format_to(to, "{}{}:{} for {} epochs", i == 0 ? "; open scopes: " : ", ", s.file, s.line, s.epochs);
  }
  if (scopes.sites.size() > limits::scopes_named_max)
    fmt::format_to(to, ", and {} more", scopes.sites.size() - limits::scopes_named_max);
  const census frames = count_frames(cache);
  const char* const least = frames.whole ? "" : "at least ";
  fmt::format_to(to, "; pinned: {}{} objects in {} bytes", least, frames.pinned.objects, frames.pinned.bytes);
  for (std::size_t i = 0; i < frames.unwritten.size(); ++i) {
    const held& h = frames.unwritten[i];
    if (h.objects == 0) continue;
    fmt::format_to(to, "; not written to {}{}: {}{} objects in {} bytes", cache.agents()[i]->url(),
                   cache.agents()[i]->lost() ? ", which is lost" : "", least, h.objects, h.bytes);
  }
  const arena::counts q = cache.memory().queue_lengths();
  fmt::format_to(to, "; segments: {} free, {} filled, {} on trial, {} active, {} writing", q.free, q.filled, q.trial,
                 q.active, q.writing);
  return out;
}

void keep_what_is_pinned(object_cache& cache) noexcept {
  cache.eviction().give_back_piece();
  cache.leases().take_all_pieces();
  // No segment is being filled now.
  const auto pins_in = [](const segment& s) {
    std::uint64_t pinned = 0;
    each_frame(s, [&](char* payload) {
      pinned += frame::prefix(payload).pins.load(std::memory_order_relaxed) != 0;
      return true;
    });
    return pinned;
  };
  std::uint64_t pinned = 0;
  cache.memory().for_each_run([&](const segment& s) { pinned += pins_in(s); });
  if (pinned == 0) return;
  log::error(
      "a heap ends while pins or iterators hold {} of its objects: what is written through them is lost, and their "
      "memory stays mapped. Let them end before their heap",
      pinned);
  cache.memory().abandon(pins_in);
}

}  // namespace fm::detail

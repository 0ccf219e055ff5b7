// The audit of a pool's blocks: the agent's records against each other, and against the bytes that readers see; see
// blocks.h.
// It changes nothing, and takes as long as there are objects.
// Called by the pool's clients (pool_session) and by tests, with the pool's structure exclusively.
#include <fmt/format.h>

#include <algorithm>

#include "blocks.h"
#include "object_memory.h"

namespace fm::agent {

audit_answer pool_blocks::audit(std::string& text) const {
  audit_answer a{};
  const auto fault = [&](const std::string& what) {
    if (++a.faults <= 8) text += what + '\n';
  };
  std::vector<std::uint32_t> live_of(vblocks_.size(), 0), seen_in(vblocks_.size(), none);
  std::uint64_t bytes = std::uint64_t{chunks()} * blocks::frame_bytes_min, mapped = 0, books = 0, expiring = 0,
                queued = 0;
  std::vector<std::byte> payload;
  std::vector<bool> listed(all_.size());
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    const size_class_state& k = classes_[c];
    for (std::uint32_t n = 0; n < k.arenas.size(); ++n)
      for (const std::uint32_t number : k.arenas[n] == nullptr ? std::vector<std::uint32_t>{} : k.arenas[n]->with_room)
        if (const frame* f = noted(number); f == nullptr || f->size_class != c || f->arena != n || !f->listed)
          fault(fmt::format("arena {} of class {} lists frame {}, which is not its own", n, c, number));
        else
          listed[number] = true;
    std::uint64_t objects = 0, payload_bytes = 0;
    for (const std::uint32_t number : k.frames) {
      const frame& f = *all_[number];
      bytes += layout().block(c);
      if (f.size_class != c || (f.state != frame_state::open && f.state != frame_state::merging))
        fault(fmt::format("frame {} is listed in class {} and is not of it", number, c));
      if (f.state == frame_state::open && (f.listed != listed[number] || (f.taken < f.slots && !f.listed)))
        fault(fmt::format("frame {} has {} of {} slots taken, and nobody finds it by its arena {}", number, f.taken,
                          f.slots, f.arena));
      bool has_primary = false;
      for (std::uint32_t v = f.vblocks; v != none; v = vblocks_[v].next) {
        has_primary = has_primary || v == f.primary;
        seen_in[v] = number;
        ++mapped;
      }
      if (!has_primary) fault(fmt::format("frame {}: its primary block {} is mapped elsewhere", number, f.primary));
      books += sizeof f + f.used.bytes() + f.ids.bytes() + f.displaced.bytes();
      if (f.expiries != nullptr) {
        books += f.expiries->bytes();
        expiring += f.expiries->size();
        ++queued;
        if (f.expiries->size() == 0 || f.expiries->queued > f.expiries->soonest())
          fault(fmt::format("frame {}: queued for {}, and an object expires at {}", number, f.expiries->queued,
                            f.expiries->soonest()));
        f.expiries->for_each_slot([&](std::uint32_t s) {
          if (s >= f.slots || !is_resident(f, s, header_of(f, s)))
            fault(fmt::format("frame {} slot {}: nobody lives there, and expires", number, s));
        });
      }
      std::uint32_t live = 0, taken = 0, ids = 0, displaced = 0;
      for (const std::uint64_t w : f.used.words()) taken += static_cast<std::uint32_t>(std::popcount(w));
      for (const std::uint64_t w : f.ids.words()) ids += static_cast<std::uint32_t>(std::popcount(w));
      for (std::uint32_t s = 0; s < f.slots; ++s) {
        const blocks::object_header h = header_of(f, s);
        if (!f.used.test(s)) {
          if ((h.flags & blocks::flag_freed) == 0)
            fault(fmt::format("frame {} slot {} is free and looks as if it was not", number, s));
          continue;
        }
        if (!is_resident(f, s, h)) {
          if (f.state == frame_state::open)
            fault(fmt::format("frame {} slot {} is taken, and nobody lives there", number, s));
          continue;
        }
        ++live;
        payload_bytes += h.bytes;
        payload.clear();
        if (load_object(f, s, payload) != errc::ok)
          fault(fmt::format("frame {} slot {}: the bytes are not those of block {} index {} generation {}", number, s,
                            h.vblock, h.index, h.generation));
        if (h.vblock >= vblocks_.size() || vblocks_[h.vblock].frame != number) {
          fault(fmt::format("frame {} slot {}: born in block {}, which is mapped elsewhere", number, s, h.vblock));
          continue;
        }
        ++live_of[h.vblock];
        if (h.generation == 0 || h.generation > vblocks_[h.vblock].last_generation)
          fault(fmt::format("block {}: a generation that there never was", h.vblock));
        if (k.random() && !f.ids.test(h.index))
          fault(fmt::format("frame {} slot {}: its id {} is not taken", number, s, h.index));
        if (s != h.index) ++displaced;
        frame_guard inside;
        if (const found o = locate({{h.vblock, h.generation, h.index}, no_slot, 0}, inside); o.f != &f || o.slot != s)
          fault(fmt::format("block {} index {} does not lead to frame {} slot {}", h.vblock, h.index, number, s));
        if (!k.random() && h.vblock == f.primary && s != h.index)
          fault(fmt::format("frame {} slot {}: index {} of its primary block", number, s, h.index));
      }
      if (displaced != f.displaced.size())
        fault(fmt::format("frame {}: {} objects are not in the slot of their index, counted {}", number,
                          f.displaced.size(), displaced));
      if (live != f.live || taken != f.taken)
        fault(fmt::format("frame {}: {} objects and {} slots taken, counted {} and {}", number, f.live, f.taken, live,
                          taken));
      if (k.random() && ids != f.live) fault(fmt::format("frame {}: {} ids of {} objects", number, ids, f.live));
      objects += live;
    }
    a.objects += objects;
    a.live_bytes += payload_bytes;
    if (objects != k.counts.objects() || payload_bytes != k.counts.payload_bytes || k.frames.size() != k.counts.frames)
      fault(fmt::format("class {}: {} objects of {} bytes, counted {} of {}", c, k.counts.objects(),
                        k.counts.payload_bytes.load(), objects, payload_bytes));
  }
  for (std::uint32_t v = 0; v < vblocks_.size(); ++v) {
    const vblock& b = vblocks_[v];
    if (b.live != live_of[v] || b.frame != seen_in[v])
      fault(fmt::format("block {}: {} objects in frame {}, counted {} in {}", v, b.live, b.frame, live_of[v],
                        seen_in[v]));
    const std::uint64_t word = word_of(v);
    if (blocks::is_mapped(word) != (b.frame != none))
      fault(fmt::format("block {}: the table says {:#x}", v, word));
    else if (b.frame != none) {
      const blocks::place at = blocks::place_of(word);
      const frame& f = *all_[b.frame];
      if (at.ordinal != f.at.ordinal || at.offset != f.at.offset || blocks::class_of(word) != f.size_class)
        fault(fmt::format("block {}: the table names another frame", v));
      if (blocks::is_old(word) != (v != f.primary))
        fault(fmt::format("block {}: the table says {} that it is old", v, blocks::is_old(word) ? "" : "not"));
    }
  }
  if (mapped != vblocks_mapped_) fault(fmt::format("{} blocks are mapped, counted {}", vblocks_mapped_, mapped));
  if (bytes + grave_bytes_ + reserved_bytes_ != frames_.used_bytes())
    fault(fmt::format("{} bytes of frames in use, counted {}", frames_.used_bytes(),
                      bytes + grave_bytes_ + reserved_bytes_));
  if (const std::uint64_t all = books + graves_.size() * sizeof(frame); all != frame_books_)
    fault(fmt::format("{} bytes of frames' books, counted {}", frame_books_.load(), all));
  if (expiring != expiring_ || queued != expiry_queue_.size())
    fault(fmt::format("{} objects expire, in {} frames; counted {} in {}", expiring_.load(), expiry_queue_.size(),
                      expiring, queued));
  a.garbage_bytes = bytes - std::min(bytes, a.live_bytes);
  a.metadata_bytes = books_bytes();
  return a;
}

}  // namespace fm::agent

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
  std::uint64_t bytes = std::uint64_t{chunks()} * blocks::frame_bytes_min, mapped = 0;
  std::vector<std::byte> payload;
  std::vector<bool> listed(all_.size());
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    const size_class_state& k = classes_[c];
    for (std::uint32_t n = 0; n < k.arenas.size(); ++n)
      for (const std::uint32_t number : k.arenas[n] == nullptr ? std::vector<std::uint32_t>{} : k.arenas[n]->with_room)
        if (all_[number]->size_class == c && all_[number]->arena == n) listed[number] = true;
    std::uint64_t objects = 0, payload_bytes = 0;
    for (const std::uint32_t number : k.frames) {
      const frame& f = *all_[number];
      bytes += layout().block(c);
      if (f.size_class != c || (f.state != frame_state::open && f.state != frame_state::merging))
        fault(fmt::format("frame {} is listed in class {} and is not of it", number, c));
      if (f.state == frame_state::open && (f.listed != listed[number] || (f.taken < f.slots && !f.listed)))
        fault(fmt::format("frame {} has {} of {} slots taken, and nobody finds it by its arena {}", number, f.taken,
                          f.slots, f.arena));
      if (std::find(f.vblocks.begin(), f.vblocks.end(), f.primary) == f.vblocks.end())
        fault(fmt::format("frame {}: its primary block {} is mapped elsewhere", number, f.primary));
      for (const std::uint32_t v : f.vblocks) {
        seen_in[v] = number;
        ++mapped;
      }
      std::uint32_t live = 0, taken = 0, ids = 0;
      for (const std::uint64_t w : f.used) taken += static_cast<std::uint32_t>(std::popcount(w));
      for (const std::uint64_t w : f.ids) ids += static_cast<std::uint32_t>(std::popcount(w));
      for (std::uint32_t s = 0; s < f.slots; ++s) {
        const resident& r = f.residents[s];
        const bool used = (f.used[s / 64] >> s % 64 & 1) != 0;
        if (r.generation == 0) {
          const auto flags = static_cast<std::uint16_t>(shared_memory::load_word(slot_memory(f, s) + 8) >> 16);
          if ((flags & blocks::flag_freed) == 0 && !used)
            fault(fmt::format("frame {} slot {} is free and looks as if it was not", number, s));
          if (used && f.state == frame_state::open)
            fault(fmt::format("frame {} slot {} is taken by nobody", number, s));
          continue;
        }
        ++live;
        payload_bytes += r.bytes;
        payload.clear();
        if (!used) fault(fmt::format("frame {} slot {} has an object and is not taken", number, s));
        if (load_object(f, s, payload) != errc::ok)
          fault(fmt::format("frame {} slot {}: the bytes are not those of block {} index {} generation {}", number, s,
                            r.vblock, r.index, r.generation));
        if (r.vblock >= vblocks_.size() || vblocks_[r.vblock].frame != number) {
          fault(fmt::format("frame {} slot {}: born in block {}, which is mapped elsewhere", number, s, r.vblock));
          continue;
        }
        ++live_of[r.vblock];
        const vblock& b = vblocks_[r.vblock];
        if (r.generation > b.last_generation) fault(fmt::format("block {}: a generation of the future", r.vblock));
        if (k.random() ? !has_id(f, r.index) : r.index >= b.slot_of.size() || b.slot_of[r.index] != s)
          fault(fmt::format("block {} index {} does not lead to frame {} slot {}", r.vblock, r.index, number, s));
      }
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
    }
  }
  if (mapped != vblocks_mapped_) fault(fmt::format("{} blocks are mapped, counted {}", vblocks_mapped_, mapped));
  if (bytes + grave_bytes_ != frames_.used_bytes())
    fault(fmt::format("{} bytes of frames in use, counted {}", frames_.used_bytes(), bytes + grave_bytes_));
  a.garbage_bytes = bytes - std::min(bytes, a.live_bytes);
  a.metadata_bytes = all_.size() * sizeof(frame) + vblocks_.size() * sizeof(vblock);
  return a;
}

}  // namespace fm::agent

// All objects of a pool, a piece at a time: a member of pool_blocks.
//
// Objects come in the order of where they were born: by virtual block, then by index. That is part of their identity, so
// a merge changes no object's place in the order, and an object that is there all the while comes exactly once. Others
// may come or not. A piece looks at a bounded number of slots.
// Called by pool_session with the pool's structure shared.
#include <algorithm>

#include "blocks.h"

namespace fm::agent {

bool pool_blocks::list(position& from, std::size_t most, std::vector<list_entry>& out) const {
  std::uint64_t looks = 0;
  while (from.vblock < vblocks_.size()) {
    if (out.size() >= most || looks >= limits::listed_slots_max) return false;
    const vblock& b = vblocks_[from.vblock];
    ++looks;
    if (b.frame == none) {
      from = {from.vblock + 1, 0};
      continue;
    }
    frame& f = *all_[b.frame];
    const std::size_t begin = out.size();
    {
      const frame_guard inside = enter(f);
      const expiry now = f.expiries != nullptr ? now_ms() : 0;
      if (b.live != 0) {
        looks += f.slots;
        for (std::uint32_t s = 0; s < f.slots; ++s) {
          if (!f.used.test(s)) continue;
          const blocks::object_header h = header_of(f, s);
          if (h.vblock == from.vblock && h.index >= from.index && is_resident(f, s, h) && !has_expired(f, s, now))
            out.push_back({{h.vblock, h.generation, h.index}, static_cast<std::uint16_t>(s), h.bytes});
        }
      }
    }
    std::sort(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
              [](const list_entry& a, const list_entry& c) { return a.id.index < c.id.index; });
    if (out.size() > most) {
      out.resize(most);
      from.index = std::uint32_t{out.back().id.index} + 1;
      return false;
    }
    from = {from.vblock + 1, 0};
  }
  return true;
}

}  // namespace fm::agent

// An image of a pool's blocks in its log, for a backup that begins with nothing; members of pool_blocks.
//
// The image is written beside changes, a frame at a time. A frame that the log has, has its changes written down from
// then on; of one that it does not have yet, none: they are in the frame's image. Nothing is merged meanwhile, so no
// object goes from a frame that the log has to one that it does not have, or back.
// Called with the pool's structure exclusively.
#include "blocks.h"

#include <algorithm>

namespace fm::agent {

void pool_blocks::begin_image() {
  for (const auto& f : all_)
    if (f != nullptr) f->mirrored = false;
  if (merge_.running) finish_merge();
  imaging_ = true;
  image_next_ = image_vblock_ = 0;
}

/// As records have it: 0 if it does not expire.
expiry pool_blocks::expiry_of(const frame& f, std::uint32_t slot) {
  const expiry at = f.expiries != nullptr ? f.expiries->of(slot) : no_expiry;
  return at == no_expiry ? 0 : at;
}

void pool_blocks::image_of(frame& f) {
  const auto write = [&](pool_log::entry e) { (void)write_down(std::move(e)); };
  write(pool_log::make(record_kind::frame, frame_record{f.number, f.size_class, f.arena, f.primary,
                                                        vblocks_[f.primary].last_generation, 0}));
  for (std::uint32_t v = f.vblocks; v != none; v = vblocks_[v].next)
    if (v != f.primary) write(pool_log::make(record_kind::block, block_record{f.number, v}));
  std::vector<std::byte> payload;
  for (std::uint32_t s = 0; s < f.slots; ++s) {
    const blocks::object_header h = header_of(f, s);
    if (!is_resident(f, s, h)) continue;
    payload.clear();
    // One that cannot be read here is not to be read there either: its audit finds what this one does.
    if (load_object(f, s, payload) != errc::ok) continue;
    write(pool_log::make(record_kind::stored,
                         stored_record{f.number, s, h.vblock, h.generation, h.index, h.version, expiry_of(f, s)},
                         payload));
  }
  f.mirrored = true;
}

bool pool_blocks::image_step(std::uint64_t bytes) {
  const std::uint64_t enough = log_->bytes() + bytes;
  for (; image_next_ < all_.size(); ++image_next_) {
    if (log_->bytes() >= enough) return true;
    frame* const f = all_[image_next_].get();
    if (f != nullptr && !f->mirrored && f->state == frame_state::open) image_of(*f);
  }
  for (; image_vblock_ < vblocks_.size(); image_vblock_ += limits::generations_at_once) {
    if (log_->bytes() >= enough) return true;
    std::vector<std::uint32_t> some;
    for (std::size_t v = image_vblock_; v < vblocks_.size() && some.size() < limits::generations_at_once; ++v)
      some.push_back(vblocks_[v].last_generation);
    (void)write_down(pool_log::make(record_kind::generations,
                                    generations_record{image_vblock_, static_cast<std::uint32_t>(some.size())},
                                    std::as_bytes(std::span(some))));
  }
  return false;
}

}  // namespace fm::agent

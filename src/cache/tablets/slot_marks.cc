// Taking slots out of the sets; see slot_marks.h.
//
// Invariant: slots of tablets that the set does not cover are passed over.
#include "cache/tablets/slot_marks.h"

#include <algorithm>
#include <utility>

namespace fm::detail {

slot_marks::slot_marks(std::vector<std::uint32_t> tablets) : tablets_(std::move(tablets)) {
  std::uint32_t most = 0;
  for (const std::uint32_t t : tablets_) most = std::max(most, t + 1);
  positions_.resize(most);
  for (std::size_t i = 0; i < tablets_.size(); ++i) positions_[tablets_[i]] = static_cast<std::uint32_t>(i + 1);
  allocated_.assign(tablets_.size() * tablet_words, ~std::uint64_t{0});
  marked_.resize(tablets_.size() * tablet_words);
}

void slot_marks::except(slot_t first, std::uint64_t slots) noexcept {
  for (slot_t s = first; s < first + slots;) {
    const std::size_t at = position(s);
    const std::uint64_t i = s % tablet_slots;
    if (at == 0) {
      s += tablet_slots - i;
      continue;
    }
    std::uint64_t& w = allocated_[(at - 1) * tablet_words + i / 64];
    if (i % 64 == 0 && first + slots - s >= 64) {
      w = 0;
      s += 64;
    } else {
      w &= ~(std::uint64_t{1} << (i % 64));
      ++s;
    }
  }
}

void slot_marks::except(const slot_page& p) noexcept {
  const std::size_t at = position(p.first);
  if (at == 0) return;
  std::uint64_t* w = allocated_.data() + (at - 1) * tablet_words + p.first % tablet_slots / 64;
  for (std::size_t i = 0; i < p.bits.size(); ++i) w[i] &= ~p.bits[i];
}

}  // namespace fm::detail

// When a receiver tells its sender what it has consumed and judged; see credit.h.
#include "credit.h"

namespace fm::detail {

bool receive_credit::quarter_is_due() const noexcept {
  return consumed_.bytes - told_.bytes >= terms_.window / 4 ||
         consumed_.parts - told_.parts >= std::max(1u, terms_.window_parts / 4);
}

receive_credit::notice credit_by_messages::tell(bool channel_is_broken) noexcept {
  if (channel_is_broken || !quarter_is_due()) return {};
  tell_consumed();
  return {way::message, sizeof(channel_wire::head)};
}

receive_credit::notice credit_on_demand::tell(bool channel_is_broken) noexcept {
  const bool judged = told_.judged < std::min(consumed_.judged, wanted_graphs_);
  const bool consumed = wanted_parts_ != 0 && consumed_.parts >= wanted_parts_;
  if (channel_is_broken || !(judged || consumed || quarter_is_due())) return {};
  if (consumed) wanted_parts_ = 0;
  tell_consumed();
  told_.judged = consumed_.judged;
  return {way::answer, sizeof(part_answers)};
}

}  // namespace fm::detail

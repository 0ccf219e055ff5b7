// The message by which owners ask for evacuations, and one step of all of them; see evacuations.h.
// The work itself is evacuator.h's. A message takes the heap's mutex; a step takes it where the evacuator needs it.
// Called by heap_session for messages, and by the first tracing thread for steps.
#include "evacuations.h"

#include <fmt/format.h>

#include "evacuator.h"

namespace fm::agent {

std::optional<errc> evacuations::message(session& s, heap& h, message_type type, body b, fabric::answer& out) {
  if (type != message_type::evacuate) return {};
  evacuate_body m;
  if (!read_exactly(b, m) || m.number == 0 || m.order > static_cast<std::uint32_t>(evacuation_order::breadth_first) ||
      m.below_live > evacuation_whole)
    return errc::bad_frame;
  std::lock_guard lock(h.mutex);
  if (h.owner != &s) return not_the_owner(h, out, type);
  const std::uint64_t last = h.asked_evacuation != nullptr ? h.asked_evacuation->asked.number : 0;
  if (m.number < last)
    return refuse(out, type, errc::stale, fmt::format("evacuation {} after evacuation {}", m.number, last));
  if (m.number > last) {
    h.asked_evacuation = std::make_shared<evacuation>(evacuation{m, {}});
    h.asked_evacuation->told.order = m.order;
    h.evacuation_runs.store(true);
    wake_();
  } else if (std::memcmp(&m, &h.asked_evacuation->asked, sizeof m) != 0) {
    return errc::bad_frame;
  }
  const evacuate_answer a = h.asked_evacuation->told;
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

bool evacuations::step() {
  const move_options o{agent_.options.trace_queue_slots, agent_.options.hooks.cleaner_copied,
                       agent_.options.hooks.context};
  bool more = false;
  for (const auto& h : heaps_.all()) more = evacuate_step(*h, o) || more;
  return more;
}

}  // namespace fm::agent

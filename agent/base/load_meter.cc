// The measurement of an agent's load; see load_meter.h.
#include "load_meter.h"

#include "agent/base/limits.h"
#include "os/processor_time.h"

#include <algorithm>
#include <utility>

namespace fm::agent {

double load_meter::busy(time_point now) {
  const std::lock_guard lock(mutex_);
  if (at_ != time_point{} && now - at_ < limits::load_measured_every) return busy_;
  const os::processor_times t = os::processor_times_of_process();
  // Threads that have ended take along how long they waited.
  const std::uint64_t ran = t.ran_ns - std::exchange(ran_ns_, t.ran_ns),
                      waited = t.waited_ns - std::min(t.waited_ns, std::exchange(waited_ns_, t.waited_ns));
  const time_point since = std::exchange(at_, now);
  if (since == time_point{}) return busy_;
  const double gone = std::chrono::duration<double, std::nano>(now - since).count();
  busy_ = static_cast<double>(ran + waited) / (gone * os::usable_processors());
  return busy_;
}

}  // namespace fm::agent

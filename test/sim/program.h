// One run of the simulation: what follows from its seed, and what must be true at its end.
#pragma once

#include "base/mutation.h"
#include <cstdint>
#include <string>

#include "ending.h"

namespace fm::sim {

enum class faults : std::uint8_t {
  some,      ///< connections break in half of the runs
  breaks,    ///< connections break all the time
  deaths,    ///< and an agent dies
  replicas,  ///< agents die, and replicas take their place
  members,   ///< agents come and go, and the number of replicas changes
};

struct setting {
  faults what = faults::some;
  detail::mutation leaning = detail::mutation::none;  ///< the plan suits it, whether or not it is chosen
  ending pretended = ending::passed;                  ///< ends so, for the test of what is taken for a notice
};

/// Runs the program of a seed to its end; the calling thread must be the only one of the process. A finding or an error
/// ends the process with its exit_status, and a failed check with a signal. Returns a line that says what happened, equal
/// for equal seeds.
std::string run_program(std::uint64_t seed, const setting& s);

}  // namespace fm::sim

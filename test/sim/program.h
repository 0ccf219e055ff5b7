// One run of the simulation: what follows from its seed, and what must be true at its end.
#pragma once

#include <cstdint>
#include <string>

namespace fm::sim {

enum class faults : std::uint8_t {
  some,    ///< connections break in half of the runs
  breaks,  ///< connections break all the time
  deaths,  ///< and an agent dies
};

/// Runs the program of a seed to its end; the calling thread must be the only one of the process. What is wrong comes as an
/// exception, or as the end of the process. Returns a line that says what happened, equal for equal seeds.
std::string run_program(std::uint64_t seed, faults f);

}  // namespace fm::sim

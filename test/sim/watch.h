// Looking at a run that went wrong: with FARMEM_SIM_WATCH=SLOT in the environment, every change of the slot's word is
// printed, with its time, its thread, and the address of the code (for addr2line). It changes nothing of the run.
#pragma once

#include <cstdint>

namespace fm::sim {

/// The word that is watched, or null.
extern const volatile void* watched;
void show_watched(std::uint64_t is, const void* caller) noexcept;
/// Once the table of words is there.
void watch_as_asked();

}  // namespace fm::sim

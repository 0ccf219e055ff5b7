// One result of examining what RDMA needs on this machine. A transport adds findings about its devices, and the doctor
// (fabric/doctor.h) collects and prints them.
//
// Invariant: a finding is a plain value, and a fix is given only where something is to be done.
#pragma once

#include "base/base.h"
#include <string>

namespace fm::fabric {

struct finding {
  enum class level : std::uint8_t {
    good,   ///< as it should be
    note,   ///< works, and could be better or is worth knowing
    wrong,  ///< verbs:// does not work, or not with this device, until it is changed
  };
  level is = level::good;
  std::string what;  ///< "port 1 of mlx5_0 is ACTIVE, MTU 4096"
  std::string fix;   ///< what to do; empty where nothing is to be done
};

}  // namespace fm::fabric

// What of this machine RDMA needs, whether it is there, and what to do where it is not. `farmem-agent --doctor` prints it.
#pragma once

#include "base/base.h"
#include <string>
#include <vector>

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

/// Looks at the library for verbs:// and rdma-core, kernel modules, devices with their ports, GIDs and MTU, on-demand
/// paging, the limit on locked memory, and huge pages. Opens devices and closes them; changes nothing. Works without
/// rdma-core, and says then what to install. Milliseconds. Thread-safe. Throws only std::bad_alloc.
std::vector<finding> doctor();

/// The findings as text, one a line, with the fixes indented below; the last line says whether verbs:// can be used.
std::string readable(const std::vector<finding>& findings);

/// Whether nothing is wrong.
bool is_healthy(const std::vector<finding>& findings) noexcept;

}  // namespace fm::fabric

// The examination of what RDMA needs on this machine: whether it is there, and what to do where it is not.
//
// Invariant: it changes nothing on the machine, and works without rdma-core. `farmem-agent --doctor` prints the result,
// and is its only caller.
#pragma once

#include "fabric/transport/finding.h"
#include <string>
#include <vector>

namespace fm::fabric {

/// Looks at the library for verbs:// and rdma-core, kernel modules, devices with their ports, GIDs and MTU, on-demand
/// paging, the limit on locked memory, and huge pages. Opens devices and closes them; changes nothing. Works without
/// rdma-core, and says then what to install. Milliseconds. Thread-safe. Throws only std::bad_alloc.
std::vector<finding> doctor();

/// The findings as text, one a line, with the fixes indented below; the last line says whether verbs:// can be used.
std::string readable(const std::vector<finding>& findings);

/// Whether nothing is wrong.
bool is_healthy(const std::vector<finding>& findings) noexcept;

}  // namespace fm::fabric

// The part of fm::fabric::doctor that needs rdma-core: devices and their ports.
//
// Invariant: every device that it opens is closed again, and nothing is changed. The table entry of verbs:// (entry.cc)
// hands it to the doctor, and nobody else calls it.
#pragma once

#include "fabric/transport/finding.h"
#include <vector>

namespace fm::fabric::verbs {

void examine(std::vector<finding>& out);

}  // namespace fm::fabric::verbs

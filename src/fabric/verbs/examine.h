// The part of fm::fabric::doctor that needs rdma-core: devices and their ports.
#pragma once

#include "fabric/transport/finding.h"
#include <vector>

namespace fm::fabric::verbs {

void examine(std::vector<finding>& out);

}  // namespace fm::fabric::verbs

// The peer of a heap larger than memory: the key-value workload over plain pointers, in a worker that a memory cgroup
// limits and the kernel's swap extends. Without a limit it is the ideal, everything in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fm::bench {

/// The worker `plain_kv <keys>`; answers the command of run_key_value.
int plain_key_value_main(const std::vector<std::string>& args);
/// The worker `plain_map <keys>`: the values in a std::map behind a shared mutex.
int plain_map_main(const std::vector<std::string>& args);

}  // namespace fm::bench

// Whether memory grows although nothing should: the use of memory over a run, as samples, and the verdict about them. Garbage
// fills the agents up to a point before it is collected, so use goes up and down; what must not go up is its highest
// points. After a warm-up, the highest of the second half is compared with the highest of the first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fm::example {

struct memory_sample {
  std::uint64_t made_bytes = 0;    ///< of objects, since the start
  std::uint64_t local_bytes = 0;   ///< private memory of this process
  std::uint64_t agents_bytes = 0;  ///< resident memory of all agents
};

class growth_check {
 public:
  /// Warm is what has made 1.5 times the `capacity_bytes` of the agents; the verdict wants 3 times as much.
  explicit growth_check(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  /// Takes a sample in. However many there are, a few thousand are kept: neighbours are joined to their highest.
  void add(const memory_sample& s);

  struct verdict {
    bool good = false;
    std::string text;
  };
  /// Bad when something grew by more than a twentieth and a few MiB, and when the run was too short to tell.
  [[nodiscard]] verdict judge() const;

 private:
  static constexpr std::size_t samples_max = 4096;

  std::uint64_t capacity_bytes_;
  std::uint64_t joined_ = 1;  ///< samples that one kept stands for
  std::uint64_t in_last_ = 0;
  std::vector<memory_sample> samples_;
};

}  // namespace fm::example

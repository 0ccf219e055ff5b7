// Nodes, and the things that the mutators of one heap share: an array, mail, and a list of the dead.
//
// Thread-safe, but for the array, which is the heap's.
#pragma once

#include <farmem/farmem.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fm::sim {

constexpr std::size_t edges = 4;

struct node {
  std::uint64_t id = 0;
  std::uint64_t check = 0;
  std::array<ref<node>, edges> to;
  ref<std::uint64_t[]> data;
};
using shared_array = ptr<ref<node>[]>;

/// Nodes on their way from one mutator to another, by a root or by a pin. They refer to no other node.
class mailbox {
 public:
  struct parcel {
    std::uint64_t id = 0;
    ptr<node> root;
    std::optional<read_pin<node>> pin;  ///< instead of the root
  };
  /// False, and nothing is taken, when it is full, or has a pin already.
  bool post(parcel& p);
  std::optional<parcel> take(std::uint64_t random);
  void clear();

 private:
  static constexpr std::size_t parcels_max = 8;
  std::mutex mutex_;
  std::vector<parcel> parcels_;
};

/// Deaths that the heap was asked to tell of (heap::on_dead), by number.
class obituaries {
 public:
  void watch(heap& h, const ptr<node>& p, std::uint64_t id);
  [[nodiscard]] bool is_dead(std::uint64_t id);
  /// A text that names what is wrong if just these are alive and all others were found dead; empty: nothing.
  [[nodiscard]] std::string compare(const std::set<std::uint64_t>& alive);
  /// So many were told of.
  [[nodiscard]] std::size_t told();

 private:
  std::mutex mutex_;
  std::set<std::uint64_t> watched_, dead_;
  std::uint64_t told_twice_ = 0;
};

/// Shared by the mutators of one heap.
struct commons {
  shared_array places;
  mailbox mail;
  obituaries dead;
  std::atomic<std::size_t> reached{0};  ///< the place of the array that was reached last, with favour::shared
};

}  // namespace fm::sim

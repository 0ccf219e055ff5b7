// A thread of the simulated program with its shadow: what it makes, links, cuts, drops and finds again in the heap, it does
// in a model of its own, too, and the two must agree whenever it looks. Objects carry their number, a check of it, and
// an array of data that follows from it; all threads store to and load from one shared array besides.
#pragma once

#include <farmem/farmem.h>

#include <array>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace fm::sim {

constexpr std::size_t edges = 4;
constexpr std::size_t shared_places = 16;

struct node {
  std::uint64_t id = 0;
  std::uint64_t check = 0;
  std::array<ref<node>, edges> to;
  ref<std::uint64_t[]> data;
};
using shared_array = ptr<ref<node>[]>;

/// What the heap answered was wrong. Everything else that is thrown out of a step is the heap's own error.
struct disagreement : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class mutator {
 public:
  mutator(heap& h, shared_array shared, std::uint64_t number, std::uint64_t seed, bool may_lose_agents);

  /// Does something at random. Throws disagreement; and fm::error, where agents may be lost only by their loss.
  void step();
  /// Compares everything that the shadow reaches.
  void compare_all();
  /// After compare_all: numbers of its objects, their data arrays included.
  std::size_t reachable = 0;
  std::uint64_t locked = 0, gone = 0, failed = 0;

 private:
  struct shadow {
    std::array<std::uint64_t, edges> to{};
  };
  using place = std::pair<ptr<node>, std::uint64_t>;

  void act();
  std::size_t pick(std::size_t n) { return random_() % n; }
  static void require_node(const ptr<node>& p, std::uint64_t id);
  static void require_data(const ptr<node>& p);
  ptr<node> make(std::uint64_t& id);
  place walk(std::size_t most);
  void make_root();
  void attach_new();
  void link();
  void cut();
  void swap_edges();
  void drop_root();
  void move_root();
  void use_weak();
  void exchange_shared();
  void make_garbage();
  void prefetch_some();
  void hold_scope();
  void write_data();
  void forget_some();

  heap& heap_;
  shared_array shared_;
  std::uint64_t next_id_;
  std::mt19937_64 random_;
  bool may_lose_agents_;
  std::vector<ptr<node>> roots_;
  std::vector<std::uint64_t> root_ids_;
  std::unordered_map<std::uint64_t, shadow> shadow_;
  std::vector<std::pair<weak<node>, std::uint64_t>> weak_;
  std::size_t last_size_ = 0;
};

}  // namespace fm::sim

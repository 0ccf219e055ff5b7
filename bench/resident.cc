// Resident access: what the indirection costs when nothing is far. Everything fits in the cache; the agent is in this
// process and idle.
#include <algorithm>
#include <cstdio>
#include <farmem/farmem.h>
#include <numeric>
#include <shared_mutex>
#include <unordered_map>

#include "peers/chase.h"
#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;

fm::ptr<managed_node> make_list(fm::heap& h, std::size_t count, visit_order order, std::uint64_t seed) {
  const std::vector<std::uint32_t> visits = visiting_order(count, order, seed);
  std::vector<fm::ptr<managed_node>> nodes(count);
  for (auto& n : nodes) n = h.make<managed_node>();
  for (std::size_t i = 0; i < count; ++i) {
    auto n = nodes[visits[i]].write();
    n->value = i;
    if (i + 1 < count) n->next = nodes[visits[i + 1]];
  }
  return nodes[visits[0]];
}

std::uint64_t walk_in_scope(const fm::ptr<managed_node>& first) {
  const fm::scope s;
  std::uint64_t sum = 0;
  for (const managed_node* n = first.get(s); n != nullptr; n = n->next.get(s)) sum += n->value;
  return sum;
}

std::uint64_t walk_by_arrows(const fm::ptr<managed_node>& first) {
  std::uint64_t sum = 0;
  fm::ptr<managed_node> at = first;
  while (at) {
    sum += at->value;
    at.move_to_slot(at->next.slot());
  }
  return sum;
}

void lists(program& p, fm::heap& h, std::size_t count, visit_order order, double bound) {
  const char* name = order == visit_order::sequential ? "list_in_order" : "chase_scattered";
  const raw_list raw(count, order, 1);
  const fm::ptr<managed_node> managed = make_list(h, count, order, 1);
  const row_spec spec{name,
                      {{"nodes", std::to_string(count)}, {"node", "64 B"}, {"by", "scope"}},
                      "ns",
                      {goal_kind::ratio_at_most, bound},
                      "plain pointers in one array"};
  const auto peer = [&] { return per_operation(double(count), [&] { keep(raw.walk()); }); };
  p.compare(
      spec, [&] { return per_operation(double(count), [&] { keep(walk_in_scope(managed)); }); }, peer);
  row_spec arrows = spec;
  arrows.parameters.back().second = "p->";
  arrows.wanted = {};
  p.compare(
      arrows, [&] { return per_operation(double(count), [&] { keep(walk_by_arrows(managed)); }); }, peer);
}

void vectors(program& p, fm::heap& h, std::size_t count) {
  std::vector<std::uint64_t> raw(count);
  std::iota(raw.begin(), raw.end(), 0u);
  const fm::vector<std::uint64_t> managed(h);
  managed.append(raw);
  const auto peer = [&] { return per_operation(double(count), [&] { keep(scan(raw)); }); };
  row_spec spec{"vector_scan",
                {{"elements", std::to_string(count)}, {"element", "8 B"}, {"by", "chunks"}},
                "ns",
                {goal_kind::ratio_at_most, 1.15},
                "std::vector"};
  p.compare(
      spec,
      [&] {
        return per_operation(double(count), [&] {
          std::uint64_t sum = 0;
          managed.for_each_chunk([&](std::span<const std::uint64_t> c) {
            for (const std::uint64_t v : c) sum += v;
          });
          keep(sum);
        });
      },
      peer);
  spec.parameters.back().second = "iterators";
  p.compare(
      spec,
      [&] {
        return per_operation(double(count),
                             [&] { keep(std::accumulate(managed.begin(), managed.end(), std::uint64_t{0})); });
      },
      peer);
}

/// Sorting through iterators, where every access asks whether its chunk is pinned.
void sorting(program& p, fm::heap& h, std::size_t count) {
  random_source random(3);
  std::vector<std::uint64_t> unsorted(count);
  for (auto& v : unsorted) v = random.below(~std::uint64_t{0});
  std::vector<std::uint64_t> raw = unsorted;
  const fm::vector<std::uint64_t> managed(h);
  managed.append(raw);
  p.compare(
      {"vector_sort", {{"elements", std::to_string(count)}, {"element", "8 B"}}, "ns", {}, "std::vector"},
      [&] {
        auto m = managed.mutate();
        std::copy(unsorted.begin(), unsorted.end(), m.begin());
        return per_operation(double(count), [&] { std::sort(m.begin(), m.end()); });
      },
      [&] {
        raw = unsorted;
        return per_operation(double(count), [&] { std::sort(raw.begin(), raw.end()); });
      });
}

/// Looking keys up that are there, by one thread; the peer has the lock that it needs for several.
void maps(program& p, fm::heap& h, std::size_t count) {
  const fm::hash_map<std::uint64_t, std::uint64_t> managed(h);
  std::unordered_map<std::uint64_t, std::uint64_t> raw;
  std::shared_mutex mutex;
  for (std::uint64_t k = 0; k < count; ++k) {
    managed.insert_or_assign(k, k);
    raw.emplace(k, k);
  }
  const std::size_t finds = 4 * count;
  for (const std::size_t keys : {std::size_t{1}, count}) {
    const auto each = [&](auto&& find) {
      random_source random(5);
      return per_operation(double(finds), [&] {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < finds; ++i) sum += find(random.below(keys));
        keep(sum);
      });
    };
    p.compare(
        {"map_find",
         {{"entries", std::to_string(count)}, {"keys_asked", std::to_string(keys)}},
         "ns",
         {},
         "std::unordered_map behind std::shared_mutex"},
        [&] { return each([&](std::uint64_t k) { return *managed.find(k); }); },
        [&] {
          return each([&](std::uint64_t k) {
            const std::shared_lock lock(mutex);
            return raw.find(k)->second;
          });
        });
  }
}

void handles(program& p, fm::heap& h, std::size_t count) {
  const fm::ptr<managed_node> one = h.make<managed_node>();
  p.measure({"ptr_made_and_dropped", {{"count", std::to_string(count)}}, "ns", {goal_kind::value_at_most, 5}, {}}, [&] {
    return per_operation(double(count), [&] {
      for (std::size_t i = 0; i < count; ++i) {
        const fm::ptr<managed_node> again(one);
        keep(again);
      }
    });
  });
  p.measure({"scope_outer", {{"count", std::to_string(count)}}, "ns", {goal_kind::value_at_most, 5}, {}}, [&] {
    return per_operation(double(count), [&] {
      for (std::size_t i = 0; i < count; ++i) {
        const fm::scope s;
        keep(s);
      }
    });
  });
  p.measure({"scope_nested", {{"count", std::to_string(count)}}, "ns", {goal_kind::value_at_most, 2}, {}}, [&] {
    const fm::scope outer;
    return per_operation(double(count), [&] {
      for (std::size_t i = 0; i < count; ++i) {
        const fm::scope s;
        keep(s);
      }
    });
  });
}

}  // namespace

int main(int argc, char** argv) {
  program p("resident", "Access to objects that are in the local cache, against plain pointers");
  std::uint64_t nodes = 0;
  p.option("--nodes", nodes, "nodes of the lists (0: 8 Mi, quick 256 Ki)");
  p.parse(argc, argv);
  const std::size_t count = nodes != 0 ? nodes : p.sized<std::size_t>(1 << 23, 1 << 18);
  return p.run([&] {
    for (const std::size_t n : {std::size_t{100'000}, count}) {
      fm::heap h({.cache = 2 * n * frame_bytes<64> + (std::uint64_t{64} << 20)});
      lists(p, h, n, visit_order::sequential, 1.3);
      lists(p, h, n, visit_order::random, 2.2);
    }
    const auto elements = p.sized<std::size_t>(1 << 25, 1 << 20);
    fm::heap h({.cache = elements * 16 + (std::uint64_t{192} << 20)});
    vectors(p, h, elements);
    sorting(p, h, p.sized<std::size_t>(1 << 22, 1 << 18));
    maps(p, h, p.sized<std::size_t>(1 << 20, 1 << 17));
    handles(p, h, p.sized<std::size_t>(20'000'000, 1'000'000));
  });
}

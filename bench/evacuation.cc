// Evacuation on an agent: bytes a second by its CPU time, in each order, and what a traversal order is good for, a tree that
// is walked through a cache much smaller than it. The agent has a core of its own.
#include <algorithm>
#include <cstdio>

#include "support/managed.h"
#include "support/scattered_tree.h"

namespace {

using namespace fm::bench;
using fm::evacuation_order;

const char* name_of(evacuation_order o) {
  switch (o) {
    case evacuation_order::address: return "address";
    case evacuation_order::depth_first: return "depth first";
    case evacuation_order::breadth_first: return "breadth first";
  }
  return "";
}

fm::cycle_report evacuate_all(fm::heap& h, evacuation_order order) {
  fm::cycle_report r = h.collect("bench", fm::evacuate::all);
  if (!r.ok()) throw fm::error(r.status, r.failure);
  const fm::cycle_part& a = r.agents[0];
  if (a.evacuation != fm::errc::ok) throw fm::error(a.evacuation, r.text());
  if (a.left_behind || a.order != order)
    throw fm::error(fm::errc::agent_full, "no room to evacuate in the order that is measured: " + r.text());
  return r;
}

// Every turn moves everything that lies in full regions, once more.
void rate_of(program& p, fm::heap& h, evacuation_order order, const char* object, const char* shape, goal wanted) {
  go_home(h);
  p.measure({"evacuation",
             {{"order", name_of(order)}, {"object", object}, {"shape", shape}, {"threads", "1"}},
             "GB/s",
             wanted,
             {}},
            [&] {
              const fm::cycle_part a = evacuate_all(h, order).agents[0];
              return turn{double(a.evacuated_bytes) / double(a.evacuation_ns), {}, 0};
            });
}

void rates(program& p, const std::string& binary, std::uint64_t bytes) {
  if (!p.wants("evacuation")) return;
  for (const auto order : {evacuation_order::address, evacuation_order::depth_first, evacuation_order::breadth_first}) {
    const goal wanted = order == evacuation_order::address ? goal{goal_kind::value_at_least, 1} : goal{};
    const counted_agent agent(p, binary, "shm://", "8GiB");
    const auto open = [&] {
      return fm::heap_options{
          .cache = std::uint64_t{64} << 20, .agents = {agent.url()}, .collect = false, .evacuation = {.order = order}};
    };
    {
      fm::heap h(open());
      const auto root = make_scattered_tree(h, bytes / 72);
      rate_of(p, h, order, "64 B", "tree, scattered", wanted);
    }
    fm::heap h(open());
    std::vector<fm::ptr<blob<1024>>> blobs(bytes / 1032);
    for (std::size_t i = 0; i < blobs.size(); ++i) blobs[i] = h.make<blob<1024>>({.number = i});
    rate_of(p, h, order, "1 KiB", "without references", wanted);
  }
}

struct walked_tree {
  std::uint64_t misses = 0, ns = 0;
};

// Depth first, left before right; nothing but the path is held.
walked_tree walk(fm::heap& h, const fm::ptr<tree_node>& root, std::size_t count) {
  const std::uint64_t misses = h.stats().misses, begin = now_ns();
  std::uint64_t sum = 0;
  std::vector<fm::ptr<tree_node>> open{root};
  while (!open.empty()) {
    const fm::ptr<tree_node> node = std::move(open.back());
    open.pop_back();
    if (!node) continue;
    const auto n = node.read();
    sum += n->value;
    open.push_back(n->right.root());
    open.push_back(n->left.root());
  }
  if (sum != std::uint64_t{count} * (count - 1) / 2) throw fm::error(fm::errc::corrupt, "the tree is another");
  return {h.stats().misses - misses, now_ns() - begin};
}

void tree_walk(program& p, const std::string& binary, std::size_t count) {
  if (!p.wants("walk_misses") && !p.wants("walk_ns") && !p.wants("first_walk_misses")) return;
  const counted_agent agent(p, binary, "shm://", "8GiB");
  const auto open = [&](evacuation_order order) {
    return fm::heap_options{.cache = count * frame_bytes<64> / 8,
                            .agents = {agent.url()},
                            .collect = false,
                            .evacuation = {.order = order}};
  };
  fm::heap scattered(open(evacuation_order::address)), ordered(open(evacuation_order::depth_first));
  const auto scattered_root = make_scattered_tree(scattered, count), root = make_scattered_tree(ordered, count);
  go_home(scattered);
  go_home(ordered);
  const std::vector<std::pair<std::string, std::string>> parameters{
      {"nodes", std::to_string(count)}, {"object", "64 B"}, {"cache", "1/8"}, {"transport", "shm"}};
  const char* const peer = "in the order of allocation, shuffled";
  walk(scattered, scattered_root, count);
  evacuate_all(ordered, evacuation_order::depth_first);
  const auto a_node = [&](std::uint64_t value) { return turn{double(value) / double(count), {}, 0}; };
  p.measure({"first_walk_misses", parameters, "a node", {}, {}}, a_node(walk(ordered, root, count).misses).value);
  walk(ordered, root, count);
  p.compare(
      {"walk_misses", parameters, "a node", {goal_kind::ratio_at_most, 0.25}, peer},
      [&] { return a_node(walk(ordered, root, count).misses); },
      [&] { return a_node(walk(scattered, scattered_root, count).misses); }, 5);
  p.compare(
      {"walk_ns", parameters, "ns a node", {}, peer}, [&] { return a_node(walk(ordered, root, count).ns); },
      [&] { return a_node(walk(scattered, scattered_root, count).ns); }, 5);
}

}  // namespace

int main(int argc, char** argv) {
  program p("evacuation", "Evacuation on an agent, and a tree walked before and after it");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    rates(p, binary, p.sized<std::uint64_t>(512ull << 20, 128ull << 20));
    tree_walk(p, binary, p.sized<std::size_t>(1 << 21, 1 << 20));
  });
}

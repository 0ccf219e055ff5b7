// What a channel's own parts cost and gain, without peers: looking up what was visited, in trees whose objects lie in the order in which
// they are met and in trees whose objects lie anywhere; and receiving the first parts of a graph while the last ones are made.
#include <unistd.h>

#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;

/// Regions that are as large as they can be: an object is at most half of one.
fm::heap_options bench_heap() {
  return {.cache = 512ull << 20, .agents = {"local:"}, .local_memory = 2ull << 30, .local_region = 32ull << 20};
}

struct branch {
  double value = 0;
  fm::ref<branch> left, right;
};

using branches = std::vector<fm::ptr<branch>>;

// Nodes [low, high) become a tree with the first of them as its root, the order being depth first.
void grow(const branches& all, std::size_t low, std::size_t high) {
  const std::size_t middle = low + 1 + (high - low - 1) / 2;
  auto root = all[low].write();
  if (middle > low + 1) root->left = all[low + 1];
  if (high > middle) root->right = all[middle];
  if (middle > low + 1) grow(all, low + 1, middle);
  if (high > middle) grow(all, middle, high);
}

fm::ptr<branch> make_tree(fm::heap& h, std::size_t count, bool scattered) {
  branches all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(h.make<branch>({.value = double(i)}));
  random_source random(5);
  if (scattered)
    for (std::size_t i = count; i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  grow(all, 0, count);
  return all.front();
}

// The worker `graphs_receiver shm|tcp`: `accept`, then `take_tree` and `take_array`, which receive one graph each.
int graphs_receiver_main(const std::vector<std::string>& args) {
  const bool tcp = args.at(0) == "tcp";
  fm::heap h(bench_heap());
  const fm::channel_options o{.window = 64 << 20};
  fm::channel_listener listener(
      h, tcp ? std::string("tcp://127.0.0.1:0") : "shm:///tmp/farmem-bench-graphs-" + std::to_string(getpid()), o);
  fm::channel from;
  const std::string& url = listener.url();
  const double port = tcp ? std::stod(url.substr(url.rfind(':') + 1)) : getpid();
  const fm::recv_options within{.within = std::chrono::seconds(60)};
  return serve_commands({{"port", port}}, [&](const std::vector<std::string>& words) -> figures {
    if (words.at(0) == "accept") from = listener.accept();
    if (words.at(0) == "take_tree") return {{"is_there", from.recv<branch>(within) ? 1 : 0}};
    if (words.at(0) == "take_array") return {{"elements", double(from.recv<double[]>(within)->size())}};
    return {};
  });
}

struct way {
  way(program& p, fm::heap& h, const std::string& transport) : there("graphs_receiver", {transport}, p.agent_core()) {
    const std::string port = std::to_string(int(there.ready().at("port")));
    there.post("accept");
    to = fm::channel::connect(h,
                              transport == "tcp" ? "tcp://127.0.0.1:" + port : "shm:///tmp/farmem-bench-graphs-" + port,
                              {.window = 64 << 20});
    there.answer("accept");
  }
  worker there;
  fm::channel to;
};

// Until the receiver has the graph; ns an object.
turn tree_turn(way& w, const fm::ptr<branch>& root, std::size_t objects, bool acyclic) {
  return per_operation(double(objects), [&] {
    w.there.post("take_tree");
    w.to.send(root, {.acyclic = acyclic, .within = std::chrono::seconds(60)});
    w.there.answer("take_tree");
  });
}

void cycle_rows(program& p, fm::heap& h, way& w, const std::string& transport) {
  if (!p.wants("cycle_detection")) return;
  const std::size_t objects = p.sized<std::size_t>(1 << 17, 1 << 10);
  for (const bool scattered : {false, true}) {
    const fm::ptr<branch> root = make_tree(h, objects, scattered);
    // What was built is written home and collected beside the first turns.
    h.collect("bench");
    for (int i = 0; i < p.sized(30, 1); ++i) tree_turn(w, root, objects, i % 2 == 0);
    p.compare(
        {"cycle_detection",
         {{"transport", transport},
          {"objects", std::to_string(objects)},
          {"they_lie", scattered ? "anywhere" : "in order"}},
         "ns an object",
         {goal_kind::ratio_at_most, scattered ? 1.2 : 1.03},
         "the same tree sent as one without cycles"},
        [&] { return tree_turn(w, root, objects, false); }, [&] { return tree_turn(w, root, objects, true); });
  }
}

void pipelining_row(program& p, fm::heap& h, way& w, const std::string& transport) {
  if (!p.wants("pipelining")) return;
  const std::size_t elements = p.sized<std::size_t>(1 << 20, 1 << 14);
  const auto array = h.array<double>(elements);
  const auto take = [&] {
    if (w.there.answer("take_array").at("elements") != double(elements))
      throw fm::error(fm::errc::corrupt, "another array was received");
  };
  p.compare(
      {"pipelining",
       {{"transport", transport}, {"elements", std::to_string(elements)}},
       "ms",
       {goal_kind::ratio_at_most, 0.8},
       "receiving when all of it has been sent"},
      [&] {
        turn t = per_operation(1e6, [&] {
          w.there.post("take_array");
          w.to.send(array, {.until = fm::delivery::sent});
          take();
        });
        return t;
      },
      [&] {
        return per_operation(1e6, [&] {
          w.to.send(array, {.until = fm::delivery::sent});
          w.there.post("take_array");
          take();
        });
      },
      15);
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv, {{"graphs_receiver", graphs_receiver_main}});
  program p("channel_graphs", "What a channel's own parts cost and gain");
  p.parse(argc, argv);
  return p.run([&] {
    fm::heap h(bench_heap());
    for (const std::string transport : {"shm", "tcp"}) {
      way w(p, h, transport);
      cycle_rows(p, h, w, transport);
      pipelining_row(p, h, w, transport);
    }
  });
}

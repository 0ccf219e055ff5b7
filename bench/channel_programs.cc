// Two programs on channels, against the same with serializers over plain sockets: a key-value store with values of 1 KiB, and the shuffle
// of a PageRank that two processes compute.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <unistd.h>

#include "peers/coded_stream.h"
#include "peers/serializer_link.h"
#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;

fm::heap_options bench_heap() { return {.cache = 256ull << 20, .agents = {"local:"}, .local_memory = 1ull << 30}; }
constexpr fm::recv_options patient{.within = std::chrono::seconds(60)};

// ---- what both sides send ----

enum operation : std::uint64_t { get = 1, set = 2, leave = 3 };

std::string channel_url(const char* what, const std::string& transport, int number) {
  return transport == "tcp" ? fmt::format("tcp://127.0.0.1:{}", number)
                            : fmt::format("shm:///tmp/farmem-bench-{}-{}", what, number);
}
double number_in(const std::string& url, const std::string& transport) {
  return transport == "tcp" ? std::stod(url.substr(url.rfind(':') + 1)) : getpid();
}
socket_kind socket_of(const std::string& transport) {
  return transport == "tcp" ? socket_kind::tcp : socket_kind::unix_domain;
}

// ---- the key-value store ----

constexpr std::size_t value_floats = 256;

struct kv_request {
  std::uint64_t what = 0, key = 0;
  fm::ref<float[]> value;
};
struct kv_done {
  std::uint64_t key = 0;
};

// The worker `kv_channel shm|tcp KEYS`.
int kv_channel_main(const std::vector<std::string>& args) {
  const std::string& transport = args.at(0);
  fm::heap h(bench_heap());
  const auto store = h.array<fm::ref<float[]>>(std::stoull(args.at(1)));
  for (std::size_t i = 0; i < store->size(); ++i) store.write()->at(i) = h.array<float>(value_floats);
  fm::channel_listener listener(h, transport == "tcp" ? "tcp://127.0.0.1:0" : channel_url("kv", transport, getpid()));
  std::thread([&] {
    fm::channel c = listener.accept(patient.within);
    for (;;) {
      const auto request = c.recv<kv_request>({.within = std::chrono::seconds(600)});
      const std::uint64_t what = request->what, key = request->key;
      switch (what) {
        case get: {
          const fm::ptr<float[]> value = store->at(key);
          c.send(value, {.until = fm::delivery::sent});
          break;
        }
        case set:
          store.write()->at(key) = request->value.root();
          c.send(h.make<kv_done>(key), {.until = fm::delivery::sent});
          break;
        default: return;
      }
    }
  }).detach();
  const int rc = serve_commands({{"port", number_in(listener.url(), transport)}},
                                [](const std::vector<std::string>&) { return figures{}; });
  _exit(rc);
}

// The worker `kv_peer shm|tcp KEYS`: a connection says first which serializer it speaks.
int kv_peer_main(const std::vector<std::string>& args) {
  stream_acceptor acceptor(socket_of(args.at(0)));
  const std::size_t keys = std::stoull(args.at(1));
  std::thread([&] {
    for (;;)
      std::thread([keys, s = acceptor.accept()]() mutable {
        std::uint32_t number = 0;
        if (!s.receive(&number, sizeof number)) return;
        std::vector<shape_data> store(keys);
        for (shape_data& d : store) d.floats.resize(value_floats);
        coded_stream c(std::move(s), serializer_names().at(number));
        std::vector<float> value;
        for (message_head h; c.receive(h, value);) {
          if (h.what == get) {
            c.send(get, h.key, &store.at(h.key));
          } else {
            store.at(h.key).floats.swap(value);
            c.send(set, h.key, nullptr);
          }
        }
      }).detach();
  }).detach();
  const int rc =
      serve_commands({{"port", double(acceptor.port())}}, [](const std::vector<std::string>&) { return figures{}; });
  _exit(rc);
}

stream connect_peer(const worker& w, const std::string& transport, const std::string& serializer_name) {
  stream s = stream::connect(socket_of(transport), std::uint16_t(w.ready().at("port")));
  const auto& names = serializer_names();
  const auto number = std::uint32_t(std::find(names.begin(), names.end(), serializer_name) - names.begin());
  if (!s.send(&number, sizeof number)) throw fm::error(fm::errc::disconnected, "the other process");
  return s;
}

// All floats of a value are the same; a program reads all that it asked for.
template <class Floats>
void check_value(const Floats& v) {
  float sum = 0;
  for (const float f : v) sum += f;
  if (v.size() != value_floats || sum != v[0] * float(value_floats))
    throw fm::error(fm::errc::corrupt, "a value of the store is torn");
}

// One request after the other, as the mix has them; K/s.
template <class Get, class Set>
turn kv_turn(std::size_t keys, double reads, std::size_t count, std::uint64_t seed, Get&& on_get, Set&& on_set) {
  random_source random(seed);
  const zipf_keys popular(keys, 0.99);
  std::vector<std::pair<std::uint64_t, bool>> order(count);
  for (auto& o : order) o = {popular(random), random.unit() < reads};
  return rate(double(count), 1e3, [&] {
    for (const auto& [key, is_get] : order) is_get ? on_get(key) : on_set(key);
  });
}

void kv_rows(program& p, fm::heap& h, const std::string& transport) {
  if (!p.wants("kv")) return;
  const std::size_t keys = p.sized<std::size_t>(10'000, 200), count = p.sized<std::size_t>(20'000, 200);
  worker ours("kv_channel", {transport, std::to_string(keys)}, p.agent_core());
  worker theirs("kv_peer", {transport, std::to_string(keys)}, p.agent_core());
  p.count_cpu_of(ours.pid());
  p.count_cpu_of(theirs.pid());
  fm::channel c = fm::channel::connect(h, channel_url("kv", transport, int(ours.ready().at("port"))));
  std::uint64_t seed = 1;
  const fm::send_options o{.until = fm::delivery::sent};
  for (const double reads : {0.5, 0.95, 1.0})
    for (const std::string& name : serializer_names()) {
      coded_stream peer(connect_peer(theirs, transport, name), name);
      shape_data fresh;
      std::vector<float> got;
      message_head head;
      const auto expect = [&](operation what, std::uint64_t key) {
        if (!peer.receive(head, got) || head.what != what || head.key != key)
          throw fm::error(fm::errc::corrupt, "the store answered something else");
      };
      p.compare(
          {"kv",
           {{"transport", transport}, {"reads", fmt::format("{:.0f} %", reads * 100)}, {"keys", std::to_string(keys)}},
           "K/s",
           {},
           name},
          [&] {
            return kv_turn(
                keys, reads, count, ++seed,
                [&](std::uint64_t key) {
                  c.send(h.make<kv_request>({.what = get, .key = key}), o);
                  const auto value = c.recv<float[]>(patient).read();
                  check_value(*value);
                },
                [&](std::uint64_t key) {
                  const auto value = h.array<float>(value_floats);
                  std::fill_n(&value.write()->at(0), value_floats, float(key % 64));
                  c.send(h.make<kv_request>({.what = set, .key = key, .value = value}), o);
                  if (c.recv<kv_done>(patient)->key != key)
                    throw fm::error(fm::errc::corrupt, "the store answered something else");
                });
          },
          [&] {
            return kv_turn(
                keys, reads, count, ++seed,
                [&](std::uint64_t key) {
                  peer.send(get, key, nullptr);
                  expect(get, key);
                  check_value(got);
                },
                [&](std::uint64_t key) {
                  fresh.floats.assign(value_floats, float(key % 64));
                  peer.send(set, key, &fresh);
                  expect(set, key);
                });
          },
          5);
    }
  c.send(h.make<kv_request>({.what = leave}), o);
  p.forget_cpu_of(ours.pid());
  p.forget_cpu_of(theirs.pid());
}

// ---- PageRank ----

/// One half of a graph: vertices [first, first + count) of 2 * count, with the edges that lead to them.
struct half {
  std::size_t first = 0, count = 0;
  std::vector<std::uint32_t> begin, from;  ///< predecessors of the i-th: from[begin[i]] to from[begin[i + 1]]
  std::vector<float> rank, degree;

  half(std::size_t vertices, std::size_t which) : first(which * vertices / 2), count(vertices / 2) {
    random_source random(7);
    const zipf_keys popular(vertices, 0.6);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    std::vector<float> all(vertices);
    for (std::size_t v = 0; v < vertices; ++v)
      for (int e = 0; e < 16; ++e) {
        const auto to = std::uint32_t(popular(random));
        ++all[v];
        if (to >= first && to < first + count) edges.emplace_back(to - std::uint32_t(first), std::uint32_t(v));
      }
    std::sort(edges.begin(), edges.end());
    begin.resize(count + 1);
    for (const auto& [to, v] : edges) ++begin[to + 1], from.push_back(v);
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    rank.assign(count, 1.f / float(vertices));
    degree.assign(all.begin() + std::ptrdiff_t(first), all.begin() + std::ptrdiff_t(first + count));
  }
  /// What each vertex here gives along each of its edges.
  template <class To>
  void give(To&& to) const {
    for (std::size_t i = 0; i < count; ++i) to[i] = rank[i] / degree[i];
  }
  template <class Mine, class Theirs>
  void gather(const Mine& mine, const Theirs& theirs) {
    const std::size_t low = first == 0 ? 0 : count;
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (std::uint32_t e = begin[i]; e < begin[i + 1]; ++e) {
        const std::size_t v = from[e];
        sum += v - low < count ? mine[v - low] : theirs[v < count ? v : v - count];
      }
      rank[i] = 0.15f / float(2 * count) + 0.85f * sum;
    }
  }
  [[nodiscard]] double sum() const { return std::accumulate(rank.begin(), rank.end(), 0.0); }
};

void iterate(half& g, fm::heap& h, fm::channel& c, std::size_t iterations) {
  for (std::size_t i = 0; i < iterations; ++i) {
    const auto mine = h.array<float>(g.count);
    {
      const auto to = mine.write();
      g.give(*to);
    }
    c.send(mine, {.until = fm::delivery::sent, .within = std::chrono::seconds(60)});
    const auto here = mine.read(), theirs = c.recv<float[]>(patient).read();
    g.gather(*here, *theirs);
  }
}

void iterate(half& g, coded_stream& c, std::size_t iterations) {
  shape_data mine;
  std::vector<float> theirs;
  mine.floats.resize(g.count);
  for (std::size_t i = 0; i < iterations; ++i) {
    g.give(mine.floats);
    message_head h;
    // The one sends first and the other receives first: both could fill their sockets otherwise.
    if (g.first == 0) c.send(set, i, &mine);
    if (!c.receive(h, theirs) || h.key != i) throw fm::error(fm::errc::corrupt, "another iteration was received");
    if (g.first != 0) c.send(set, i, &mine);
    g.gather(mine.floats, theirs);
  }
}

// The worker `rank_channel shm|tcp VERTICES`: `iterate N`, and its ranks' sum.
int rank_channel_main(const std::vector<std::string>& args) {
  fm::heap h(bench_heap());
  half g(std::stoull(args.at(1)), 1);
  fm::channel_listener listener(h,
                                args.at(0) == "tcp" ? "tcp://127.0.0.1:0" : channel_url("rank", args.at(0), getpid()));
  fm::channel c;
  return serve_commands({{"port", number_in(listener.url(), args.at(0))}}, [&](const std::vector<std::string>& words) {
    if (words.at(0) == "accept") c = listener.accept(patient.within);
    if (words.at(0) == "iterate") iterate(g, h, c, std::stoull(words.at(1)));
    return figures{{"sum", g.sum()}};
  });
}

// The worker `rank_peer shm|tcp VERTICES SERIALIZER`.
int rank_peer_main(const std::vector<std::string>& args) {
  half g(std::stoull(args.at(1)), 1);
  stream_acceptor acceptor(socket_of(args.at(0)));
  std::unique_ptr<coded_stream> c;
  return serve_commands({{"port", double(acceptor.port())}}, [&](const std::vector<std::string>& words) {
    if (words.at(0) == "accept") c = std::make_unique<coded_stream>(acceptor.accept(), args.at(2));
    if (words.at(0) == "iterate") iterate(g, *c, std::stoull(words.at(1)));
    return figures{{"sum", g.sum()}};
  });
}

void rank_rows(program& p, fm::heap& h, const std::string& transport) {
  if (!p.wants("pagerank")) return;
  const std::size_t vertices = p.sized<std::size_t>(1 << 17, 1 << 10), iterations = p.sized<std::size_t>(50, 5);
  for (const std::string& name : serializer_names()) {
    worker ours("rank_channel", {transport, std::to_string(vertices)}, p.agent_core());
    worker theirs("rank_peer", {transport, std::to_string(vertices), name}, p.agent_core());
    p.count_cpu_of(ours.pid());
    p.count_cpu_of(theirs.pid());
    half near(vertices, 0), near_peer(vertices, 0);
    ours.post("accept");
    fm::channel c = fm::channel::connect(h, channel_url("rank", transport, int(ours.ready().at("port"))));
    ours.answer("accept");
    theirs.post("accept");
    coded_stream peer(stream::connect(socket_of(transport), std::uint16_t(theirs.ready().at("port"))), name);
    theirs.answer("accept");
    double sum = 0, peer_sum = 0;
    const auto turn_of = [&](worker& w, half& g, double& total, auto&& work) {
      return per_operation(double(iterations) * 1e6, [&] {
        w.post(fmt::format("iterate {}", iterations));
        work();
        total = g.sum() + w.answer("iterate").at("sum");
      });
    };
    p.compare(
        {"pagerank",
         {{"transport", transport},
          {"vertices", std::to_string(vertices)},
          {"sent_and_received", fmt::format("{} KiB", vertices / 2 * sizeof(float) / 1024)}},
         "ms an iteration",
         {},
         name},
        [&] { return turn_of(ours, near, sum, [&] { iterate(near, h, c, iterations); }); },
        [&] { return turn_of(theirs, near_peer, peer_sum, [&] { iterate(near_peer, peer, iterations); }); }, 5);
    if (sum != peer_sum) throw fm::error(fm::errc::corrupt, "the two sides have computed other ranks");
    p.forget_cpu_of(ours.pid());
    p.forget_cpu_of(theirs.pid());
  }
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv,
                         {{"kv_channel", kv_channel_main},
                          {"kv_peer", kv_peer_main},
                          {"rank_channel", rank_channel_main},
                          {"rank_peer", rank_peer_main}});
  program p("channel_programs", "A key-value store and a PageRank of two processes, on channels and on serializers");
  p.parse(argc, argv);
  return p.run([&] {
    fm::heap h(bench_heap());
    for (const std::string transport : {"shm", "tcp"}) {
      kv_rows(p, h, transport);
      rank_rows(p, h, transport);
    }
  });
}

// Two programs on channels, against the same with serializers over plain sockets: a key-value store with values of 1 KiB, and the shuffle
// of a PageRank that two or three processes compute.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
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

/// One part of a graph: vertices [first, first + count) of `parts * count`, with the edges that lead to them.
struct part {
  std::size_t number = 0, parts = 0, first = 0, count = 0;
  std::vector<std::uint32_t> begin, from;  ///< predecessors of the i-th: from[begin[i]] to from[begin[i + 1]]
  std::vector<float> rank, degree;

  part(std::size_t vertices, std::size_t which, std::size_t of)
      : number(which), parts(of), first(which * (vertices / of)), count(vertices / of) {
    vertices = count * parts;
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
  /// `given`: what the vertices of each part give.
  void gather(std::span<const float* const> given) {
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (std::uint32_t e = begin[i]; e < begin[i + 1]; ++e) {
        std::size_t v = from[e], p = 0;
        for (; v >= count; v -= count) ++p;
        sum += given[p][v];
      }
      rank[i] = 0.15f / float(parts * count) + 0.85f * sum;
    }
  }
  [[nodiscard]] double sum() const { return std::accumulate(rank.begin(), rank.end(), 0.0); }
};

constexpr fm::send_options until_sent{.until = fm::delivery::sent, .within = std::chrono::seconds(60)};

// `others`: by the number of their part; the own place is empty.
void iterate(part& g, fm::heap& h, std::vector<fm::channel>& others, std::size_t iterations) {
  for (std::size_t i = 0; i < iterations; ++i) {
    std::vector<fm::ptr<float[]>> all(g.parts);
    all[g.number] = h.array<float>(g.count);
    {
      const auto to = all[g.number].write();
      g.give(*to);
    }
    for (std::size_t p = 0; p < g.parts; ++p)
      if (p != g.number) others[p].send(all[g.number], until_sent);
    for (std::size_t p = 0; p < g.parts; ++p)
      if (p != g.number) all[p] = others[p].recv<float[]>(patient);
    std::vector<fm::read_pin<float[]>> here;
    std::vector<const float*> given;
    for (const auto& values : all) given.push_back(here.emplace_back(values.read())->data());
    g.gather(given);
  }
}

void iterate(part& g, std::vector<std::unique_ptr<coded_stream>>& others, std::size_t iterations) {
  std::vector<shape_data> all(g.parts);
  all[g.number].floats.resize(g.count);
  for (std::size_t i = 0; i < iterations; ++i) {
    g.give(all[g.number].floats);
    // Of two parts, the first sends first and the second receives first: both could fill their sockets otherwise.
    for (std::size_t p = 0; p < g.parts; ++p) {
      if (p == g.number) continue;
      message_head h;
      if (g.number < p) others[p]->send(set, i, &all[g.number]);
      if (!others[p]->receive(h, all[p].floats) || h.key != i)
        throw fm::error(fm::errc::corrupt, "another iteration was received");
      if (g.number > p) others[p]->send(set, i, &all[g.number]);
    }
    std::vector<const float*> given;
    for (const shape_data& values : all) given.push_back(values.floats.data());
    g.gather(given);
  }
}

// Workers take these: `accept N` and `connect N PORT` make the connection to part N, `iterate N` answers the sum of the part's ranks.
int rank_worker(part& g, double port, const std::function<void(std::size_t)>& accept,
                const std::function<void(std::size_t, int)>& connect, const std::function<void(std::size_t)>& run) {
  return serve_commands({{"port", port}}, [&](const std::vector<std::string>& words) {
    const std::size_t number = std::stoull(words.at(1));
    if (words.at(0) == "accept") accept(number);
    if (words.at(0) == "connect") connect(number, std::stoi(words.at(2)));
    if (words.at(0) == "iterate") run(number);
    return figures{{"sum", g.sum()}};
  });
}

// The worker `rank_channel shm|tcp VERTICES PART PARTS`.
int rank_channel_main(const std::vector<std::string>& args) {
  fm::heap h(bench_heap());
  part g(std::stoull(args.at(1)), std::stoull(args.at(2)), std::stoull(args.at(3)));
  fm::channel_listener listener(h,
                                args.at(0) == "tcp" ? "tcp://127.0.0.1:0" : channel_url("rank", args.at(0), getpid()));
  std::vector<fm::channel> others(g.parts);
  return rank_worker(
      g, number_in(listener.url(), args.at(0)), [&](std::size_t n) { others[n] = listener.accept(patient.within); },
      [&](std::size_t n, int port) { others[n] = fm::channel::connect(h, channel_url("rank", args.at(0), port)); },
      [&](std::size_t iterations) { iterate(g, h, others, iterations); });
}

// The worker `rank_peer shm|tcp VERTICES PART PARTS SERIALIZER`.
int rank_peer_main(const std::vector<std::string>& args) {
  part g(std::stoull(args.at(1)), std::stoull(args.at(2)), std::stoull(args.at(3)));
  const std::string& name = args.at(4);
  stream_acceptor acceptor(socket_of(args.at(0)));
  std::vector<std::unique_ptr<coded_stream>> others(g.parts);
  return rank_worker(
      g, acceptor.port(), [&](std::size_t n) { others[n] = std::make_unique<coded_stream>(acceptor.accept(), name); },
      [&](std::size_t n, int port) {
        others[n] = std::make_unique<coded_stream>(stream::connect(socket_of(args.at(0)), std::uint16_t(port)), name);
      },
      [&](std::size_t iterations) { iterate(g, others, iterations); });
}

// The other parts of one side, as workers, connected with one another and with part 0, which is this process.
class rank_workers {
 public:
  rank_workers(program& p, const std::string& kind, std::vector<std::string> args, std::size_t parts,
               const std::function<void(std::size_t, int)>& connect)
      : program_(p) {
    for (std::size_t n = 1; n < parts; ++n) {
      std::vector<std::string> of = args;
      of.insert(of.begin() + 2, {std::to_string(n), std::to_string(parts)});
      all_.emplace_back(kind, of, p.agent_core());
      p.count_cpu_of(all_.back().pid());
    }
    for (std::size_t n = 1; n < parts; ++n) {
      const int port = int(port_of(n));
      for (std::size_t from = 0; from < n; ++from) {
        worker& to = all_[n - 1];
        to.post(fmt::format("accept {}", from));
        if (from == 0)
          connect(n, port);
        else
          all_[from - 1].ask(fmt::format("connect {} {}", n, port));
        to.answer("accept");
      }
    }
  }
  ~rank_workers() {
    for (const worker& w : all_) program_.forget_cpu_of(w.pid());
  }
  rank_workers(const rank_workers&) = delete;
  rank_workers& operator=(const rank_workers&) = delete;

  // ms an iteration of all parts together; `mine` does the one of this process.
  turn run(std::size_t iterations, const part& g, double& sum, const std::function<void()>& mine) {
    return per_operation(double(iterations) * 1e6, [&] {
      for (worker& w : all_) w.post(fmt::format("iterate {}", iterations));
      mine();
      sum = g.sum();
      for (worker& w : all_) sum += w.answer("iterate").at("sum");
    });
  }

 private:
  [[nodiscard]] double port_of(std::size_t n) const { return all_[n - 1].ready().at("port"); }

  program& program_;
  std::vector<worker> all_;
};

void rank_rows(program& p, fm::heap& h, const std::string& transport, std::size_t parts) {
  if (!p.wants("pagerank")) return;
  const std::size_t vertices = parts * p.sized<std::size_t>(1 << 16, 1 << 9), iterations = p.sized<std::size_t>(50, 5);
  for (const std::string& name : serializer_names()) {
    part near(vertices, 0, parts), near_peer(vertices, 0, parts);
    std::vector<fm::channel> channels(parts);
    std::vector<std::unique_ptr<coded_stream>> streams(parts);
    rank_workers ours(p, "rank_channel", {transport, std::to_string(vertices)}, parts, [&](std::size_t n, int port) {
      channels[n] = fm::channel::connect(h, channel_url("rank", transport, port));
    });
    rank_workers theirs(
        p, "rank_peer", {transport, std::to_string(vertices), name}, parts, [&](std::size_t n, int port) {
          streams[n] = std::make_unique<coded_stream>(stream::connect(socket_of(transport), std::uint16_t(port)), name);
        });
    double sum = 0, peer_sum = 0;
    p.compare(
        {"pagerank",
         {{"transport", transport},
          {"processes", std::to_string(parts)},
          {"vertices", std::to_string(vertices)},
          {"sent_and_received", fmt::format("{} KiB", near.count * sizeof(float) / 1024)}},
         "ms an iteration",
         {},
         name},
        [&] { return ours.run(iterations, near, sum, [&] { iterate(near, h, channels, iterations); }); },
        [&] { return theirs.run(iterations, near_peer, peer_sum, [&] { iterate(near_peer, streams, iterations); }); },
        5);
    if (sum != peer_sum) throw fm::error(fm::errc::corrupt, "the two sides have computed other ranks");
  }
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv,
                         {{"kv_channel", kv_channel_main},
                          {"kv_peer", kv_peer_main},
                          {"rank_channel", rank_channel_main},
                          {"rank_peer", rank_peer_main}});
  program p("channel_programs",
            "A key-value store and a PageRank of two or three processes, on channels and on serializers");
  p.parse(argc, argv);
  return p.run([&] {
    fm::heap h(bench_heap());
    for (const std::string transport : {"shm", "tcp"}) {
      kv_rows(p, h, transport);
      for (const std::size_t parts : {2, 3}) rank_rows(p, h, transport, parts);
    }
  });
}

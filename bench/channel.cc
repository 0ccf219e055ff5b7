// Graphs from heap to heap against five serializers over plain sockets: numbers, points in an array, points behind references,
// pairs. Every receiver reads every element once and answers 8 bytes over a plain socket, of the same kind for both sides.
#include <algorithm>
#include <thread>
#include <unistd.h>

#include "peers/serializer_link.h"
#include "support/managed.h"

namespace {

using namespace fm::bench;

constexpr std::uint64_t cache_bytes = 512ull << 20;

/// Regions that are as large as they can be: an object is at most half of one.
fm::heap_options bench_heap() {
  return {.cache = cache_bytes, .agents = {"local:"}, .local_memory = 2ull << 30, .local_region = 32ull << 20};
}

struct far_point {
  double x = 0, y = 0;
};
struct far_pair {
  std::int32_t number = 0;
  std::array<char, 5> text{};
};
double value_in(float v, const fm::scope&) { return v; }
double value_in(const far_point& p, const fm::scope&) { return p.x + p.y; }
double value_in(const far_pair& p, const fm::scope&) { return p.number + p.text[4]; }
double value_in(const fm::ref<far_point>& r, const fm::scope& s) { return value_in(*r.get(s), s); }

// A function of its own, as the peers' are: with a call after the loop, the compiler keeps the sum in memory throughout.
template <class T>
[[gnu::noinline]] double sum_of(std::span<const T> values, const fm::scope& s) {
  return sum_each(values.size(), [&](std::size_t i) { return value_in(values[i], s); });
}
template <class T>
double sum_of(const fm::ptr<T[]>& array) {
  const fm::scope s;
  const auto& a = *array.get(s);
  return sum_of(std::span<const T>(a.data(), a.size()), s);
}

// One graph of a shape, in the sender's heap.
struct far_shape {
  shape kind = shape::floats;
  fm::ptr<float[]> floats;
  fm::ptr<far_point[]> points;
  fm::ptr<fm::ref<far_point>[]> point_objects;
  fm::ptr<far_pair[]> pairs;

  far_shape(fm::heap& h, shape s, std::size_t n) : kind(s) {
    switch (s) {
      case shape::floats: fill(floats = h.array<float>(n), [](std::size_t i) { return float_at(i); }); break;
      case shape::points:
        fill(points = h.array<far_point>(n), [](std::size_t i) { return far_point{point_at(i).x, point_at(i).y}; });
        break;
      case shape::point_objects:
        point_objects = h.array<fm::ref<far_point>>(n);
        for (std::size_t i = 0; i < n; ++i) {
          const auto p = h.make<far_point>(point_at(i).x, point_at(i).y);
          auto to = point_objects.write();
          (*to)[i] = p;
        }
        break;
      case shape::pairs:
        fill(pairs = h.array<far_pair>(n), [](std::size_t i) {
          const shape_pair p = pair_at(i);
          return far_pair{p.number, {p.text[0], p.text[1], p.text[2], p.text[3], p.text[4]}};
        });
        break;
    }
  }
  void send(fm::channel& to) const {
    const fm::send_options o{.until = fm::delivery::sent};
    switch (kind) {
      case shape::floats: to.send(floats, o); break;
      case shape::points: to.send(points, o); break;
      case shape::point_objects: to.send(point_objects, o); break;
      case shape::pairs: to.send(pairs, o); break;
    }
  }
  static double receive(fm::channel& from, shape kind) {
    const fm::recv_options o{.within = std::chrono::seconds(600)};
    switch (kind) {
      case shape::floats: return sum_of(from.recv<float[]>(o));
      case shape::points: return sum_of(from.recv<far_point[]>(o));
      case shape::point_objects: return sum_of(from.recv<fm::ref<far_point>[]>(o));
      case shape::pairs: return sum_of(from.recv<far_pair[]>(o));
    }
    return 0;
  }

 private:
  template <class T, class F>
  static void fill(const fm::ptr<T[]>& array, F&& of) {
    auto to = array.write();
    for (std::size_t i = 0; i < to->size(); ++i) (*to)[i] = of(i);
  }
};

// The worker `channel_receiver shm|tcp`: a channel and, for the answers, a plain socket; the socket's first word is the shape.
int channel_receiver_main(const std::vector<std::string>& args) {
  const bool tcp = args.at(0) == "tcp";
  fm::heap h(bench_heap());
  fm::channel_listener listener(
      h, tcp ? std::string("tcp://127.0.0.1:0") : "shm:///tmp/farmem-bench-channel-" + std::to_string(getpid()));
  stream_acceptor answers(tcp ? socket_kind::tcp : socket_kind::unix_domain);
  std::thread([&] {
    for (;;) {
      stream back = answers.accept();
      std::uint32_t kind = 0;
      if (!back.receive(&kind, sizeof kind)) continue;
      std::thread([&listener, kind, b = std::move(back)]() mutable {
        try {
          fm::channel from = listener.accept();
          for (;;) {
            const double sum = far_shape::receive(from, shape(kind));
            if (!b.send(&sum, sizeof sum)) return;
          }
        } catch (const fm::error&) {  // the sender is done with it
        }
      }).detach();
    }
  }).detach();
  const std::string& url = listener.url();
  const double port = tcp ? std::stod(url.substr(url.rfind(':') + 1)) : getpid();
  const int rc = serve_commands({{"port", port}, {"answers", double(answers.port())}},
                                [](const std::vector<std::string>&) { return figures{}; });
  _exit(rc);
}

// The sender's end, as serializer_link is for the peers.
class channel_link {
 public:
  channel_link(fm::heap& h, const worker& receiver, bool tcp, shape kind)
      : answers_(stream::connect(tcp ? socket_kind::tcp : socket_kind::unix_domain,
                                 std::uint16_t(receiver.ready().at("answers")))) {
    const auto number = std::uint32_t(kind);
    if (!answers_.send(&number, sizeof number)) throw fm::error(fm::errc::disconnected, "the receiver");
    const std::string port = std::to_string(int(receiver.ready().at("port")));
    channel_ = fm::channel::connect(h, tcp ? "tcp://127.0.0.1:" + port : "shm:///tmp/farmem-bench-channel-" + port);
  }
  void send(const far_shape& s) { s.send(channel_); }
  double answer() {
    double sum = 0;
    if (!answers_.receive(&sum, sizeof sum)) throw fm::error(fm::errc::disconnected, "the receiver");
    return sum;
  }
  [[nodiscard]] fm::channel_stats stats() const { return channel_.stats(); }

 private:
  stream answers_;
  fm::channel channel_;
};

void check(double sum, double wanted) {
  if (sum != wanted) throw fm::error(fm::errc::corrupt, "a receiver read other elements than were sent");
}

// One at a time, each answered before the next.
template <class Link, class Data>
turn latency(Link& link, const Data& data, std::size_t count, double wanted) {
  turn t;
  t.ns.reserve(count);
  t.value = per_operation(double(count), [&] {
              for (std::size_t i = 0; i < count; ++i) {
                const std::uint64_t begin = now_ns();
                link.send(data);
                check(link.answer(), wanted);
                t.ns.push_back(std::uint32_t(now_ns() - begin));
              }
            }).value;
  return t;
}

// Up to eight under way; millions of elements a second, or the receiver's CPU time of an element in ns.
template <class Link, class Data>
turn stream_of(Link& link, const Data& data, std::size_t elements, std::size_t count, double wanted, pid_t cpu_of) {
  constexpr std::size_t ahead = 8;
  const double cpu = cpu_of != 0 ? cpu_seconds(cpu_of) : 0;
  turn t = rate(double(elements * count), 1e6, [&] {
    std::size_t answered = 0;
    for (std::size_t i = 0; i < count; ++i) {
      link.send(data);
      if (i - answered >= ahead) check(link.answer(), wanted), ++answered;
    }
    for (; answered < count; ++answered) check(link.answer(), wanted);
  });
  if (cpu_of != 0) t.value = (cpu_seconds(cpu_of) - cpu) * 1e9 / double(elements * count);
  return t;
}

std::size_t bytes_of_element(shape kind) noexcept {
  switch (kind) {
    case shape::floats: return sizeof(float);
    case shape::points: return sizeof(far_point);
    case shape::point_objects: return sizeof(fm::ref<far_point>) + sizeof(far_point);
    case shape::pairs: return sizeof(far_pair);
  }
  return 1;
}

void shape_rows(program& p, fm::heap& h, const std::string& transport, shape kind) {
  const bool tcp = transport == "tcp";
  const std::size_t few = 16, many = p.sized<std::size_t>(65'536, 1024);
  worker ours("channel_receiver", {transport}, p.agent_core());
  worker theirs("serializer_receiver", {tcp ? "tcp" : "unix"}, p.agent_core());
  p.count_cpu_of(ours.pid());
  p.count_cpu_of(theirs.pid());
  channel_link link(h, ours, tcp, kind);
  const far_shape far_few(h, kind, few), far_many(h, kind, many);
  const shape_data plain_few = make_shape(kind, few), plain_many = make_shape(kind, many);
  const double sum_few = sum_of_shape(kind, few), sum_many = sum_of_shape(kind, many);
  // The receiver's heap takes pages that are new to the process until its cache has been full. The rows of the first peer
  // would pay for them, and only those.
  const std::size_t to_warm_up = p.sized<std::size_t>(2 * cache_bytes, 1 << 20) / (many * bytes_of_element(kind));
  stream_of(link, far_many, many, to_warm_up, sum_many, 0);
  for (const std::string& name : serializer_names()) {
    serializer_link peer(theirs, tcp ? socket_kind::tcp : socket_kind::unix_domain, name);
    const auto row = [&](const std::string& what, std::size_t elements, const char* unit, goal g) {
      return row_spec{what,
                      {{"transport", transport}, {"shape", name_of(kind)}, {"elements", std::to_string(elements)}},
                      unit,
                      g,
                      name};
    };
    const auto count = p.sized<std::size_t>(20'000, 500), graphs = p.sized<std::size_t>(40, 4);
    p.compare(
        row("latency", few, "ns", {goal_kind::ratio_at_most, 0.5}),
        [&] { return latency(link, far_few, count, sum_few); },
        [&] { return latency(peer, plain_few, count, sum_few); }, 5);
    p.compare(
        row("throughput", many, "M/s", {goal_kind::ratio_at_least, kind == shape::pairs ? 1.5 : 2.0}),
        [&] { return stream_of(link, far_many, many, graphs, sum_many, 0); },
        [&] { return stream_of(peer, plain_many, many, graphs, sum_many, 0); }, 5);
    p.compare(
        row("receiver_cpu", many, "ns an element", {goal_kind::ratio_at_most, 0.5}),
        [&] { return stream_of(link, far_many, many, 3 * graphs, sum_many, ours.pid()); },
        [&] { return stream_of(peer, plain_many, many, 3 * graphs, sum_many, theirs.pid()); }, 5);
    // Arrays of all sizes, against those that do not decode.
    if ((kind != shape::floats && kind != shape::points) || (name != "flatbuffers" && name != "capnproto")) continue;
    if (!p.wants("sizes")) continue;
    for (const std::size_t elements : {std::size_t{1}, std::size_t{1} << 10,
                                       p.sized<std::size_t>(kind == shape::points ? 1 << 19 : 1 << 20, 1 << 12)}) {
      const far_shape far(h, kind, elements);
      const shape_data plain = make_shape(kind, elements);
      const double sum = sum_of_shape(kind, elements);
      const std::size_t times = std::clamp<std::size_t>((1 << 23) / elements, 8, count / 4);
      p.compare(
          row("sizes", elements, "ns", {}), [&] { return latency(link, far, times, sum); },
          [&] { return latency(peer, plain, times, sum); }, 3);
    }
  }
  const fm::channel_stats before = link.stats();
  link.send(far_many);
  check(link.answer(), sum_many);
  p.measure({"wire_bytes",
             {{"transport", transport}, {"shape", name_of(kind)}, {"elements", std::to_string(many)}},
             "an element",
             {},
             {}},
            double(link.stats().wire_bytes_sent - before.wire_bytes_sent) / double(many));
  p.forget_cpu_of(ours.pid());
  p.forget_cpu_of(theirs.pid());
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(
      argc, argv, {{"channel_receiver", channel_receiver_main}, {"serializer_receiver", serializer_receiver_main}});
  program p("channel", "Graphs from heap to heap, against serializers over plain sockets");
  std::string only_transport, only_shape;
  p.option("--transport", only_transport, "only this one (shm or tcp; empty: both)");
  p.option("--shape", only_shape, "only this one (floats, points, 'point objects', pairs; empty: all)");
  p.parse(argc, argv);
  return p.run([&] {
    fm::heap h(bench_heap());
    for (const std::string transport : {"shm", "tcp"}) {
      if (!only_transport.empty() && only_transport != transport) continue;
      for (const shape kind : {shape::floats, shape::points, shape::point_objects, shape::pairs})
        if (only_shape.empty() || only_shape == name_of(kind)) shape_rows(p, h, transport, kind);
    }
  });
}

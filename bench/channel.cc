// Graphs from heap to heap against five serializers over plain sockets: numbers, points in an array, points behind references,
// pairs. Every receiver reads every element once and answers 8 bytes over a plain socket, of the same kind for both sides.
#include <algorithm>

#include "peers/serializer_link.h"
#include "support/channel_link.h"

namespace {

using namespace fm::bench;

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
  const std::size_t to_warm_up =
      p.sized<std::size_t>(2 * channel_cache_bytes, 1 << 20) / (many * bytes_of_element(kind));
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
    fm::heap h(channel_heap());
    for (const std::string transport : {"shm", "tcp"}) {
      if (!only_transport.empty() && only_transport != transport) continue;
      for (const shape kind : {shape::floats, shape::points, shape::point_objects, shape::pairs})
        if (only_shape.empty() || only_shape == name_of(kind)) shape_rows(p, h, transport, kind);
    }
  });
}

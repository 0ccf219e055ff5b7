// Naos (USENIX ATC 2021): figures 1 and 9 to 11 and the sender's part of table 3. Kryo, the paper's fastest serializer in Java, has no
// counterpart in C++; each row has all of the five that the other benchmarks of channels have.
#include <algorithm>
#include <memory>
#include <thread>
#include <unistd.h>

#include "../peers/coded_stream.h"
#include "../peers/serializer_link.h"
#include "../peers/tcp.h"
#include "../support/channel_link.h"
#include "papers.h"

namespace fm::bench {
namespace {

constexpr recv_options patient{.within = std::chrono::seconds(60)};
constexpr send_options sent{.until = delivery::sent, .within = std::chrono::seconds(60)};

std::string url_of(const char* what, const std::string& transport, int number) {
  return transport == "tcp" ? "tcp://127.0.0.1:" + std::to_string(number)
                            : "shm:///tmp/farmem-bench-" + std::string(what) + "-" + std::to_string(number);
}
double number_in(const std::string& url, const std::string& transport) {
  return transport == "tcp" ? std::stod(url.substr(url.rfind(':') + 1)) : getpid();
}
socket_kind socket_of(const std::string& transport) {
  return transport == "tcp" ? socket_kind::tcp : socket_kind::unix_domain;
}
void check(bool right) {
  if (!right) throw error(errc::corrupt, "other elements were received than were sent");
}

// Arrays of `elements`, `times` of them, with up to eight under way; the sum of each is answered.
template <class Link, class Data>
void stream_all(Link& link, const Data& data, std::size_t times, double sum) {
  constexpr std::size_t ahead = 8;
  std::size_t answered = 0;
  for (std::size_t i = 0; i < times; ++i) {
    link.send(data);
    if (i - answered >= ahead) check(link.answer() == sum), ++answered;
  }
  for (; answered < times; ++answered) check(link.answer() == sum);
}

// Figure 9: many point objects, in chunks. Table 3: the sender's CPU time for an array of 1024, or of 8192 floats.
void streams(program& p, heap& h, const std::string& transport) {
  if (!p.wants("naos_9") && !p.wants("naos_t3")) return;
  worker ours("channel_receiver", {transport}, p.agent_core());
  worker theirs("serializer_receiver", {transport == "tcp" ? "tcp" : "unix"}, p.agent_core());
  p.count_cpu_of(ours.pid());
  p.count_cpu_of(theirs.pid());
  const auto rows = [&](const std::string& name, shape kind, std::size_t elements, std::size_t times, goal g,
                        bool cpu) {
    channel_link link(h, ours, transport == "tcp", kind);
    const far_shape far(h, kind, elements);
    const shape_data plain = make_shape(kind, elements);
    const double sum = sum_of_shape(kind, elements), all = double(elements * times);
    const auto side = [&](auto& to, const auto& data) {
      const double before = cpu ? cpu_seconds(0) : 0;
      turn t = rate(all, 1e6, [&] { stream_all(to, data, times, sum); });
      if (cpu) t.value = (cpu_seconds(0) - before) * 1e9 / all;
      return t;
    };
    side(link, far);
    for (const std::string& peer_name : serializer_names()) {
      serializer_link peer(theirs, socket_of(transport), peer_name);
      p.compare(
          {name,
           {{"transport", transport}, {"shape", name_of(kind)}, {"elements", std::to_string(elements)}},
           cpu ? "ns an element" : "M/s",
           g,
           peer_name},
          [&] { return side(link, far); }, [&] { return side(peer, plain); }, 3);
    }
  };
  const auto total = p.sized<std::size_t>(1 << 18, 1 << 13);
  if (p.wants("naos_9"))
    for (const std::size_t chunk : {256, 4'096, 65'536})
      rows("naos_9", shape::point_objects, std::min(chunk, total), std::max<std::size_t>(total / chunk, 1),
           {goal_kind::ratio_at_least, 2.1}, false);
  if (p.wants("naos_t3")) {
    const auto times = p.sized<std::size_t>(400, 20);
    rows("naos_t3", shape::point_objects, 1024, times, {goal_kind::ratio_at_most, 0.48}, true);
    rows("naos_t3", shape::floats, 8192, times, {goal_kind::ratio_at_most, 0.23}, true);
  }
  p.forget_cpu_of(ours.pid());
  p.forget_cpu_of(theirs.pid());
}

// Figure 1: of the time that an array of point objects takes over a socket, the share that its bytes alone would not take.
void beside_the_bytes(program& p, heap& h) {
  if (!p.wants("naos_1")) return;
  const auto elements = p.sized<std::size_t>(1 << 17, 1 << 10);
  const tcp_server bare(p.agent_core());
  worker ours("channel_receiver", {"tcp"}, p.agent_core()), theirs("serializer_receiver", {"tcp"}, p.agent_core());
  const double sum = sum_of_shape(shape::point_objects, elements);
  const far_shape far(h, shape::point_objects, elements);
  const shape_data plain = make_shape(shape::point_objects, elements);
  const auto share = [&](const std::string& by, auto& link, const auto& data, auto&& wire_bytes) {
    p.measure(
        {"naos_1", {{"transport", "tcp"}, {"elements", std::to_string(elements)}, {"by", by}}, "of the time", {}, {}},
        [&] {
          const std::uint64_t begin = now_ns();
          link.send(data);
          check(link.answer() == sum);
          const double all = double(now_ns() - begin) * 1e-9;
          return turn{1 - tcp_stream(bare.port(), wire_bytes(), 256 << 10) / all, {}, 0};
        });
  };
  channel_link link(h, ours, true, shape::point_objects);
  std::uint64_t before = 0;
  share("farmem", link, far, [&] {
    const std::uint64_t now = link.stats().wire_bytes_sent;
    return now - std::exchange(before, now);
  });
  for (const std::string& name : serializer_names()) {
    serializer_link peer(theirs, socket_kind::tcp, name);
    share(name, peer, plain, [&] { return peer.wire_bytes(); });
  }
}

// ---- figure 10 ----

struct way {
  way(program& p, heap& h, const std::string& transport, std::uint32_t part)
      : there("naos_taker", {transport, std::to_string(part)}, p.agent_core()) {
    there.post("accept");
    to = channel::connect(h, url_of("taker", transport, int(there.ready().at("port"))),
                          {.window = 64 << 20, .part = part});
    there.answer("accept");
  }
  worker there;
  channel to;
};

void pipelining(program& p, heap& h, const std::string& transport) {
  if (!p.wants("naos_10")) return;
  const auto elements = p.sized<std::size_t>(1 << 18, 1 << 12);
  const far_shape graph(h, shape::point_objects, elements);
  constexpr std::uint32_t largest = 512 << 10;  // 64 of them are on their way at most: all of the graph
  way whole(p, h, transport, largest);
  for (const std::uint32_t part : {16u << 10, 64u << 10, 256u << 10}) {
    way pieces(p, h, transport, part);
    const auto take = [&](way& w) { check(w.there.answer("take").at("elements") == double(elements)); };
    p.compare(
        {"naos_10",
         {{"transport", transport},
          {"elements", std::to_string(elements)},
          {"part", std::to_string(part >> 10) + " KiB"}},
         "ms",
         {goal_kind::ratio_at_most, 0.8},
         "receiving when all of it has been sent"},
        [&] {
          return per_operation(1e6, [&] {
            pieces.there.post("take");
            pieces.to.send(graph.point_objects, sent);
            take(pieces);
          });
        },
        [&] {
          return per_operation(1e6, [&] {
            whole.to.send(graph.point_objects, sent);
            whole.there.post("take");
            take(whole);
          });
        },
        5);
  }
}

// ---- figure 11 ----

void echoes(program& p, heap& h, const std::string& transport) {
  if (!p.wants("naos_11")) return;
  worker ours("naos_echo", {transport}, p.agent_core());
  p.count_cpu_of(ours.pid());
  channel c = channel::connect(h, url_of("echo", transport, int(ours.ready().at("port"))));
  for (const std::string& name : serializer_names()) {
    worker theirs("naos_peer_echo", {name}, p.agent_core());
    p.count_cpu_of(theirs.pid());
    coded_stream peer(stream::connect(socket_kind::tcp, std::uint16_t(theirs.ready().at("port"))), name);
    for (const std::size_t bytes : {64, 1'024, 16'384}) {
      const auto count = p.sized<std::size_t>(3'000, 100);
      const far_shape far(h, shape::floats, bytes / 4);
      const shape_data plain = make_shape(shape::floats, bytes / 4);
      message_head head;
      std::vector<float> back;
      p.compare(
          {"naos_11",
           {{"transport", transport + ", peers tcp"}, {"bytes", std::to_string(bytes)}},
           "ns",
           {goal_kind::ratio_at_most, 0.45},
           name},
          [&] {
            return medians(count, [&](std::size_t) {
              c.send(far.floats, sent);
              const auto got = c.recv<float[]>(patient);
              check(got->size() == bytes / 4);
            });
          },
          [&] {
            return medians(count, [&](std::size_t) {
              peer.send(0, 0, &plain);
              check(peer.receive(head, back) && back.size() == bytes / 4);
            });
          },
          3);
    }
    p.forget_cpu_of(theirs.pid());
  }
  p.forget_cpu_of(ours.pid());
}

}  // namespace

int naos_taker_main(const std::vector<std::string>& args) {
  heap h(channel_heap());
  const channel_options o{.window = 64 << 20, .part = std::uint32_t(std::stoul(args.at(1)))};
  channel_listener listener(h, args.at(0) == "tcp" ? "tcp://127.0.0.1:0" : url_of("taker", args.at(0), getpid()), o);
  channel from;
  return serve_commands({{"port", number_in(listener.url(), args.at(0))}},
                        [&](const std::vector<std::string>& words) -> figures {
                          if (words.at(0) == "accept") from = listener.accept();
                          if (words.at(0) == "take")
                            return {{"elements", double(from.recv<ref<far_point>[]>(patient) -> size())}};
                          return {};
                        });
}

int naos_echo_main(const std::vector<std::string>& args) {
  heap h(channel_heap());
  channel_listener listener(h, args.at(0) == "tcp" ? "tcp://127.0.0.1:0" : url_of("echo", args.at(0), getpid()));
  std::thread([&] {
    try {
      channel c = listener.accept(std::chrono::seconds(60));
      for (;;) c.send(c.recv<float[]>({.within = std::chrono::seconds(600)}), sent);
    } catch (const error&) {  // the caller is done with it
    }
  }).detach();
  const int rc = serve_commands({{"port", number_in(listener.url(), args.at(0))}},
                                [](const std::vector<std::string>&) { return figures{}; });
  _exit(rc);
}

int naos_peer_echo_main(const std::vector<std::string>& args) {
  stream_acceptor acceptor(socket_kind::tcp);
  std::thread([&] {
    coded_stream c(acceptor.accept(), args.at(0));
    message_head head;
    shape_data data;
    while (c.receive(head, data.floats)) c.send(0, 0, &data);
  }).detach();
  const int rc =
      serve_commands({{"port", double(acceptor.port())}}, [](const std::vector<std::string>&) { return figures{}; });
  _exit(rc);
}

void naos_rows(program& p) {
  if (!p.wants("naos_1") && !p.wants("naos_9") && !p.wants("naos_t3") && !p.wants("naos_10") && !p.wants("naos_11"))
    return;
  heap h(channel_heap());
  beside_the_bytes(p, h);
  for (const std::string transport : {"shm", "tcp"}) {
    streams(p, h, transport);
    // Over tcp nobody empties the socket before the receiver asks: a graph that is larger than it cannot be sent whole first.
    if (transport == "shm") pipelining(p, h, transport);
    echoes(p, h, transport);
  }
}

}  // namespace fm::bench

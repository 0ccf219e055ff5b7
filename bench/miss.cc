// A miss of 64 bytes, with the eviction that it causes: objects are read round and round in one random order that is two
// or four times as long as the cache, so that each has been evicted when its turn comes again.
#include "heap/heap_core.h"
#include <cstdio>

#include "peers/chase.h"
#include "peers/tcp.h"
#include "support/managed.h"

namespace {

using namespace fm::bench;

class ring {
 public:
  ring(fm::heap& h, std::uint64_t working_set)
      : heap_(h),
        order_(visiting_order(working_set / frame_bytes<64>, visit_order::random, 1)),
        objects_(order_.size()) {
    for (std::size_t i = 0; i < objects_.size(); ++i) objects_[i] = h.make<blob<64>>(i);
  }

  // `count` reads, one after the other, each timed.
  void read(std::size_t count, std::vector<std::uint32_t>& ns) {
    std::uint64_t last = now_ns();
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t at = step();
      check(objects_[at]->number == at);
      const std::uint64_t now = now_ns();
      ns.push_back(std::uint32_t(std::min<std::uint64_t>(now - last, UINT32_MAX)));
      last = now;
    }
  }

  // `count` reads with up to `in_flight` fetches under way: while one half of them is read, the other is on its way.
  void read_ahead(std::size_t count, std::size_t in_flight) {
    const std::size_t half = std::max<std::size_t>(1, in_flight / 2);
    std::vector<std::uint32_t> now(half), next(half);
    std::vector<fm::detail::slot_t> slots(half);
    const auto ask = [&](std::vector<std::uint32_t>& numbers) {
      for (std::size_t i = 0; i < half; ++i) {
        numbers[i] = step();
        slots[i] = objects_[numbers[i]].slot();
      }
      if (in_flight > 1) heap_.core().cache().detached().prefetch(slots.data(), half);
    };
    ask(now);
    for (std::size_t done = 0; done < count; done += half) {
      if (in_flight > 1) ask(next);
      for (const std::uint32_t n : now) check(objects_[n]->number == n);
      if (in_flight > 1)
        now.swap(next);
      else
        ask(now);
    }
  }

 private:
  std::uint32_t step() {
    const std::uint32_t at = order_[next_];
    next_ = next_ + 1 == order_.size() ? 0 : next_ + 1;
    return at;
  }
  static void check(bool right) {
    if (!right) throw fm::error(fm::errc::corrupt, "an object that answers for another");
  }

  fm::heap& heap_;
  std::vector<std::uint32_t> order_;
  std::vector<fm::ptr<blob<64>>> objects_;
  std::size_t next_ = 0;
};

turn timed(ring& r, std::size_t count) {
  turn t;
  t.ns.reserve(count);
  t.value = per_operation(double(count), [&] { r.read(count, t.ns); }).value;
  return t;
}

turn ping(tcp_ping& peer, std::size_t count) {
  turn t;
  t.ns.reserve(count);
  t.value = per_operation(double(count), [&] { peer.run(count, t.ns); }).value;
  return t;
}

// A row says how many of its reads really missed.
double miss_share(fm::heap& h, std::uint64_t misses_before, std::uint64_t reads) {
  return double(h.stats().misses - misses_before) / double(reads);
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv, {{"tcp_server", tcp_server_main}});
  program p("miss", "A read of 64 bytes that misses, against a round trip of the same bytes");
  std::string binary;
  std::uint64_t request_bytes = 48, reply_overhead = 40;
  p.option("--agent", binary, "the farmem-agent to run");
  p.option("--request-bytes", request_bytes, "bytes of a fetch request on the wire, for the peer");
  p.option("--reply-overhead", reply_overhead, "bytes around the object in the answer, for the peer");
  p.parse(argc, argv);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      const counted_agent agent(p, binary, url, "4GiB");
      const bool is_tcp = transport == "tcp";
      const std::uint64_t cache_bytes = std::uint64_t{is_tcp ? 8u : 32u} << 20;
      const auto count = p.sized<std::size_t>(is_tcp ? 30'000 : 500'000, 5'000);
      for (const std::uint64_t times : {2u, 4u}) {
        fm::heap h({.cache = cache_bytes, .agents = {agent.url()}});
        ring r(h, times * cache_bytes);
        std::vector<std::uint32_t> untimed;
        if (const fm::errc outcome = h.evict_all(); outcome != fm::errc::ok)
          throw fm::error(outcome, "evicting everything");
        r.read(cache_bytes / frame_bytes<64>, untimed);  // the cache is full when the clock starts
        const std::uint64_t before = h.stats().misses;
        r.read(count, untimed);
        char share[16];
        std::snprintf(share, sizeof share, "%.3f", miss_share(h, before, count));
        row_spec spec{
            "miss_64",
            {{"transport", transport}, {"working set", std::to_string(times) + "x cache"}, {"misses a read", share}},
            "ns",
            {},
            {}};
        if (!is_tcp) {
          spec.wanted = {goal_kind::median_ns_at_most, 1500};
          p.measure(spec, [&] { return timed(r, count); });
        } else {
          const tcp_server server(p.agent_core());
          p.count_cpu_of(server.pid());
          for (const waiting how : {waiting::spinning, waiting::blocking}) {
            spec.wanted = how == waiting::blocking ? goal{} : goal{goal_kind::ratio_at_most, 1.3};
            spec.peer_name =
                how == waiting::spinning ? "plain TCP, both ends spinning" : "plain TCP, both ends blocking";
            p.compare(
                spec, [&] { return timed(r, count); },
                [&] {
                  // A connection for each turn: the server of a spinning one would spin through our turns as well.
                  tcp_ping peer(server.port(), std::uint32_t(request_bytes), std::uint32_t(64 + reply_overhead), how);
                  return ping(peer, count);
                });
          }
          p.forget_cpu_of(server.pid());
        }
        p.compare(
            {"in_flight_16",
             {{"transport", transport}, {"working set", std::to_string(times) + "x cache"}},
             "Kops/s",
             is_tcp ? goal{goal_kind::ratio_at_least, 6} : goal{},
             "one in flight"},
            [&] { return rate(double(count), 1e3, [&] { r.read_ahead(count, 16); }); },
            [&] { return rate(double(count), 1e3, [&] { r.read_ahead(count, 1); }); });
      }
    }
  });
}

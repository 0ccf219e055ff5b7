// The peers alone, without farmem: what this machine gives to the things that farmem is compared with, and how steady
// that is. Every row is a peer against itself, against its ideal, or against another setting of it.
#include "base/base.h"
#include <cstdio>

#include "peers/allocation.h"
#include "peers/chase.h"
#include "peers/memory_copy.h"
#include "peers/plain_key_value.h"
#include "peers/tcp.h"
#include "support/key_value.h"
#include "support/limits.h"
#include "support/program.h"

namespace {

using namespace fm::bench;
using fm::error;

turn walk_turn(const raw_list& list) {
  return per_operation(double(list.size()), [&] { keep(list.walk()); });
}

turn ping_turn(tcp_ping& ping, std::size_t count) {
  turn t;
  t.ns.reserve(count);
  t.value = per_operation(double(count), [&] { ping.run(count, t.ns); }).value;
  return t;
}

void resident(program& p, std::uint64_t nodes) {
  const raw_list in_order(nodes, visit_order::sequential, 1), scattered(nodes, visit_order::random, 1);
  p.compare(
      {"chase", {{"nodes", std::to_string(nodes)}, {"node", "64 B"}}, "ns", {}, "the same list in order"},
      [&] { return walk_turn(scattered); }, [&] { return walk_turn(in_order); });
}

void allocation(program& p, std::size_t count) {
  p.compare(
      {"allocation",
       {{"objects", std::to_string(count)}, {"object", "64 B"}},
       "ns",
       {},
       "mimalloc reusing freed blocks"},
      [&] {
        return turn{mimalloc_64(count, true), {}, 0};
      },
      [&] {
        return turn{mimalloc_64(count, false), {}, 0};
      });
}

void tcp(program& p) {
  const tcp_server server(p.agent_core());
  p.count_cpu_of(server.pid());
  {
    tcp_ping spinning(server.port(), 64, 64, waiting::spinning), blocking(server.port(), 64, 64, waiting::blocking);
    const auto count = p.sized<std::size_t>(20000, 2000);
    p.compare(
        {"tcp_round_trip", {{"bytes", "64 in, 64 out"}}, "ns", {}, "both ends blocking"},
        [&] { return ping_turn(spinning, count); }, [&] { return ping_turn(blocking, count); });
    p.compare(
        {"tcp_in_flight", {{"bytes", "64 in, 64 out"}, {"in flight", "16"}}, "ns", {}, "one in flight"},
        [&] { return per_operation(double(count), [&] { blocking.run_pipelined(count, 16); }); },
        [&] { return ping_turn(blocking, count); });
  }
  const auto bytes = p.sized<std::uint64_t>(std::uint64_t{2} << 30, std::uint64_t{256} << 20);
  const auto stream = [&](std::uint32_t chunk) {
    return turn{double(bytes) / (1 << 20) / tcp_stream(server.port(), bytes, chunk), {}, 0};
  };
  p.compare(
      {"tcp_stream", {{"chunk", "64 KiB"}}, "MiB/s", {}, "chunks of 1 MiB"}, [&] { return stream(64 << 10); },
      [&] { return stream(1 << 20); });
  p.forget_cpu_of(server.pid());
}

void copying(program& p) {
  const auto bytes = p.sized<std::uint64_t>(std::uint64_t{512} << 20, std::uint64_t{128} << 20);
  memory_copy large(bytes, 4096, 1), small(bytes, 64, 1);
  p.compare(
      {"memcpy",
       {{"object", "4 KiB"}, {"buffer", std::to_string(bytes >> 20) + " MiB"}},
       "MiB/s",
       {},
       "objects of 64 B"},
      [&] {
        return turn{large.run(), {}, 0};
      },
      [&] {
        return turn{small.run(), {}, 0};
      });
}

// The kernel's swap against everything in memory, for two settings of its read-ahead.
void swapping(program& p, std::uint64_t keys) {
  if (!p.wants("swap_key_value")) return;
  const std::uint64_t data = kv_data_bytes(keys);
  for (const int read_ahead : {0, 3}) {
    for (const double s : {0.0, 0.99}) {
      for (const double writes : {0.0, 0.5}) {
        const row_spec spec{"swap_key_value",
                            {{"keys", std::to_string(keys)},
                             {"value", "128 B"},
                             {"local", "25%"},
                             {"zipf", std::to_string(s).substr(0, 4)},
                             {"writes", std::to_string(writes).substr(0, 3)},
                             {"page-cluster", std::to_string(read_ahead)}},
                            "Kops/s",
                            {},
                            "everything in memory"};
        try {
          const ram_swap disk(2 * data, read_ahead);
          const memory_cgroup quarter("peer", data / 4);
          worker limited("plain_kv", {std::to_string(keys)}, p.pinned() ? 0 : -1, quarter.procs());
          worker ideal("plain_kv", {std::to_string(keys)}, p.pinned() ? 0 : -1);
          p.count_cpu_of(limited.pid());
          p.count_cpu_of(ideal.pid());
          int seed = 0;
          const auto run = [&](worker& w, std::uint64_t operations) {
            const std::string command = "run " + std::to_string(s) + " " + std::to_string(writes) + " " +
                                        std::to_string(operations) + " " + std::to_string(++seed) + " 0";
            return turn{w.ask(command).at("ops_per_s") / 1e3, {}, 0};
          };
          p.compare(
              spec, [&] { return run(limited, p.sized<std::uint64_t>(200'000, 20'000)); },
              [&] { return run(ideal, p.sized<std::uint64_t>(2'000'000, 200'000)); }, 5);
          p.forget_cpu_of(limited.pid());
          p.forget_cpu_of(ideal.pid());
        } catch (const error& e) {
          p.left_out(spec, e.what());
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv, {{"tcp_server", tcp_server_main}, {"plain_kv", plain_key_value_main}});
  program p("peers", "What this machine gives to the peers of the other benchmarks");
  std::uint64_t nodes = 0, keys = 0;
  p.option("--nodes", nodes, "nodes of the lists (0: 8 Mi, quick 1 Mi)");
  p.option("--keys", keys, "keys of the swapped store (0: 2 Mi, quick 256 Ki)");
  p.parse(argc, argv);
  return p.run([&] {
    swapping(p, keys != 0 ? keys : p.sized<std::uint64_t>(1 << 21, 1 << 18));
    resident(p, nodes != 0 ? nodes : p.sized<std::uint64_t>(1 << 23, 1 << 20));
    allocation(p, p.sized<std::size_t>(1 << 22, 1 << 18));
    tcp(p);
    copying(p);
  });
}

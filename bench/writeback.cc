// Write-back until indexed and acknowledged: all objects of the cache are made dirty, then the clock runs until the agent
// has acknowledged the last of them and its frame is dropped, grace periods included.
#include <cstdio>

#include "peers/memory_copy.h"
#include "peers/tcp.h"
#include "support/managed.h"

namespace {

using namespace fm::bench;

template <std::size_t Bytes>
class dirty_set {
 public:
  dirty_set(fm::heap& h, std::uint64_t bytes) : heap_(h), objects_(bytes / Bytes) {
    for (std::size_t i = 0; i < objects_.size(); ++i) objects_[i] = h.make<blob<Bytes>>(i);
  }
  [[nodiscard]] double count() const noexcept { return double(objects_.size()); }
  // Dirties every object, untimed, and gives the seconds until all are home.
  double write_back() {
    for (auto& o : objects_) o.write()->more[0] += 1;
    const std::uint64_t begin = now_ns();
    const fm::errc outcome = heap_.evict_all();
    const double seconds = double(now_ns() - begin) * 1e-9;
    if (outcome != fm::errc::ok) throw fm::error(outcome, "writing everything back");
    return seconds;
  }

 private:
  fm::heap& heap_;
  std::vector<fm::ptr<blob<Bytes>>> objects_;
};

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv, {{"tcp_server", tcp_server_main}});
  program p("writeback", "Dirty objects brought home, against memcpy and a plain TCP stream of the same bytes");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  const auto bytes = p.sized<std::uint64_t>(std::uint64_t{256} << 20, std::uint64_t{32} << 20);
  const std::string size = std::to_string(bytes >> 20) + " MiB";
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      const bool is_tcp = transport == "tcp";
      const counted_agent agent(p, binary, url, "8GiB");
      {
        fm::heap h({.cache = bytes * 5 / 4 + (std::uint64_t{32} << 20), .agents = {agent.url()}});
        dirty_set<4096> objects(h, bytes);
        const auto ours = [&] { return turn{objects.count() * 4096 / (1 << 20) / objects.write_back(), {}, 0}; };
        row_spec spec{"objects_4k", {{"transport", transport}, {"dirty", size}}, "MiB/s", {}, {}};
        if (is_tcp) {
          const tcp_server server(p.agent_core());
          p.count_cpu_of(server.pid());
          spec.wanted = {goal_kind::ratio_at_least, 0.7};
          spec.peer_name = "plain TCP stream in chunks of 1 MiB";
          p.compare(spec, ours, [&] {
            return turn{double(bytes >> 20) / tcp_stream(server.port(), bytes, 1 << 20), {}, 0};
          });
          p.forget_cpu_of(server.pid());
        } else {
          memory_copy peer(bytes, 4096, 1);
          spec.wanted = {goal_kind::ratio_at_least, 0.5};
          spec.peer_name = "memcpy";
          p.compare(spec, ours, [&] { return turn{peer.run(), {}, 0}; });
        }
      }
      fm::heap h({.cache = bytes * 2 + (std::uint64_t{32} << 20), .agents = {agent.url()}});
      dirty_set<64> objects(h, bytes / 2);
      p.measure({"objects_64",
                 {{"transport", transport}, {"dirty", std::to_string(bytes >> 21) + " MiB"}},
                 "M/s",
                 is_tcp ? goal{} : goal{goal_kind::value_at_least, 5},
                 {}},
                [&] {
                  return turn{objects.count() / 1e6 / objects.write_back(), {}, 0};
                });
    }
  });
}

// Memory beyond the payload: bytes an object on the memory node, everything that the agent has resident counted, and on the compute
// node, before and after table pages are given back. Figures of one run each; memory does not vary like time.
#include "os/os.h"
#include <cstdio>

#include "support/managed.h"

namespace {

using namespace fm::bench;

// The regions of shm:// are shared memory of the agent, which this process maps.
double resident_private() {
  const fm::os::resident_memory m = fm::os::resident_memory_of();
  return double(m.total_bytes - m.shared_bytes);
}

double bytes_an_object(double bytes, std::size_t objects) { return bytes / double(objects); }

constexpr std::uint64_t cache = std::uint64_t{16} << 20;  // far less than the objects, so that all of it is touched

// Objects held by one root: a chain of managed vectors of references would be data of its own, so they go in one list.
template <std::size_t Bytes>
struct linked {
  fm::ref<linked> next;
  std::array<std::uint64_t, Bytes / 8 - 1> more{};
};

template <std::size_t Bytes>
fm::ptr<linked<Bytes>> make_list(fm::heap& h, std::size_t count) {
  fm::ptr<linked<Bytes>> all;
  for (std::size_t i = 0; i < count; ++i) all = h.make<linked<Bytes>>(all);
  if (const fm::errc outcome = h.evict_all(); outcome != fm::errc::ok) throw fm::error(outcome, "evicting everything");
  return all;
}

// The same on the compute node with a budget for the table, once pages were given back.
template <std::size_t Bytes>
void local_given_back(program& p, const std::string& binary, std::size_t count) {
  constexpr std::uint64_t budget = std::uint64_t{1} << 20;
  const counted_agent agent(p, binary, "shm://", "8GiB");
  fm::heap h({.cache = cache, .agents = {agent.url()}, .hit = budget});
  const auto before = resident_private();
  const auto all = make_list<Bytes>(h, count);
  for (int i = 0; i < 1000 && h.stats().hit_bytes > budget + (budget >> 4); ++i)
    (void)h.evict_all(std::chrono::milliseconds(10));
  const double grown = resident_private() - before - double(cache);
  p.measure({"local_tables_given_back",
             {{"object", std::to_string(Bytes) + " B"}, {"objects", std::to_string(count)}, {"budget", "1 MiB"}},
             "B",
             {},
             {}},
            bytes_an_object(grown, count));
  if (const fm::verify_report v = h.verify(); !v.ok()) throw fm::error(fm::errc::corrupt, v.messages.front());
}

template <std::size_t Bytes>
void home_and_local(program& p, const std::string& binary, std::size_t count) {
  const counted_agent agent(p, binary, "shm://", "8GiB");
  const auto agent_before = double(fm::os::resident_memory_of(agent.pid()).total_bytes);
  const double unopened = resident_private();
  fm::heap h({.cache = cache, .agents = {agent.url()}});
  const auto local_before = resident_private();
  const auto all = make_list<Bytes>(h, count);
  const std::vector<std::pair<std::string, std::string>> parameters{{"object", std::to_string(Bytes) + " B"},
                                                                    {"objects", std::to_string(count)}};
  const auto local_after = resident_private();
  const auto agent_after = double(fm::os::resident_memory_of(agent.pid()).total_bytes);
  const fm::verify_report v = h.verify();
  if (!v.ok()) throw fm::error(fm::errc::corrupt, v.messages.empty() ? "the heap does not verify" : v.messages.front());
  const auto payload = double(count * Bytes);
  p.measure({"home", parameters, "B", {goal_kind::value_at_most, 24}, {}},
            bytes_an_object(double(v.agent_live_bytes + v.agent_metadata_bytes) - payload, count));
  p.measure({"home_metadata", parameters, "B", {}, {}}, bytes_an_object(double(v.agent_metadata_bytes), count));
  p.measure({"home_garbage", parameters, "B", {}, {}}, bytes_an_object(double(v.agent_garbage_bytes), count));
  p.measure({"agent_resident", parameters, "B", {}, {}}, bytes_an_object(agent_after - agent_before - payload, count));
  // The cache was empty before; every page of it has been touched since.
  const double local_grown = local_after - local_before - double(cache);
  p.measure({"local_tables", parameters, "B", {goal_kind::value_at_most, 8}, {}}, bytes_an_object(local_grown, count));
  // Handles are counted for the process, and were there before.
  const fm::heap_stats s = h.stats();
  p.measure({"named", parameters, "of all", {goal_kind::value_at_least, 0.95}, {}},
            double(s.named_bytes() - s.handle_bytes) / (local_after - unopened));
}

}  // namespace

int main(int argc, char** argv) {
  program p("memory", "Bytes an object beyond its payload, on both sides");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    const auto count = p.sized<std::size_t>(1 << 22, 1 << 18);
    {
      // What the process pays once, for threads, libraries and a first heap, is no matter of objects.
      const counted_agent agent(p, binary, "shm://", "1GiB");
      fm::heap h({.cache = cache, .agents = {agent.url()}});
      (void)make_list<64>(h, 1 << 16);
    }
    home_and_local<64>(p, binary, count);
    home_and_local<128>(p, binary, count);
    local_given_back<64>(p, binary, count);
    local_given_back<128>(p, binary, count);
  });
}

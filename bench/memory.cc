// Memory beyond the payload: bytes an object on the memory node, everything that the agent has resident counted, and on the compute
// node, before and after table pages are given back. Figures of one run each; memory does not vary like time.
#include <cstdio>
#include <farmem/os.h>

#include "support/managed.h"

namespace {

using namespace fm::bench;

// The regions of shm:// are shared memory of the agent, which this process maps.
double resident_private() {
  const fm::os::resident_memory m = fm::os::resident_memory_of();
  return double(m.total_bytes - m.shared_bytes);
}

turn bytes_an_object(double bytes, std::size_t objects) { return {bytes / double(objects), {}, 0}; }

template <std::size_t Bytes>
void home_and_local(program& p, const std::string& binary, std::size_t count) {
  const counted_agent agent(p, binary, "shm://", "8GiB");
  const auto agent_before = double(fm::os::resident_memory_of(agent.pid()).total_bytes);
  constexpr std::uint64_t cache = std::uint64_t{16} << 20;  // far less than the objects, so that all of it is touched
  fm::heap h({.cache = cache, .agents = {agent.url()}});
  const auto local_before = resident_private();
  // Held by one root: a chain of managed vectors of references would be data of its own, so the objects go in one list.
  struct link {
    fm::ref<link> next;
    std::array<std::uint64_t, Bytes / 8 - 1> more{};
  };
  fm::ptr<link> all;
  for (std::size_t i = 0; i < count; ++i) all = h.make<link>(all);
  if (const fm::errc outcome = h.evict_all(); outcome != fm::errc::ok) throw fm::error(outcome, "evicting everything");
  const std::vector<std::pair<std::string, std::string>> parameters{{"object", std::to_string(Bytes) + " B"},
                                                                    {"objects", std::to_string(count)}};
  const auto local_after = resident_private();
  const auto agent_after = double(fm::os::resident_memory_of(agent.pid()).total_bytes);
  const fm::verify_report v = h.verify();
  if (!v.ok()) throw fm::error(fm::errc::corrupt, v.messages.empty() ? "the heap does not verify" : v.messages.front());
  const auto payload = double(count * Bytes);
  p.measure(
      {"home", parameters, "B", {goal_kind::value_at_most, 24}, {}},
      [&] { return bytes_an_object(double(v.agent_live_bytes + v.agent_metadata_bytes) - payload, count); }, 1);
  p.measure(
      {"home_metadata", parameters, "B", {}, {}},
      [&] { return bytes_an_object(double(v.agent_metadata_bytes), count); }, 1);
  p.measure(
      {"home_garbage", parameters, "B", {}, {}}, [&] { return bytes_an_object(double(v.agent_garbage_bytes), count); },
      1);
  p.measure(
      {"agent_resident", parameters, "B", {}, {}},
      [&] { return bytes_an_object(agent_after - agent_before - payload, count); }, 1);
  // The cache was empty before; every page of it has been touched since.
  const double local_grown = local_after - local_before - double(cache);
  p.measure(
      {"local_tables", parameters, "B", {goal_kind::value_at_most, 8}, {}},
      [&] { return bytes_an_object(local_grown, count); }, 1);
}

}  // namespace

int main(int argc, char** argv) {
  program p("memory", "Bytes an object beyond its payload, on both sides");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  try {
    const auto count = p.sized<std::size_t>(1 << 22, 1 << 18);
    home_and_local<64>(p, binary, count);
    home_and_local<128>(p, binary, count);
  } catch (const fm::error& e) {
    std::fprintf(stderr, "bench_memory: %s\n", e.what());
    return 1;
  }
  return p.finish();
}

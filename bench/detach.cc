// A heap of many small objects is detached, and attached again: how long both take, when the first object is there, and how
// fast random objects are read then, beside a cold start of the heap that stayed. The same process does both; the table and the
// cache that it attaches with are as empty as another one's.
#include <farmem/farmem.h>

#include <cstdio>
#include <memory>
#include <random>

#include "support/managed.h"

namespace {

using namespace fm::bench;

using object = blob<64>;

struct catalogue {
  fm::ref<fm::vector<fm::ref<object>>> objects;
};

double ms_since(std::uint64_t begin) { return double(now_ns() - begin) * 1e-6; }

/// Random objects read a second.
double read_rate(const fm::ptr<catalogue>& root, std::uint64_t reads, std::uint64_t seed) {
  const fm::vector<fm::ref<object>> all = root->objects;
  std::mt19937_64 random(seed);
  const std::uint64_t n = all.size(), begin = now_ns();
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < reads; ++i) {
    const std::uint64_t at = random() % n;
    const fm::ptr<object> one = all[at];
    wrong += one->number != at;
  }
  if (wrong != 0) throw fm::error(fm::errc::corrupt, "objects are not what was stored");
  return double(reads) / (double(now_ns() - begin) * 1e-9);
}

struct outcome {
  double detach_ms = 0, attach_ms = 0, first_ms = 0, cold = 0, attached = 0;
};

outcome detach_and_attach(program& p, const std::string& binary, const std::string& url, std::uint64_t objects,
                          std::uint64_t reads) {
  const counted_agent first(p, binary, url, "2GiB"), second(p, binary, url, "2GiB");
  fm::heap_options o;
  o.cache = objects * frame_bytes<sizeof(object)> / 8;
  o.agents = {first.url(), second.url()};
  outcome result;
  {
    fm::heap h(o);
    fm::vector<fm::ref<object>> all(h);
    for (std::uint64_t i = 0; i < objects; ++i) all.push_back(h.make<object>(i));
    const auto root = h.make_with<catalogue>([&](catalogue& c) { c.objects = all; });
    if (const fm::errc e = h.evict_all(); e != fm::errc::ok) throw fm::error(e, "writing everything back");
    result.cold = read_rate(root, reads, 1);
    const std::uint64_t begin = now_ns();
    h.detach({.name = "catalogue"}, root);
    result.detach_ms = ms_since(begin);
  }
  const std::uint64_t begin = now_ns();
  const auto [h, root] = fm::heap::attach<catalogue>({.name = "catalogue"}, o);
  result.attach_ms = ms_since(begin);
  const fm::vector<fm::ref<object>> all = root->objects;
  const fm::ptr<object> last = all[objects - 1];
  if (last->number != objects - 1) throw fm::error(fm::errc::corrupt, "the last object is not what was stored");
  result.first_ms = ms_since(begin);
  result.attached = read_rate(root, reads, 1);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  program p("detach", "A heap is left at its agents and attached again: times, and reads beside a cold start");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  const auto objects = p.sized<std::uint64_t>(10'000'000, 100'000), reads = p.sized<std::uint64_t>(1'000'000, 20'000);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport},
                                                                        {"objects", std::to_string(objects)}};
      const outcome r = detach_and_attach(p, binary, url, objects, reads);
      p.measure({"detach", parameters, "ms", {}}, r.detach_ms);
      p.measure({"attach", parameters, "ms", {}}, r.attach_ms);
      p.measure({"first_object", parameters, "ms", {goal_kind::value_at_most, 100}}, r.first_ms);
      p.measure({"reads", parameters, "of a cold start", {goal_kind::value_at_least, 0.9}}, r.attached / r.cold);
    }
  });
}

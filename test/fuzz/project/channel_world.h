// What the fuzz targets of channels share: a heap, types, honest streams of graphs of those, and the look at the heap after every
// input. It verifies clean, and when garbage is collected, nothing is left of what came.
#pragma once

#include "heap/heap_core.h"
#include <farmem/channel.h>
#include <farmem/farmem.h>

#include <cstdio>
#include <vector>

#include "channel/core.h"

#include "../../channel/recorder.h"

namespace fm::fuzz {

using namespace fm::detail;
using fm::literals::operator""_MiB;
using words = std::vector<std::uint64_t>;

struct leaf {
  std::uint64_t value = 0;
};
struct branch {
  ref<branch> left;
  ref<leaf> a, b;
};
struct pair {
  std::uint32_t id = 0;
  std::array<char, 5> name{};
};
struct wide {
  std::uint32_t id = 0;
  std::array<ref<wide>, 2> some;
  std::pair<std::uint16_t, ref<branch>> one;
  ref<ref<wide>[]> many;
  ref<pair[]> pairs;
  ref<string> text;
};

struct stream {
  words all;
  std::uint64_t objects = 0;
};
inline stream written(const graph_schema& schema, std::span<const slot_t> roots, bool each, bool acyclic) {
  channel_test::recorder r;
  graph_writer w(schema, {1u << 30, 1u << 30}, acyclic, r);
  if (each)
    w.write_each(roots);
  else
    w.write(roots.front());
  r.keep(w.used());
  return {std::move(r.all), w.objects()};
}

// What may be sent: a schema, and an honest stream of it.
struct sample {
  const graph_schema* schema;
  bool each;
  stream honest;
};

class world {
 public:
  static world& get() {
    static world w;
    return w;
  }
  heap h{{.cache = 2_MiB,
          .local_memory = 64_MiB,
          .local_region = 1_MiB,
          .segment = 64u << 10,
          .collect = false,
          .background_evictor = false}};
  std::vector<sample> samples;

  // After every input; garbage is collected when enough has come together.
  void look() {
    check(h.verify());
    const std::uint64_t made = h.stats().allocated_bytes;
    if (++inputs_ % 256 != 0 && made - collected_at_ < (8u << 20)) return;
    collected_at_ = made;
    FM_CHECK(h.evict_all() == errc::ok, "not all of it could be evicted");
    check(h.verify());
    const cycle_report r = h.collect("fuzz");
    FM_CHECK(r.ok(), "a collection failed");
    for (const auto& t : h.stats(detail_level::types).types)
      FM_CHECK(t.objects == 0, "an object of a graph that nobody has is left");
    check(h.verify());
  }

 private:
  world() {
    const auto l = h.make<leaf>({.value = 70});
    const auto c = h.make<branch>({.a = l});
    const auto b = h.make<branch>({.left = c, .a = h.make<leaf>({.value = 80}), .b = l});
    c.write()->left = b;
    const auto w = h.make<wide>({.id = 7});
    const auto many = h.array<ref<wide>>(3);
    const auto text = h.str("some text");
    const auto pairs = h.array<pair>(3);
    {
      const write_pin at = w.write();
      at->some[0] = w;
      at->some[1] = h.make<wide>({.id = 9});
      at->one.second = b;
      at->many = many;
      at->pairs = pairs;
      at->text = text;
      const write_pin m = many.write();
      (*m)[0] = w;
      (*m)[2] = h.make<wide>({.id = 8});
    }
    const auto refs = h.array<ref<leaf>>(40);
    {
      const write_pin m = refs.write();
      for (std::uint64_t i = 0; i < 40; ++i) (*m)[i] = h.make<leaf>({.value = i});
    }
    add<leaf>({l.slot()}, false);
    add<branch>({b.slot()}, false);
    add<wide>({w.slot()}, false);
    add<double[]>({h.array<double>(300).slot()}, false);
    add<ref<leaf>[]>({refs.slot()}, false);
    add<branch>({b.slot(), 0, c.slot(), b.slot()}, true);
  }
  template <class T>
  void add(const std::vector<slot_t>& roots, bool each) {
    const graph_schema& schema = schema_of<T>();
    samples.push_back({&schema, each, written(schema, roots, each, false)});
  }
  static void check(const verify_report& v) {
    for (const auto& m : v.messages) std::fprintf(stderr, "%s\n", m.c_str());
    FM_CHECK(v.ok(), "the heap does not verify");
  }
  std::uint64_t inputs_ = 0, collected_at_ = 0;
};

}  // namespace fm::fuzz

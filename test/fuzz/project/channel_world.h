// What the fuzz targets of channels share: a heap, types, honest streams of graphs of those, and the look at the heap after every
// input. It verifies clean, and when garbage is collected, nothing is left of what came.
#pragma once

#include "heap/heap_core.h"
#include <farmem/channel/channel.h>
#include <farmem/farmem.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "channel/core.h"

#include "../../channel/graph/recorder.h"

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

struct crate {
  ref<vector<ref<leaf>>> leaves;
  ref<hash_map<string, ref<leaf>>> by_name;
  ref<hash_map<std::uint32_t, std::uint16_t>> numbers;
  ref<hash_map<std::uint8_t, ref<crate>>> crates;
  ref<hash_set<std::uint64_t>> ids;
  ref<map<string, ref<crate>>> in_order;
  ref<map<std::uint32_t, std::uint16_t, std::greater<std::uint32_t>>> downwards;
  ref<set<std::uint16_t>> few;
  ref<vector<std::uint16_t>> halves;
  ref<one_of<leaf, pair, crate, vector<std::uint16_t>>> any;
  ref<leaf> last;
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
  bool containers;  ///< some: entries that were changed may come in another order, and nobody keeps their padding
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
    const auto box = make_crate(l);
    add<leaf>({l.slot()}, false);
    add<branch>({b.slot()}, false);
    add<wide>({w.slot()}, false);
    add<double[]>({h.array<double>(300).slot()}, false);
    add<ref<leaf>[]>({refs.slot()}, false);
    add<branch>({b.slot(), 0, c.slot(), b.slot()}, true);
    add<crate>({box.slot()}, false);
    add<vector<ref<crate>>>({vector<ref<crate>>(h, {box, box}).slot()}, false);
    add<one_of<leaf, crate>>({l.slot(), box.slot()}, true);
    // More than one leaf, and more than one batch.
    using row = std::array<std::uint64_t, 8>;
    const map<std::uint64_t, row> rows(h);
    for (std::uint64_t i = 0; i < 70; ++i) rows.insert(i, {i});
    add<map<std::uint64_t, row>>({rows.slot()}, false);
  }
  ptr<crate> make_crate(const ptr<leaf>& l) {
    const auto box = h.make<crate>();
    const vector<ref<leaf>> leaves(h, {l, ptr<leaf>(), h.make<leaf>({.value = 90}), l});
    const hash_map<string, ref<leaf>> by_name(h);
    const hash_map<std::uint32_t, std::uint16_t> numbers(h);
    const hash_map<std::uint8_t, ref<crate>> crates(h);
    const hash_set<std::uint64_t> ids(h);
    const map<string, ref<crate>> in_order(h);
    const map<std::uint32_t, std::uint16_t, std::greater<std::uint32_t>> downwards(h);
    const set<std::uint16_t> few(h);
    const vector<std::uint16_t> halves(h, {1, 2, 3});
    // Few, so that the receiver's tables have them in the same order.
    by_name.insert_or_assign("one", l);
    by_name.insert_or_assign("two", leaves[2]);
    numbers.insert_or_assign(5, 50);
    numbers.insert_or_assign(6, 60);
    crates.insert_or_assign(1, box);
    ids.insert(7);
    in_order.insert("a", box);
    in_order.insert("b", ptr<crate>());
    in_order.insert("c", box);
    for (std::uint16_t i = 0; i < 5; ++i) {
      downwards.insert(i, i);
      few.insert(i);
    }
    const write_pin w = box.write();
    w->leaves = leaves;
    w->by_name = by_name;
    w->numbers = numbers;
    w->crates = crates;
    w->ids = ids;
    w->in_order = in_order;
    w->downwards = downwards;
    w->few = few;
    w->halves = halves;
    w->any = box;
    w->last = leaves[2];
    return box;
  }
  template <class T>
  void add(const std::vector<slot_t>& roots, bool each) {
    const graph_schema& schema = schema_of<T>();
    const bool containers = std::any_of(schema.types.begin(), schema.types.end(),
                                        [](const graph_type& t) { return t.container != nullptr; });
    samples.push_back({&schema, each, written(schema, roots, each, false), containers});
  }
  static void check(const verify_report& v) {
    for (const auto& m : v.messages) std::fprintf(stderr, "%s\n", m.c_str());
    FM_CHECK(v.ok(), "the heap does not verify");
  }
  std::uint64_t inputs_ = 0, collected_at_ = 0;
};

}  // namespace fm::fuzz

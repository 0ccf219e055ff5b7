// Editing vectors of references beside collections without end: the vector has what it should have, and nothing that is
// removed stays. The windows in which a reference that moves could be lost are too short to be met here: that what moves
// is logged is shown by vector_edit_log_test.cc.
#include <random>

#include "containers/transports.h"

using namespace fm::test;

namespace {

struct twin_item {
  std::uint64_t id = 0;
  fm::ref<twin_item> twin;  // an object that only this one names
};

fm::ptr<twin_item> make_item(fm::heap& h, std::uint64_t id) {
  return h.make<twin_item>({.id = id, .twin = h.make<twin_item>({.id = ~id})});
}

}  // namespace

TEST_CASE("a vector of references is edited beside collections without end") {
  fm::heap_options options = tiny();
  options.collect_continuously = true;
  options.collect_share = 1;
  fm::heap h(options);
  fm::vector<fm::ref<twin_item>> v(h);
  std::vector<std::uint64_t> oracle;
  std::mt19937_64 rng(31);
  std::uint64_t next = 0;
  const auto at = [&](std::size_t i) { return v.begin() + std::ptrdiff_t(i); };
  const auto in_oracle = [&](std::size_t i) { return oracle.begin() + std::ptrdiff_t(i); };
  const auto check = [&] {
    REQUIRE(v.size() == oracle.size());
    std::uint64_t k = 0, wrong = 0;
    for (const fm::ptr<twin_item>& p : v) wrong += p->id != oracle[k] || p->twin->id != ~oracle[k], ++k;
    REQUIRE(wrong == 0);
  };
  for (; next < 2500; ++next) {
    v.push_back(make_item(h, next));
    oracle.push_back(next);
  }
  endless_collections collecting(h);
  const std::uint64_t cycles = h.stats().collections;
  for (int round = 0; round < 1200 || h.stats().collections < cycles + 10; ++round) {
    REQUIRE(round < 200'000);
    const std::size_t n = oracle.size(), i = rng() % n;
    switch (rng() % 8) {
      case 0:
      case 1:
        oracle.insert(in_oracle(i), next);
        v.insert(at(i), make_item(h, next++));
        break;
      case 2:
      case 3:
        oracle.erase(in_oracle(i));
        v.erase(at(i));
        break;
      case 4: {
        // Far moves: what follows goes to another chunk.
        const std::vector<std::uint64_t> same(oracle.begin(), in_oracle(std::min<std::size_t>(n, 1100)));
        oracle.insert(in_oracle(i), same.begin(), same.end());
        v.insert(at(i), v.begin(), v.begin() + std::ptrdiff_t(same.size()));
        break;
      }
      case 5: {
        const std::size_t to = i + rng() % (n - i + 1) / 2;
        oracle.erase(in_oracle(i), in_oracle(to));
        v.erase(at(i), at(to));
        break;
      }
      case 6: {
        const std::uint64_t one_in = rng() % 9 + 4, salt = rng() % one_in;
        std::erase_if(oracle, [&](std::uint64_t id) { return id % one_in == salt; });
        erase_if(v, [&](const fm::ptr<twin_item>& p) { return p->id % one_in == salt; });
        break;
      }
      default: {
        const fm::vector<fm::ref<twin_item>> other = v.clone();
        v.resize(1);
        v.swap(other);
      }
    }
    if (oracle.size() > 6000) {
      oracle.resize(2000);
      v.resize(2000);
    }
    while (oracle.size() < 1500) {
      oracle.insert(oracle.begin(), next);
      v.insert(v.begin(), make_item(h, next++));
    }
    if (round % 50 == 0) check();
  }
  check();
  REQUIRE(collecting.stop() == 0);
  check();
  require_sound(h);

  // What was removed is gone: the items, their twins, and the parts of the vector are all that is left.
  REQUIRE(h.collect("all").ok());
  const auto types = h.stats(fm::detail_level::types).types;
  std::uint64_t items = 0;
  for (const auto& t : types)
    if (t.name.find("twin_item") != std::string::npos && t.name.find("ref") == std::string::npos) items += t.objects;
  std::vector<std::uint64_t> ids = oracle;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  REQUIRE(items == 2 * ids.size());
}

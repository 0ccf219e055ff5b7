// What the tests of trees and of hash tables share: tables of several kinds as maps of numbers to numbers, and a random
// stream of operations on a map and a set beside what they must hold.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <ranges>

#include "containers/fixture.h"

namespace fm::test {

struct five_words {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 5> words{};
  static five_words of(std::uint64_t x) { return {x, {x, ~x, x * 3, x, ~x}}; }
  [[nodiscard]] bool whole() const { return words == of(id).words; }
};
struct term {
  std::uint64_t id = 0;
};
inline std::string digits(std::uint64_t id) {
  std::string s = std::to_string(id);
  return std::string(8 - s.size(), '0') + s;
}

/// Maps of numbers to structs: Map is fm::map or fm::hash_map, and Set the set of that kind.
template <template <class...> class Map, template <class...> class Set>
struct plain_kind_of {
  using map = Map<std::uint64_t, five_words>;
  using set = Set<std::uint64_t>;
  static std::uint64_t key(std::uint64_t id) { return id; }
  static five_words value(heap&, std::uint64_t x) { return five_words::of(x); }
  static std::uint64_t id(std::uint64_t k) { return k; }
  static std::uint64_t number(const five_words& v) {
    REQUIRE(v.whole());
    return v.id;
  }
};
/// Maps of texts to references.
template <template <class...> class Map, template <class...> class Set>
struct text_kind_of {
  using map = Map<string, ref<term>>;
  using set = Set<std::uint64_t>;
  static std::string key(std::uint64_t id) { return "key " + digits(id); }
  static ptr<term> value(heap& h, std::uint64_t x) { return h.make<term>({.id = x}); }
  static std::uint64_t id(const string& k) { return std::stoull(k.str().substr(4)); }
  static std::uint64_t number(const ptr<term>& v) { return v->id; }
};
/// Maps of keys that are compared by functions of the program, to numbers.
template <class Key, template <class...> class Map, template <class...> class Set>
struct program_kind_of {
  using map = Map<Key, std::uint64_t>;
  using set = Set<std::uint64_t>;
  static Key key(std::uint64_t id) { return {std::uint8_t(id % 3), std::uint32_t(id)}; }
  static std::uint64_t value(heap&, std::uint64_t x) { return x; }
  static std::uint64_t id(const Key& k) { return k.id; }
  static std::uint64_t number(std::uint64_t v) { return v; }
};

/// A map and a set beside what they must hold.
template <class Kind>
class table_oracle {
  using map = typename Kind::map;
  static constexpr bool ordered = requires(const map& m) { m.first(); };

 public:
  table_oracle(heap& h, std::uint64_t seed, std::uint64_t ids) : heap_(h), rng_(seed), ids_(ids) {}

  void step(bool growing) {
    const std::uint64_t id = rng_() % ids_, to = rng_();
    const auto key = Kind::key(id);
    const bool there = oracle_.contains(id);
    switch (rng_() % 16) {
      case 0: find(id); break;
      case 1: REQUIRE((map_.contains(key) == there && set_.contains(id) == there)); break;
      case 2:
        REQUIRE(map_.update(key, [&](auto& v) { v = Kind::value(heap_, to); }) == there);
        if (there) oracle_[id] = to;
        break;
      case 3:
        if (to % 2 == 0)
          REQUIRE(map_.insert(key, Kind::value(heap_, to)) == !there);
        else
          REQUIRE(map_.try_emplace(key, Kind::value(heap_, to)) == !there);
        REQUIRE(set_.insert(id) == !there);
        oracle_.try_emplace(id, to);
        break;
      case 4:
        REQUIRE(Kind::number(map_.get_or_insert(key, [&] { return Kind::value(heap_, to); })) ==
                oracle_.try_emplace(id, to).first->second);
        set_.insert(id);
        break;
      case 5:
        if constexpr (ordered) bounds(id);
        break;
      case 6: rarely(); break;
      default:
        if (growing || rng_() % 8 == 0) {
          REQUIRE(map_.insert_or_assign(key, Kind::value(heap_, to)) == !there);
          set_.insert(id);
          oracle_[id] = to;
        } else {
          erase(id, to % 4 == 0);
        }
    }
  }
  void require_same() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
    for (const auto& [key, v] : map_) seen.emplace_back(Kind::id(key), Kind::number(v));
    std::vector<std::uint64_t> keys(set_.begin(), set_.end());
    if constexpr (!ordered) {
      std::ranges::sort(seen);
      std::ranges::sort(keys);
    }
    REQUIRE(std::equal(seen.begin(), seen.end(), oracle_.begin(), oracle_.end(),
                       [](const auto& a, const auto& b) { return a.first == b.first && a.second == b.second; }));
    REQUIRE(std::ranges::equal(keys, std::views::keys(oracle_)));
    std::uint64_t called = 0;
    map_.for_each([&](const auto& key, const auto& v) { called += oracle_.at(Kind::id(key)) == Kind::number(v); });
    REQUIRE(called == oracle_.size());
    REQUIRE((map_.size() == oracle_.size() && set_.size() == oracle_.size()));
    if constexpr (ordered) {
      const auto first = map_.first(), last = map_.last();
      REQUIRE((first.has_value() == !oracle_.empty() && last.has_value() == !oracle_.empty()));
      if (first) REQUIRE(Kind::id(first->first) == oracle_.begin()->first);
      if (last) REQUIRE(Kind::id(last->first) == oracle_.rbegin()->first);
    }
  }

 private:
  void find(std::uint64_t id) {
    const auto v = map_.find(Kind::key(id));
    REQUIRE(v.has_value() == oracle_.contains(id));
    if (v.has_value()) REQUIRE(Kind::number(*v) == oracle_[id]);
  }
  void erase(std::uint64_t id, bool by_extract) {
    const bool there = oracle_.contains(id);
    if (by_extract) {
      const auto taken = map_.extract(Kind::key(id));
      REQUIRE(taken.has_value() == there);
      if (there) REQUIRE(Kind::number(*taken) == oracle_[id]);
    } else {
      REQUIRE(map_.erase(Kind::key(id)) == there);
    }
    REQUIRE(set_.erase(id) == there);
    oracle_.erase(id);
  }
  void bounds(std::uint64_t id) {
    const auto low = map_.lower_bound(Kind::key(id)), high = map_.upper_bound(Kind::key(id));
    const auto expected_low = oracle_.lower_bound(id), expected_high = oracle_.upper_bound(id);
    REQUIRE((low == map_.end()) == (expected_low == oracle_.end()));
    if (low != map_.end()) REQUIRE(Kind::id(low->first) == expected_low->first);
    REQUIRE((high == map_.end()) == (expected_high == oracle_.end()));
    if (high != map_.end()) REQUIRE(Kind::id(high->first) == expected_high->first);
    const std::uint64_t to = rng_() % ids_;
    auto expected = expected_low;
    for (const auto& [key, v] : map_.range(Kind::key(id), Kind::key(to))) {
      REQUIRE(Kind::id(key) == expected->first);
      REQUIRE((Kind::number(v) == expected->second && expected->first < to));
      ++expected;
    }
    REQUIRE((to <= id || expected == oracle_.lower_bound(to)));
  }
  void rarely() {
    switch (rng_() % 400) {
      case 0: map_.clear(), set_.clear(), oracle_.clear(); break;
      case 1: REQUIRE(heap_.collect().ok()); break;
      case 2: REQUIRE(heap_.evict_all() == errc::ok); break;
      case 3: require_same(); break;
      case 4: {
        const std::uint64_t of = rng_() % 5;
        const auto goes = [&](std::uint64_t k) { return k % 5 == of; };
        const auto n = std::erase_if(oracle_, [&](const auto& e) { return goes(e.first); });
        REQUIRE(map_.erase_if([&](const auto& k, const auto&) { return goes(Kind::id(k)); }) == n);
        REQUIRE(set_.erase_if(goes) == n);
        break;
      }
      case 5:
        if constexpr (ordered) load();
        break;
      default:;
    }
  }
  void load() {
    std::vector<std::pair<decltype(Kind::key(0)), typename map::argument>> sorted;
    oracle_.clear();
    for (std::uint64_t id = rng_() % 10; id < ids_; id += 1 + rng_() % 4) {
      oracle_[id] = rng_();
      sorted.emplace_back(Kind::key(id), Kind::value(heap_, oracle_[id]));
    }
    map_.bulk_load(sorted);
    set_.bulk_load(std::views::keys(oracle_));
  }

  heap& heap_;
  std::mt19937_64 rng_;
  const std::uint64_t ids_;
  const map map_{heap_};
  const typename Kind::set set_{heap_};
  std::map<std::uint64_t, std::uint64_t> oracle_;
};

}  // namespace fm::test

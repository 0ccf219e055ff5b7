// Mako's two mixes of Cassandra operations, with values of 128 bytes, on a heap and on plain memory: CII inserts 60%, updates 20% and reads
// 20%; CUI updates 60% and inserts 40%. An insert or an update replaces a value, so that the old one is garbage.
#pragma once

#include <memory>

#include "../support/zipf.h"
#include "papers.h"

namespace fm::bench {

struct mix {
  const char* name;
  double inserts, updates;
  double translation;           ///< table 4: the price of address translation
  double pause_ms, longest_ms;  ///< table 3: pauses on average, and the longest
};
inline constexpr mix cii{"CII", 0.6, 0.2, 1.0969, 4.63, 11.84};
inline constexpr mix cui{"CUI", 0.4, 0.6, 1.0618, 5.34, 13.55};

using managed_value = blob<128>;
struct plain_value {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 15> more{};
};

// The keys are a circle of places: an insert takes the oldest key's, so that as many values live all the while.
class managed_store {
 public:
  managed_store(heap& h, std::uint64_t keys) : heap_(h) {
    for (std::uint64_t k = 0; k < keys; k += chunk) chunks_.push_back(h.array<ref<managed_value>>(chunk));
    for (std::uint64_t k = 0; k < keys; ++k) put(k);
  }
  void put(std::uint64_t key) {
    const ptr<managed_value> fresh = heap_.make<managed_value>({.number = key});
    const scope s;
    (*chunks_[key / chunk].get_for_write(s))[key % chunk] = fresh;
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t key) const {
    const scope s;
    const managed_value* v = (*chunks_[key / chunk].get(s))[key % chunk].get(s);
    std::uint64_t sum = v->number;
    for (const std::uint64_t w : v->more) sum += w;
    return sum;
  }

 private:
  static constexpr std::uint64_t chunk = 512;
  heap& heap_;
  std::vector<ptr<ref<managed_value>[]>> chunks_;
};

class plain_store {
 public:
  explicit plain_store(std::uint64_t keys) : values_(keys) {
    for (std::uint64_t k = 0; k < keys; ++k) put(k);
  }
  void put(std::uint64_t key) {
    values_[key] = std::make_unique<plain_value>();
    values_[key]->number = key;
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t key) const {
    const plain_value& v = *values_[key];
    std::uint64_t sum = v.number;
    for (const std::uint64_t w : v.more) sum += w;
    return sum;
  }

 private:
  std::vector<std::unique_ptr<plain_value>> values_;
};

template <class Store>
class client {
 public:
  client(Store& store, std::uint64_t keys, const mix& m) : store_(store), keys_(keys), popular_(keys, 0.99), mix_(m) {}
  void one() {
    const double what = random_.unit();
    if (what < mix_.inserts) {
      store_.put(next_ = next_ + 1 == keys_ ? 0 : next_ + 1);
      return;
    }
    const std::uint64_t key = popular_(random_);
    if (what < mix_.inserts + mix_.updates) return store_.put(key);
    if (store_.read(key) != key) throw error(errc::corrupt, "a value of another key");
  }
  turn run(std::size_t operations) {
    return per_operation(double(operations), [&] {
      for (std::size_t i = 0; i < operations; ++i) one();
    });
  }

 private:
  Store& store_;
  std::uint64_t keys_, next_ = 0;
  zipf_keys popular_;
  mix mix_;
  random_source random_{3};
};

}  // namespace fm::bench

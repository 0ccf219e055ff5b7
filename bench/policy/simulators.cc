// LRU, SIEVE, S3-FIFO and Belady's optimum; see simulators.h.
#include "simulators.h"

#include <algorithm>
#include <set>
#include <utility>

namespace fm::bench {
namespace {

constexpr std::uint32_t none = ~std::uint32_t{0};

/// A doubly linked list of keys, each at most once.
class key_list {
 public:
  explicit key_list(std::uint32_t keys) : links_(std::size_t{keys} + 1, {none, none}), end_(keys) {
    links_[end_] = {end_, end_};
  }
  [[nodiscard]] std::uint32_t oldest() const { return links_[end_].next; }
  /// Towards the youngest; `end` after it.
  [[nodiscard]] std::uint32_t younger(std::uint32_t key) const { return links_[key].next; }
  [[nodiscard]] std::uint32_t end() const { return end_; }
  [[nodiscard]] bool contains(std::uint32_t key) const { return links_[key].next != none; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  void push(std::uint32_t key) {
    links_[key] = {links_[end_].previous, end_};
    links_[links_[end_].previous].next = key;
    links_[end_].previous = key;
    ++size_;
  }
  void erase(std::uint32_t key) {
    links_[links_[key].previous].next = links_[key].next;
    links_[links_[key].next].previous = links_[key].previous;
    links_[key] = {none, none};
    --size_;
  }

 private:
  struct link {
    std::uint32_t previous, next;
  };
  std::vector<link> links_;
  std::uint32_t end_;
  std::uint64_t size_ = 0;
};

class lru final : public policy_simulator {
 public:
  lru(std::uint32_t keys, std::uint64_t capacity) : queue_(keys), capacity_(capacity) {}
  bool access(std::uint32_t key) override {
    const bool hit = queue_.contains(key);
    if (hit)
      queue_.erase(key);
    else if (queue_.size() == capacity_)
      queue_.erase(queue_.oldest());
    queue_.push(key);
    return hit;
  }

 private:
  key_list queue_;
  std::uint64_t capacity_;
};

class sieve final : public policy_simulator {
 public:
  sieve(std::uint32_t keys, std::uint64_t capacity)
      : queue_(keys), used_(keys, false), hand_(queue_.end()), capacity_(capacity) {}
  bool access(std::uint32_t key) override {
    if (queue_.contains(key)) {
      used_[key] = true;
      return true;
    }
    if (queue_.size() == capacity_) evict();
    queue_.push(key);
    used_[key] = false;
    return false;
  }

 private:
  void evict() {
    for (;;) {
      if (hand_ == queue_.end()) hand_ = queue_.oldest();
      const std::uint32_t at = hand_;
      hand_ = queue_.younger(at);
      if (!used_[at]) {
        queue_.erase(at);
        return;
      }
      used_[at] = false;
    }
  }

  key_list queue_;
  std::vector<bool> used_;
  std::uint32_t hand_;
  std::uint64_t capacity_;
};

class s3_fifo final : public policy_simulator {
 public:
  s3_fifo(std::uint32_t keys, std::uint64_t capacity)
      : small_(keys),
        main_(keys),
        ghosts_(keys),
        uses_(keys, 0),
        capacity_(capacity),
        small_capacity_(std::max<std::uint64_t>(1, capacity / 10)) {}
  bool access(std::uint32_t key) override {
    if (small_.contains(key) || main_.contains(key)) {
      uses_[key] = static_cast<std::uint8_t>(std::min(3, uses_[key] + 1));
      return true;
    }
    while (small_.size() + main_.size() >= capacity_) {
      if (small_.size() >= small_capacity_ || main_.size() == 0)
        evict_small();
      else
        evict_main();
    }
    uses_[key] = 0;
    if (ghosts_.contains(key)) {
      ghosts_.erase(key);
      main_.push(key);
    } else {
      small_.push(key);
    }
    return false;
  }

 private:
  void evict_small() {
    const std::uint32_t key = small_.oldest();
    small_.erase(key);
    if (uses_[key] > 1) {
      uses_[key] = 0;
      main_.push(key);
      return;
    }
    if (ghosts_.size() >= std::max<std::uint64_t>(1, capacity_ - small_capacity_)) ghosts_.erase(ghosts_.oldest());
    ghosts_.push(key);
  }
  void evict_main() {
    for (;;) {
      const std::uint32_t key = main_.oldest();
      main_.erase(key);
      if (uses_[key] == 0) return;
      --uses_[key];
      main_.push(key);
    }
  }

  key_list small_, main_, ghosts_;
  std::vector<std::uint8_t> uses_;
  std::uint64_t capacity_, small_capacity_;
};

}  // namespace

std::unique_ptr<policy_simulator> simulate_lru(std::uint32_t keys, std::uint64_t capacity) {
  return std::make_unique<lru>(keys, capacity);
}
std::unique_ptr<policy_simulator> simulate_sieve(std::uint32_t keys, std::uint64_t capacity) {
  return std::make_unique<sieve>(keys, capacity);
}
std::unique_ptr<policy_simulator> simulate_s3_fifo(std::uint32_t keys, std::uint64_t capacity) {
  return std::make_unique<s3_fifo>(keys, capacity);
}

std::uint64_t misses_of(policy_simulator& policy, const trace& t, std::uint64_t from) {
  std::uint64_t misses = 0;
  for (std::uint64_t i = 0; i < t.size(); ++i)
    if (!policy.access(t[i]) && i >= from) ++misses;
  return misses;
}

// Each key in the cache stands in a set ordered by its next use; the last of them leaves.
std::uint64_t belady_misses(const trace& t, std::uint32_t keys, std::uint64_t capacity, std::uint64_t from) {
  std::vector<std::uint64_t> next(t.size()), seen(keys, t.size());
  for (std::uint64_t i = t.size(); i-- > 0;) next[i] = std::exchange(seen[t[i]], i);
  std::vector<std::uint64_t> due(keys, 0);  // the next use of a key in the cache
  std::set<std::pair<std::uint64_t, std::uint32_t>> cached;
  std::uint64_t misses = 0;
  for (std::uint64_t i = 0; i < t.size(); ++i) {
    if (cached.erase({due[t[i]], t[i]}) == 0) {
      if (i >= from) ++misses;
      if (cached.size() == capacity) cached.erase(std::prev(cached.end()));
    }
    due[t[i]] = next[i];
    cached.emplace(next[i], t[i]);
  }
  return misses;
}

const std::vector<named_policy>& simulated_policies() {
  const auto simulated = [](auto make) {
    return [make](const trace& t, std::uint32_t keys, std::uint64_t capacity, std::uint64_t from) {
      return misses_of(*make(keys, capacity), t, from);
    };
  };
  static const std::vector<named_policy> all{{"LRU", simulated(simulate_lru)},
                                             {"S3-FIFO", simulated(simulate_s3_fifo)},
                                             {"SIEVE", simulated(simulate_sieve)},
                                             {"Belady", belady_misses}};
  return all;
}

}  // namespace fm::bench

// The server's keys: where each one's value is in the pool, when it expires, and which were not asked for longest. Values are in
// the pool alone. What is full, or too large, is an fm::error for the client; any other error of the pool ends the server,
// because what a change that timed out has done is not known, and a cache without its agent is empty anyway.
//
// Invariant: the keys here are those of the directory, each with the same pointer. For one thread.
#pragma once

#include <list>
#include <set>
#include <string>
#include <unordered_map>

#include "directory.h"

namespace fm::example {

class cache {
 public:
  struct options {
    std::uint64_t keys = 100'000;  ///< that are expected
    bool evict = true;  ///< when the pool is full: the keys that were not asked for longest go; otherwise agent_full
  };
  struct counters {
    std::uint64_t hits = 0, misses = 0, expired = 0, evicted = 0, in_place = 0, anew = 0;
  };

  cache(fm::pool& p, const options& o) : pool_(p), options_(o), directory_(p, o.keys) {}

  /// Expiry of a key that set() is to leave as it is.
  static constexpr std::int64_t keep_expiry = -1;

  [[nodiscard]] bool contains(std::string_view key) { return find(key) != nullptr; }
  /// The value, until the next call; nothing when there is none.
  [[nodiscard]] std::optional<std::string_view> get(std::string_view key);
  /// Milliseconds since 1970; 0: it does not expire; nothing: no such key.
  [[nodiscard]] std::optional<std::int64_t> expiry(std::string_view key);
  /// Throws fm::error: too_large, agent_full.
  void set(std::string_view key, std::string_view value, std::int64_t expires_at_ms);
  bool erase(std::string_view key);
  /// 0: never. False: no such key.
  bool expire(std::string_view key, std::int64_t at_ms);
  void clear();
  /// Removes what has expired, but no more than so many keys. The time of the next expiry, 0: none.
  std::int64_t expire_some(unsigned keys_max);

  [[nodiscard]] std::uint64_t size() const noexcept { return items_.size(); }
  [[nodiscard]] std::uint64_t expiring() const noexcept { return expiries_.size(); }
  [[nodiscard]] const counters& count() const noexcept { return count_; }
  [[nodiscard]] fm::pool& pool() noexcept { return pool_; }
  [[nodiscard]] pool_address root() const noexcept { return directory_.root(); }
  /// Every value read again, and the directory compared with the keys; what is wrong, or nothing.
  [[nodiscard]] std::string verify();

 private:
  struct item {
    std::string key;
    std::uint64_t hash = 0;
    pool_address value{};
    std::uint64_t bytes = 0;  ///< of the object
    std::int64_t expires_at_ms = 0;
  };
  using items = std::list<item>;  ///< the newest first

  item* find(std::string_view key);
  /// The value's object, in scratch_.
  decoded_value load(item& i);
  void store(std::string_view key, std::string_view value, std::int64_t expires_at_ms, item* existing);
  pool_address allocate(const item* kept);
  /// Frees at least so many bytes of the oldest, but for `kept`. False when there is nothing to free.
  bool evict_oldest(std::uint64_t bytes, const item* kept);
  void drop(item& i);
  void set_expiry(item& i, std::int64_t at_ms);

  fm::pool& pool_;
  const options options_;
  directory directory_;
  items items_;
  std::unordered_map<std::string_view, items::iterator> by_key_;
  std::set<std::pair<std::int64_t, item*>> expiries_;
  std::vector<std::byte> scratch_;
  std::uint64_t changes_ = 0;
  counters count_;
};

}  // namespace fm::example

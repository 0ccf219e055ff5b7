// The server's side of the directory in the pool (format.h): entries come and go, in an order that readers can bear.
//
// Invariant: a bucket that is in the pool names values that are there, and every value is named once. For one thread.
#pragma once

#include "format.h"

namespace fm::example {

/// Whether a pool refused an allocation because it has no room.
inline bool is_full(errc e) { return e == errc::quota_exceeded || e == errc::agent_full; }

class directory {
 public:
  /// Makes an empty one for about `keys` keys; it takes any number, and finds those faster. Throws fm::error.
  directory(fm::pool& p, std::uint64_t keys);

  [[nodiscard]] pool_address root() const noexcept { return root_.address(); }
  [[nodiscard]] std::uint64_t hash(std::string_view key) const noexcept { return hash_of(key, seed_); }

  /// Publishes a value. quota_exceeded or agent_full: there is no room for one more bucket, and nothing has changed. Other errors
  /// are thrown.
  errc insert(std::uint64_t hash, pool_address value);
  /// Readers find `now` instead of `before`, which can be freed then.
  void replace(std::uint64_t hash, pool_address before, pool_address now);
  /// Nobody finds it any more.
  void remove(std::uint64_t hash, pool_address value);

  /// Buckets, and entries that are in use. Throws fm::error(corrupt) where the directory contradicts itself. O(buckets).
  struct counts {
    std::uint64_t buckets = 0, entries = 0;
  };
  [[nodiscard]] counts count();

 private:
  [[nodiscard]] pool_ptr<directory_bucket>& first_of(std::uint64_t hash) noexcept {
    return first_[hash & (first_.size() - 1)];
  }
  /// The bucket with this entry, and the one before it.
  struct found {
    pool_ptr<directory_bucket> at, before;
    directory_bucket bucket, bucket_before;
    directory_entry* entry = nullptr;  ///< in `bucket`
  };
  void find(std::uint64_t hash, pool_address value, found& f);

  fm::pool& pool_;
  std::uint64_t seed_ = 0;
  pool_ptr<directory_root> root_;
  std::vector<pool_ptr<directory_bucket>> first_;
};

}  // namespace fm::example

// Publishing entries; see directory.h. The server reads its buckets like anybody, one-sidedly, and keeps no copy of them.
#include "directory.h"

#include <bit>
#include <random>

namespace fm::example {

namespace {

constexpr std::uint64_t filled_to = 10;  ///< entries of a bucket, on average, that the directory is laid out for

}  // namespace

directory::directory(fm::pool& p, std::uint64_t keys) : pool_(p) {
  directory_root root;
  std::random_device random;
  seed_ = root.seed = std::uint64_t{random()} << 32 | random();
  root.buckets = std::min(std::bit_ceil(keys / filled_to + 1), buckets_max);
  directory_page page;
  for (std::uint64_t i = 0; i < root.buckets; ++i) {
    first_.push_back(pool_.alloc(directory_bucket{}));
    page.buckets[i % page.buckets.size()] = first_.back();
    if ((i + 1) % page.buckets.size() == 0 || i + 1 == root.buckets)
      root.pages[i / page.buckets.size()] = pool_.alloc(page);
  }
  root_ = pool_.alloc(root);
}

void directory::find(std::uint64_t hash, pool_address value, found& f) {
  pool_ptr<directory_bucket> at = first_of(hash);
  f.before = {};
  while (at) {
    f.bucket = pool_.read(at);
    f.at = at;
    if (!f.before) first_of(hash) = at;  // corrected
    for (directory_entry& e : f.bucket.entries)
      if (e.hash == hash && e.value == value) {
        f.entry = &e;
        return;
      }
    f.before = at;
    f.bucket_before = f.bucket;
    at = f.bucket.next;
  }
  throw error(errc::corrupt, "the directory has lost a value that the server has");
}

errc directory::insert(std::uint64_t hash, pool_address value) {
  pool_ptr<directory_bucket> at = first_of(hash);
  for (;;) {
    directory_bucket b = pool_.read(at);
    for (directory_entry& e : b.entries)
      if (e.value.is_null()) {
        e = {hash, value};
        pool_.write(at, b);
        return errc::ok;
      }
    if (b.next) {
      at = b.next;
      continue;
    }
    directory_bucket more;
    more.entries[0] = {hash, value};
    const auto r = pool_.try_alloc_bytes(std::as_bytes(std::span(&more, 1)));
    if (!r && is_full(r.error().code())) return r.error().code();
    b.next = pool_ptr<directory_bucket>(r ? *r : throw r.error());
    pool_.write(at, b);
    return errc::ok;
  }
}

void directory::replace(std::uint64_t hash, pool_address before, pool_address now) {
  found f;
  find(hash, before, f);
  f.entry->value = now;
  pool_.write(f.at, f.bucket);
}

void directory::remove(std::uint64_t hash, pool_address value) {
  found f;
  find(hash, value, f);
  *f.entry = {};
  const bool empty = std::all_of(f.bucket.entries.begin(), f.bucket.entries.end(),
                                 [](const directory_entry& e) { return e.value.is_null(); });
  if (f.before && empty) {
    f.bucket_before.next = f.bucket.next;
    pool_.write(f.before, f.bucket_before);
    pool_.free(f.at);
  } else {
    pool_.write(f.at, f.bucket);
  }
}

directory::counts directory::count() {
  counts n;
  std::vector<std::byte> object;
  for (std::size_t i = 0; i < first_.size(); ++i)
    for (pool_ptr<directory_bucket> at = first_[i]; at;) {
      directory_bucket b = pool_.read(at);
      ++n.buckets;
      for (directory_entry& e : b.entries) {
        if (e.value.is_null()) continue;
        ++n.entries;
        object = pool_.read_bytes(e.value);
        const auto v = decode_value(object);
        if (!v || hash(v->key) != e.hash || (e.hash & (first_.size() - 1)) != i)
          throw error(errc::corrupt, "an entry of the directory names something else than a value with its hash");
      }
      at = b.next;
    }
  return n;
}

}  // namespace fm::example

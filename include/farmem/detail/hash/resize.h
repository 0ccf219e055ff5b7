// How the shards of managed hash tables grow and shrink: one bucket at a time. An insertion splits a bucket when the
// pages of the shard would be three quarters full. An erasure merges two when they are less than three eighths full. So no
// thread waits for a rehash, and a table whose size stays about the same does neither.
//
// A merge appends the chain of the last bucket to that of the bucket that it was split from, packs the entries, and lets
// the emptied pages go. It allocates nothing, so a table shrinks when all agents are full. A chunk goes with the last
// bucket in it, but for the first chunk.
//
// Invariants owned here
//   - All that a split or a merge needs is made and pinned before the first entry moves. So if one fails, nothing has
//     changed.
//   - A page that leaves its chain does not come back into one, and pages of a chain stay in their order. So a reader
//     that follows a chain during motions comes to its end.
//
// The caller holds the shard, and pins the header. Used by the tables of fm::hash_map and fm::hash_set only.
#pragma once

#include <farmem/detail/hash/shards.h>
#include <optional>

namespace fm::detail {

template <class K, class V, class Hash, class Equal>
class hash_resize {
  using shards = hash_shards<K, V, Hash, Equal>;
  using key_of = typename shards::key_of;
  using element = typename shards::element;
  using page = typename shards::page;
  using shard = typename shards::shard;
  using chunk = typename shards::chunk;

 public:
  /// Whether `n` buckets are too few for that many entries.
  static constexpr bool is_dense(std::uint64_t size, std::uint64_t n) { return size > n * page::entries * 3 / 4; }
  /// Whether `n` buckets are too many for that many entries.
  static constexpr bool is_sparse(std::uint64_t size, std::uint64_t n) {
    return n > 1 && size < n * page::entries * 3 / 8;
  }

  /// The first page of bucket `b`, which there is.
  static ptr<page> head(const shard& s, std::uint64_t b) {
    const user_section in_section;
    return shards::head_of(s, b)->root();
  }

  /// Makes the first bucket of a shard that has none.
  static void begin(object_cache& cache, shard& s) {
    const ptr<page> page_of_it = make_zero<page>(cache);
    const write_pin<chunk> heads = chunk_for(cache, s, 0);
    (*heads)[0] = page_of_it;
    store_shared(s.buckets, std::uint64_t{1});
  }

  /// Adds a bucket and moves to it what belongs there: the half of one bucket.
  static void split(const shard_writing& held, object_cache& cache, shard& s) {
    const std::uint64_t n = s.buckets;
    std::vector<write_pin<page>> from, to;
    pin_chain(head(s, n - std::bit_floor(n)), from);
    std::uint64_t moving = 0;
    for (const auto& p : from)
      for (std::size_t i = 0; i < p->count; ++i) moving += bucket_of(key_of::hash_of(p->keys[i]), n + 1) == n;
    const ptr<page> added = make_zero<page>(cache);
    to.push_back(added.write());
    while (to.size() * page::entries < moving) {
      const ptr<page> more = make_zero<page>(cache);
      to.back()->next = more;
      to.push_back(more.write());
    }
    const write_pin<chunk> heads = chunk_for(cache, s, n);

    const shard_motion moving_entries(held);
    (*heads)[n % chunk_buckets] = added;
    store_shared(s.buckets, n + 1);
    std::uint64_t kept = 0, moved = 0;
    for (const auto& p : from)
      for (std::size_t i = 0; i < p->count; ++i) {
        const bool goes = bucket_of(key_of::hash_of(p->keys[i]), n + 1) == n;
        move_to(goes ? to : from, goes ? moved : kept, *p, i);
      }
    settle(from, kept);
    settle(to, moved);
  }

  /// Takes the last of several buckets back into the one that it was split from.
  static void merge(const shard_writing& held, shard& s) {
    const std::uint64_t last = s.buckets - 1;
    std::vector<write_pin<page>> pages;
    pin_chain(head(s, last - std::bit_floor(last)), pages);
    page& joint = *pages.back();
    const ptr<page> appended = head(s, last);
    pin_chain(appended, pages);
    const ptr<ref<chunk>[]> directory = s.directory.root();
    std::optional<write_pin<ref<chunk>[]>> loses_chunk;
    if (last >= chunk_buckets && last % chunk_buckets == 0) loses_chunk = directory.write();
    const ptr<chunk> part = last < chunk_buckets ? s.first.root() : directory->at(last / chunk_buckets - 1).root();
    const write_pin<chunk> heads = part.write();
    {
      const shard_motion moving_entries(held);
      joint.next = appended;
      store_shared(s.buckets, last);
      (*heads)[last % chunk_buckets] = nullptr;
      std::uint64_t kept = 0;
      for (const auto& p : pages)
        for (std::size_t i = 0; i < p->count; ++i) move_to(pages, kept, *p, i);
      settle(pages, kept);
    }
    // Readers that believe what they see look for no bucket there any more.
    if (loses_chunk) (**loses_chunk)[last / chunk_buckets - 1] = nullptr;
  }

 private:
  static void pin_chain(ptr<page> p, std::vector<write_pin<page>>& pages) {
    for (; p; p = pages.back()->next.root()) pages.push_back(p.write());
  }
  /// The chunk with a place for bucket `b`, the last one that there will be. Arrays that were made stay if a later step
  /// throws.
  static write_pin<chunk> chunk_for(object_cache& cache, shard& s, std::uint64_t b) {
    constexpr std::uint64_t least = 4;
    if (b < chunk_buckets) {
      lengthen(cache, s.first, b, std::max(least, std::bit_ceil(b + 1)));
      return s.first.root().write();
    }
    const std::uint64_t at = b / chunk_buckets - 1;
    lengthen(cache, s.directory, at, std::max(least, std::bit_ceil(at + 1)));
    const write_pin<ref<chunk>[]> directory = s.directory.root().write();
    if (!(*directory)[at]) (*directory)[at] = make_zero_array<ref<page>>(cache, chunk_buckets);
    return (*directory)[at].root().write();
  }
  /// Replaces an array by one of `length`, if it has no place `at`. Readers find the same in both.
  template <class R>
  static void lengthen(object_cache& cache, ref<R[]>& array, std::uint64_t at, std::uint64_t length) {
    const ptr<R[]> before = array.root();
    const std::uint64_t kept = before ? before->size() : 0;
    if (at < kept) return;
    const ptr<R[]> after = make_zero_array<R>(cache, length);
    if (kept != 0) {
      const write_pin<R[]> to = after.write();
      const read_pin<R[]> from = before.read();
      for (std::uint64_t i = 0; i < kept; ++i) detail::element<R>::move((*to)[i], (*from)[i]);
    }
    array = after;
  }
  /// Moves an entry to place `at` of the pages, which is its own or before it.
  static void move_to(std::vector<write_pin<page>>& pages, std::uint64_t& at, page& x, std::size_t i) {
    page& y = *pages[at / page::entries];
    const std::size_t k = at % page::entries;
    ++at;
    if (&y == &x && k == i) return;
    key_of::move(y.keys[k], x.keys[i]);
    element::move(y.values[k], x.values[i]);
  }
  /// Entries are in the first `n` places of the pages: counts them, clears the rest, lets empty pages go.
  static void settle(std::vector<write_pin<page>>& pages, std::uint64_t n) {
    for (std::size_t k = 0; k < pages.size(); ++k) {
      page& p = *pages[k];
      const std::uint64_t before = k * page::entries;
      const std::uint64_t count = n > before ? std::min(page::entries, n - before) : 0;
      for (std::size_t i = count; i < page::entries; ++i) {
        key_of::clear(p.keys[i]);
        element::clear(p.values[i]);
      }
      store_shared(p.count, count);
      if (n <= before + page::entries) p.next = nullptr;
    }
  }
};

}  // namespace fm::detail

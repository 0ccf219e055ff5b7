// How the shards of managed hash tables grow and shrink: one bucket at a time. An insertion splits a bucket when the
// pages of the shard would be three quarters full. An erasure merges two when they are less than three eighths full. So no
// thread waits for a rehash, and a table whose size stays about the same does neither.
//
// A merge appends the chain of the last bucket to that of the bucket that it was split from, packs the entries, and lets
// the emptied pages go. It allocates nothing, so a table shrinks when all agents are full. The vector of buckets gives a
// chunk back when the last bucket in it has gone.
//
// Invariants owned here
//   - All that a split or a merge needs is made and pinned before the first entry moves. So if one fails, nothing has
//     changed.
//   - A page that leaves its chain does not come back into one, and pages of a chain stay in their order. So a reader
//     that follows a chain during motions comes to its end.
//
// The caller holds the shard. Used by the tables of fm::hash_map and fm::hash_set only.
#pragma once

#include <farmem/detail/hash_shards.h>

namespace fm::detail {

template <class K, class V, class Hash, class Equal>
class hash_resize {
  using shards = hash_shards<K, V, Hash, Equal>;
  using key_of = typename shards::key_of;
  using element = typename shards::element;
  using page = typename shards::page;
  using bucket_vector = typename shards::bucket_vector;
  using bucket_chunks = typename shards::bucket_chunks;

 public:
  /// Whether `n` buckets are too few for that many entries.
  static constexpr bool is_dense(std::uint64_t size, std::uint64_t n) { return size > n * page::entries * 3 / 4; }
  /// Whether `n` buckets are too many for that many entries.
  static constexpr bool is_sparse(std::uint64_t size, std::uint64_t n) {
    return n > 1 && size < n * page::entries * 3 / 8;
  }

  /// Adds bucket `n` and moves to it what belongs there: the half of one bucket.
  static void split(const shard_writing& held, object_cache& cache, const bucket_vector& buckets, std::uint64_t n) {
    std::vector<write_pin<page>> from, to;
    pin_chain(buckets[n - std::bit_floor(n)], from);
    std::uint64_t moving = 0;
    for (const auto& p : from)
      for (std::size_t i = 0; i < p->count; ++i) moving += bucket_of(key_of::hash_of(p->keys[i]), n + 1) == n;
    const ptr<page> head = make_zero<page>(cache);
    to.push_back(head.write());
    while (to.size() * page::entries < moving) {
      const ptr<page> more = make_zero<page>(cache);
      to.back()->next = more;
      to.push_back(more.write());
    }
    buckets.reserve(n + 1);
    const write_pin<bucket_vector> vector(buckets.slot());
    const write_pin<ref<page>[]> chunk(slot_of_chunk(*vector, bucket_chunks::chunk_of(n)));

    const shard_motion moving_entries(held);
    (*chunk)[bucket_chunks::within(n)] = head;
    store_shared(vector->size_, n + 1);
    std::uint64_t kept = 0, moved = 0;
    for (const auto& p : from)
      for (std::size_t i = 0; i < p->count; ++i) {
        const bool goes = bucket_of(key_of::hash_of(p->keys[i]), n + 1) == n;
        move_to(goes ? to : from, goes ? moved : kept, *p, i);
      }
    settle(from, kept);
    settle(to, moved);
  }

  /// Takes the last of `n` buckets back into the one that it was split from.
  static void merge(const shard_writing& held, const bucket_vector& buckets, std::uint64_t n) {
    const std::uint64_t last = n - 1;
    std::vector<write_pin<page>> pages;
    pin_chain(buckets[last - std::bit_floor(last)], pages);
    page& joint = *pages.back();
    const ptr<page> appended = buckets[last];
    pin_chain(appended, pages);
    const write_pin<bucket_vector> vector(buckets.slot());
    const write_pin<ref<page>[]> chunk(slot_of_chunk(*vector, bucket_chunks::chunk_of(last)));
    {
      const shard_motion moving_entries(held);
      joint.next = appended;
      store_shared(vector->size_, last);
      (*chunk)[bucket_chunks::within(last)] = nullptr;
      std::uint64_t kept = 0;
      for (const auto& p : pages)
        for (std::size_t i = 0; i < p->count; ++i) move_to(pages, kept, *p, i);
      settle(pages, kept);
    }
    // Readers that believe what they see look for no bucket there any more.
    if (bucket_chunks::within(last) == 0) bucket_chunks::cut(buckets.slot(), last);
  }

 private:
  static void pin_chain(ptr<page> p, std::vector<write_pin<page>>& pages) {
    for (; p; p = pages.back()->next.root()) pages.push_back(p.write());
  }
  static slot_t slot_of_chunk(const vector_header<ref<page>>& v, std::uint64_t c) {
    const user_section in_section;
    return bucket_chunks::slot_of(v, c);
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

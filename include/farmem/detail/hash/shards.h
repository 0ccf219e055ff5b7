// How a managed hash table is read: finding a key in its chain, and walking a shard step by step.
//
// A walk is weakly consistent. It goes through the buckets that a shard had when it came there, in their order. A step
// copies what the shard has of one such bucket at one moment: all of a bucket, or a part if buckets were merged, or the
// next of several that it was split into. Between steps nothing is held. With the bits of hashes reversed, the steps
// are intervals (hash/pages.h), each begins where the last one ended, and a key never changes its hash. So every key is
// covered by exactly one step: if it is there throughout, it is seen once, and no key is seen twice.
//
// Invariants owned here
//   - All that a read gives is of one moment of its shard.
//   - Words that are read during a motion may be of different moments. Numbers are bounded and slots checked for null
//     before they are followed.
//
// Used by the tables and iterators of fm::hash_map and fm::hash_set only.
#pragma once

#include <farmem/detail/hash/pages.h>
#include <vector>

namespace fm::detail {

/// Where a walk is. A new one begins at the first key.
struct hash_position {
  std::uint64_t shard = 0;
  std::uint64_t buckets = 0;  ///< that the shard had when the walk came there; 0: it has not yet
  std::uint64_t bucket = 0;   ///< one of these
  bool begun = false;         ///< a part of the bucket is done: ...
  std::uint64_t at = 0;       ///< ... reversed hashes below this

  [[nodiscard]] bool at_end() const noexcept { return shard == map_shards; }
  bool operator==(const hash_position&) const = default;
};

template <class K, class V, class Hash, class Equal>
struct hash_shards {
  static constexpr bool is_set = std::is_same_v<V, no_value>;
  using header = hash_table_header<K, V, Hash, Equal>;
  using key_of = map_key<K, Hash, Equal>;
  using element = map_value<V>;
  using page = hash_page<K, V, Hash, Equal>;
  using shard = hash_shard<K, V, Hash, Equal>;
  using chunk = typename shard::chunk;
  using handle = std::conditional_t<is_set, ptr<hash_set<K, Hash, Equal>>, ptr<hash_map<K, V, Hash, Equal>>>;
  using key_value = typename key_of::value;
  using mapped_value = typename element::value;
  /// An entry as programs see it.
  using entry = std::conditional_t<is_set, key_value, std::pair<key_value, mapped_value>>;

  struct place {
    const page* at = nullptr;
    slot_t slot = 0;
    std::size_t index = 0;
  };

  /// The reference to the first page of bucket `b`. Of null, the snapshot tells that the bucket has gone. In a section.
  static const ref<page>* head_of(const shard& s, std::uint64_t b) {
    slot_t c = 0;
    if (b < chunk_buckets) {
      c = s.first.slot();
    } else if (const slot_t d = s.directory.slot(); d != 0) {
      const auto& directory = *object_at<array_object<ref<chunk>>>(d);
      if (const std::uint64_t at = b / chunk_buckets - 1; at < directory.size()) c = directory[at].slot();
    }
    if (c == 0) return nullptr;
    const auto& pages = *object_at<array_object<ref<page>>>(c);
    return b % chunk_buckets < pages.size() ? &pages[b % chunk_buckets] : nullptr;
  }
  static slot_t head_slot(const shard& s, std::uint64_t b) {
    const ref<page>* head = head_of(s, b);
    return head == nullptr ? 0 : head->slot();
  }
  /// The first page of the bucket of a hash; 0 when there is none. In a section that holds no pointers yet.
  static slot_t head_for(slot_t table, std::uint64_t hash) {
    const shard& s = object_at<header>(table)->shards[shard_of(hash)];
    const std::uint64_t n = load_shared(s.buckets);
    return n == 0 ? 0 : head_slot(s, bucket_of(hash, n));
  }

  /// Entries of a page that are complete.
  static std::uint64_t count_of(const page& p) { return std::min(load_shared(p.count), page::entries); }

  /// Finds `key`; false when the snapshot does not hold. In a section that holds no pointers yet.
  template <class Sought>
  static bool locate(slot_t table, std::uint64_t h, const Sought& key, const shard_snapshot& seen, place& where) {
    where = {};
    for (slot_t s = head_for(table, h); s != 0;) {
      const page* p = object_at<page>(s);
      fetch_lines(*p);
      for (std::size_t i = 0, n = count_of(*p); i < n; ++i) {
        const match m = key_of::equal(p->keys[i], h, key, seen);
        if (m == match::no) continue;
        where = {p, s, i};
        return m == match::yes;
      }
      s = p->next.slot();
    }
    return true;
  }
  /// Calls f(page, index) for each key with that hash. In a section that holds no pointers yet.
  template <class F>
  static void each_with(slot_t table, std::uint64_t h, F&& f) {
    for (slot_t s = head_for(table, h); s != 0;) {
      const page* p = object_at<page>(s);
      for (std::size_t i = 0, n = count_of(*p); i < n; ++i)
        if (key_of::hash_of(p->keys[i]) == h) f(*p, i);
      s = p->next.slot();
    }
  }

  static entry show(const page& p, std::size_t i) {
    if constexpr (is_set)
      return key_of::show(p.keys[i]);
    else
      return {key_of::show(p.keys[i]), element::load(p.values[i])};
  }
  /// Calls f with an entry: as one, or as key and value. Text comes as fm::string, or as std::string if f takes only
  /// that or a view.
  template <class F>
  static decltype(auto) call_with(F& f, const entry& e) {
    if constexpr (is_set) {
      if constexpr (std::is_invocable_v<F&, const key_value&>)
        return f(e);
      else
        return f(e.str());
    } else {
      if constexpr (std::is_invocable_v<F&, const key_value&, const mapped_value&>)
        return f(e.first, e.second);
      else
        return f(e.first.str(), e.second);
    }
  }

  /// What a step of a walk covers.
  struct step {
    slot_t head = 0;            ///< of the chain that has it
    bool whole = true;          ///< nothing else is in the chain
    std::uint64_t first = 0;    ///< if not: reversed hashes ...
    std::uint64_t last = 0;     ///< ... from .. to
    std::uint64_t bucket = 0;   ///< the chain's bucket ...
    std::uint64_t buckets = 0;  ///< ... of so many
    hash_position next;         ///< where the walk is after it
  };
  /// The step that a walk takes from `at`. In a section that holds no pointers yet.
  static step step_from(slot_t table, const hash_position& at) {
    const shard& in = object_at<header>(table)->shards[at.shard];
    const std::uint64_t n = load_shared(in.buckets);
    step s;
    s.next = {.shard = at.shard + 1};
    s.buckets = n;
    if (n == 0) return s;
    const std::uint64_t had = at.buckets == 0 ? n : at.buckets;
    bool ends = true;
    if (n == had && !at.begun) {
      s.bucket = at.bucket;
    } else {
      s.first = at.begun ? at.at : reversed(at.bucket);
      s.bucket = bucket_of(reversed(s.first), n);
      const std::uint64_t end = last_of_bucket(at.bucket, had), last = last_of_bucket(s.bucket, n);
      s.last = std::min(end, last);
      s.whole = s.first == reversed(s.bucket) && s.last == last;
      ends = s.last == end;
    }
    s.head = head_slot(in, s.bucket);
    if (!ends)
      s.next = {.shard = at.shard, .buckets = had, .bucket = at.bucket, .begun = true, .at = s.last + 1};
    else if (at.bucket + 1 != had)
      s.next = {.shard = at.shard, .buckets = had, .bucket = at.bucket + 1};
    return s;
  }
  /// All keys of the chain that has a step, of that shard.
  static key_range keys_of(std::uint64_t shard, const step& s) {
    constexpr std::uint64_t shard_mask = ~std::uint64_t{0} << shard_shift;
    if (s.buckets == 0) return {shard << shard_shift, shard_mask};
    return {shard << shard_shift | s.bucket, shard_mask | ((std::uint64_t{1} << bucket_bits(s.bucket, s.buckets)) - 1)};
  }
  /// Calls f(page, index) for the entries of a step; false when the snapshot does not hold. In the section of step_from.
  template <class F>
  static bool each_of(const step& s, const shard_snapshot& seen, F&& f) {
    for (slot_t at = s.head; at != 0;) {
      const page* p = object_at<page>(at);
      for (std::size_t i = 0, n = count_of(*p); i < n; ++i) {
        if (!s.whole) {
          const std::optional<std::uint64_t> h = key_of::seen_hash(p->keys[i], seen);
          if (!h) return false;
          if (const std::uint64_t r = reversed(*h); r < s.first || r > s.last) continue;
        }
        f(*p, i);
      }
      at = p->next.slot();
    }
    return true;
  }
  /// Copies what the next step of a walk covers, and returns where it is then. Outside of sections that hold pointers.
  static hash_position copy_step(slot_t table, const hash_position& at, std::vector<entry>& entries) {
    hash_position next;
    read_shard(table, at.shard, [&](const shard_snapshot& seen) {
      entries.clear();
      const step s = step_from(table, at);
      next = s.next;
      return each_of(s, seen, [&](const page& p, std::size_t i) { entries.push_back(show(p, i)); }) && seen.holds();
    });
    return next;
  }

 private:
  /// Starts loading all of a page: else its lines are waited for one after the other, as keys are compared.
  static void fetch_lines(const page& p) noexcept {
    for (std::size_t at = cache_line_bytes; at < sizeof p; at += cache_line_bytes)
      __builtin_prefetch(reinterpret_cast<const char*>(&p) + at);
  }
};

}  // namespace fm::detail

// The objects of a managed tree: a header, which names a top; the top, which names the root and counts entries; inner
// nodes; leaves. A B+tree: entries are in the leaves (Comer, The Ubiquitous B-Tree, ACM Computing Surveys 1979).
//
//   header ── top ── inner (level 2) ──┬─ inner (level 1) ──┬─ leaf
//                                      └─ …                 └─ leaf …
//
// How it changes
//   - Keys and number of children of an inner node never change. A reference to a child is exchanged for that of a node
//     with the same interval of keys. Any other change replaces the node: the new nodes are complete before one store
//     makes all of them visible.
//   - A leaf changes in place, under its lock. Its entries do not move: `order` says which place has which entry, so an
//     insertion writes one entry and moves bytes. A change that readers could see half of is a motion (leaf_motion),
//     as in shard_lock.h: the version of the leaf is odd meanwhile.
//   - A leaf that was replaced is retired, under its lock, and never changes again.
//   - clear and bulk_load give the header another top.
//
// Invariants owned here
//   - The interval of a node's place, and of a leaf, never changes.
//   - order[0 .. count) are the places of the entries, by their keys, and the rest of `order` are the free places.
//
// Used by fm::map and fm::set only.
#pragma once

#include <algorithm>
#include <farmem/detail/table_value.h>
#include <farmem/detail/tree/keys.h>
#include <farmem/object/object.h>

namespace fm {
template <class Self, class K, class V, class Compare>
class tree_table;
}

namespace fm::detail {

/// Bytes of a node, about: chosen by measurement (bench/micro/README.md). A smaller leaf is searched and changed a little
/// faster. A larger one needs fewer fetches for a scan, and a smaller part of the tree for the inner nodes.
constexpr std::size_t tree_node_bytes = 4096;
constexpr std::size_t tree_node_head_bytes = 32;
/// A tree of this many levels would have more leaves than a heap has slots.
constexpr std::size_t tree_levels_max = 16;

/// The beginning of all nodes. Level 0: a leaf; otherwise the children are of the level below.
struct tree_node {
  std::uint64_t level = 0;
};

template <class K, class V, class Compare>
struct tree_leaf {
  using stored_key = typename tree_key<K, Compare>::stored;
  static constexpr std::size_t entries =
      std::clamp<std::size_t>((tree_node_bytes - tree_node_head_bytes) / (sizeof(stored_key) + sizeof(V) + 1), 4, 248);
  static constexpr std::size_t order_bytes = round_up(entries, std::size_t{8});

  std::uint64_t level = 0;
  std::atomic<std::uint64_t> version{0};  ///< odd: in a motion
  std::uint64_t retired = 0;
  std::uint64_t count = 0;
  std::array<std::uint8_t, order_bytes> order{};
  std::array<stored_key, entries> keys{};
  std::array<V, entries> values{};

  [[nodiscard]] std::size_t count_seen() const { return std::min<std::size_t>(load_shared(count), entries); }
  /// The place of entry `i`; of a torn leaf, some place.
  [[nodiscard]] std::size_t place_of(std::size_t i) const {
    return std::min<std::size_t>(load_shared(order[i]), entries - 1);
  }
  /// A writer sees one moment. So has a reader, if the snapshot holds.
  [[nodiscard]] shard_snapshot snapshot() const { return {version, version.load(std::memory_order_acquire)}; }
};

template <class K, class V, class Compare>
struct tree_inner {
  using stored_key = typename tree_key<K, Compare>::stored;
  static constexpr std::size_t children_max =
      std::clamp<std::size_t>((tree_node_bytes - tree_node_head_bytes) / (sizeof(stored_key) + 8), 8, 248);

  std::uint64_t level = 1;
  std::uint64_t count = 0;                          ///< of children
  std::array<stored_key, children_max - 1> keys{};  ///< key i: of child i + 1 the least, of child i none
  std::array<ref<object>, children_max> children{};
};

/// A part of the number of entries, in a cache line of its own.
struct tree_count {
  std::atomic<std::uint64_t> entries{0};  ///< parts may be less than 0, and their sum is not
  std::array<std::uint64_t, 7> apart{};
};
struct tree_top {
  ref<object> root;
  std::array<tree_count, 8> counts{};

  std::atomic<std::uint64_t>& count_of(slot_t leaf) { return counts[leaf % counts.size()].entries; }
};

template <class K, class V, class Compare>
struct tree_reader;
template <class K, class V, class Compare>
class tree_shape;
template <class K, class V, class Compare>
class tree_builder;
template <class Self, class K, class V, class Compare>
class tree_writer;

/// The object behind a tree: only the tree's own members reach what is in it.
template <class K, class V, class Compare>
class tree_header {
  template <class, class, class, class>
  friend class fm::tree_table;
  friend struct tree_reader<K, V, Compare>;
  friend class tree_shape<K, V, Compare>;
  friend class tree_builder<K, V, Compare>;
  template <class, class, class, class>
  friend class tree_writer;
  friend struct managed_traits<tree_header>;

  ref<tree_top> top;  ///< null: no entries
};

/// While it lives, readers of the leaf do not believe what they see. It contains no miss and no code of the program.
class leaf_motion {
 public:
  explicit leaf_motion(std::atomic<std::uint64_t>& version) noexcept : version_(version) {
    // The release stores that follow keep this one before them.
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  ~leaf_motion() { version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  leaf_motion(const leaf_motion&) = delete;
  leaf_motion& operator=(const leaf_motion&) = delete;

 private:
  std::atomic<std::uint64_t>& version_;
};

/// Where a key is in a leaf, or would be.
struct leaf_spot {
  std::size_t index = 0;  ///< in the order
  bool there = false;
};

/// The entries of a leaf, as its writer changes them: under its lock, in a section that reached the leaf for writing.
template <class K, class V, class Compare>
struct leaf_entries {
  using leaf = tree_leaf<K, V, Compare>;
  using key_of = tree_key<K, Compare>;
  using element = map_value<V>;

  static void insert(leaf& l, std::size_t index, const typename key_of::made& key,
                     const typename element::argument& v) {
    auto order = l.order;
    const std::uint8_t place = order[l.count];
    std::memmove(&order[index + 1], &order[index], l.count - index);
    order[index] = place;
    const leaf_motion moving(l.version);
    store_order(l, order, index, l.count);
    key_of::place(l.keys[place], key);
    element::store(l.values[place], v);
    store_shared(l.count, l.count + 1);
  }
  static void erase(leaf& l, std::size_t index) {
    auto order = l.order;
    const std::uint8_t place = order[index];
    std::memmove(&order[index], &order[index + 1], l.count - 1 - index);
    order[l.count - 1] = place;
    const leaf_motion moving(l.version);
    store_order(l, order, index, l.count - 1);
    key_of::clear(l.keys[place]);
    element::clear(l.values[place]);
    store_shared(l.count, l.count - 1);
  }
  /// Stores a value of more than one word where no reader takes half of it.
  static void replace(leaf& l, std::size_t index, const typename element::argument& v) {
    V& value = l.values[l.order[index]];
    if constexpr (single_word<V>) {
      element::store(value, v);
    } else {
      const leaf_motion moving(l.version);
      element::store(value, v);
    }
  }
  /// Appends the entries from .. to of another leaf to one that nobody else sees.
  static void append(leaf& to, const leaf& from, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i, ++to.count) {
      to.order[to.count] = static_cast<std::uint8_t>(to.count);
      key_of::move(to.keys[to.count], from.keys[from.order[i]]);
      element::move(to.values[to.count], from.values[from.order[i]]);
    }
  }
  /// Stores those words of the order that have bytes first .. last.
  static void store_order(leaf& l, const decltype(leaf::order)& order, std::size_t first, std::size_t last) {
    using words = shared_words<std::uint64_t>;
    for (std::size_t i = first / words::bytes; i <= last / words::bytes; ++i) {
      typename words::word w;
      std::memcpy(&w, &order[i * words::bytes], words::bytes);
      __atomic_store_n(reinterpret_cast<typename words::word*>(l.order.data()) + i, w, __ATOMIC_RELEASE);
    }
  }
  /// Numbers the free places of a leaf that nobody else sees.
  static void number_free(leaf& l) {
    for (std::size_t i = l.count; i < leaf::entries; ++i) l.order[i] = static_cast<std::uint8_t>(i);
  }
};

}  // namespace fm::detail

/// The field of a tree's header, for reflection.
template <class K, class V, class Compare>
struct fm::managed_traits<fm::detail::tree_header<K, V, Compare>> {
  /// It alone.
  static auto fields(auto& self) { return std::tie(self.top); }
};

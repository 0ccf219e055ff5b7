// How containers travel in graphs. On the way a container is its entries, in batches of an agreed size; the receiver's
// program makes a container of its own of them. So nothing of what lies in a container, such as hash codes, shards,
// chunks and their directories, leaves and what is above them, comes from outside.
//
//   fm::vector<E>        entries are its elements, in order; they are written into the chunks of the vector that is made
//   fm::hash_map<K, V>   entries are pairs of key and value, which the receiver inserts
//   fm::hash_set<K>      entries are its keys, which the receiver inserts
//   fm::map<K, V>        entries are pairs of key and value, in order; the receiver makes nodes of them (tree/builder.h)
//   fm::set<K>           entries are its keys, in order; the same
//
// A container travels when graph_container<C> says how: its entry, a walk over the entries for the sender, and for the
// receiver either place() or fill().
//
// Invariants owned here
//   - Entries that a walk shows are kept alive, with all that they refer to, until the walk is asked for the next batch.
//     The writer keeps copies for longer (graph_writer.h).
//   - A key that is in a table or tree during a whole walk is in it once, and no key is in it twice (hash/shards.h,
//     tree/reader.h). Of a tree, keys ascend strictly.
//   - A container_filling is given entries whose references are complete. It tells of a key that is null, that comes
//     twice, or, of a tree, that does not come after the one before by the receiver's Compare.
//
// The writer and the reader of graphs (src/channel/graph) call the functions through graph_container_ops.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <farmem/containers/hash_map.h>
#include <farmem/containers/hash_set.h>
#include <farmem/containers/map.h>
#include <farmem/containers/set.h>
#include <farmem/containers/vector.h>
#include <memory>
#include <vector>

namespace fm::detail {

/// Entries of a full batch. A batch with fewer is the last one of its container.
constexpr std::uint64_t batch_entries(std::uint64_t entry_bytes) {
  return std::max<std::uint64_t>(
      1, std::bit_floor(8192 / std::max<std::uint64_t>(1, std::min<std::uint64_t>(8192, entry_bytes))));
}

/// Some entries of a container that is sent.
struct container_batch {
  slot_t array = 0;             ///< an array whose first elements they are; 0: they have no references and lie at ...
  const char* plain = nullptr;  ///< ... this address, with room for whole words
  std::uint64_t length = 0;
  bool copied = false;  ///< the array was made for the batch, of a container that others may write to
};

/// A walk over a container that is sent.
class container_walk {
 public:
  virtual ~container_walk() = default;
  /// The next batch; the last one is done with. Outside of sections. Throws as the container's iterator.
  virtual container_batch next() = 0;
};

/// Where entries of a container that is received belong.
struct container_place {
  slot_t array = 0;           ///< an array of entries
  std::uint64_t first = 0;    ///< index in it
  std::uint64_t entries = 0;  ///< how many belong there
};

/// Whether entries could be added.
enum class insertion : std::uint8_t { done, null_key, key_twice, out_of_order };

/// A container that is received, while it is given its entries.
class container_filling {
 public:
  virtual ~container_filling() = default;
  /// Adds the first `count` entries of an array, in order. Outside of sections. Throws as the container's insertion.
  virtual insertion add(slot_t batch, std::uint64_t count) = 0;
  /// All entries have been added. Outside of sections.
  virtual void finish() = 0;
};

/// Functions of a type of container, for the writer and the reader.
struct graph_container_ops {
  std::unique_ptr<container_walk> (*walk)(slot_t container) = nullptr;
  /// Makes room for the entries from `index` on, at most `count`. `more`: others may come after them. Null: entries are
  /// added.
  container_place (*place)(slot_t container, std::uint64_t index, std::uint64_t count, bool more) = nullptr;
  /// Begins to add entries.
  std::unique_ptr<container_filling> (*fill)(slot_t container) = nullptr;
  /// Bytes of nodes that one entry alone needs.
  std::uint64_t first_bytes = 0;
};

/// How a C travels. Not defined for containers that do not.
template <class C>
struct graph_container;

template <class C>
concept graph_container_type = requires {
  typename graph_container<C>::entry;
};

// ---- fm::vector ----

template <class E>
struct graph_container<vector<E>> {
  using entry = E;
  using place_of = chunks<E>;
  static_assert(place_of::chunk_elements == batch_entries(sizeof(E)), "a batch is a chunk");

  class walk_over final : public container_walk {
   public:
    explicit walk_over(slot_t v) : vector_(v) {}
    container_batch next() override {
      place_of::fetch_ahead(vector_, chunk_);
      const user_section in_section;
      const auto& h = *object_at<vector_header<E>>(vector_);
      const std::uint64_t from = chunk_++ * place_of::chunk_elements;
      if (from >= h.size_) return {};
      return {place_of::slot_of(h, chunk_ - 1), nullptr, std::min(h.size_ - from, place_of::chunk_elements)};
    }

   private:
    const slot_t vector_;
    std::uint64_t chunk_ = 0;
  };
  static std::unique_ptr<container_walk> walk(slot_t v) { return std::make_unique<walk_over>(v); }
  /// The new elements are zero, or null, until they are written. If more come, the first chunk is made as large as it
  /// can get, because growing it would copy it, and a reference in it may still be missing.
  static container_place place(slot_t v, std::uint64_t index, std::uint64_t count, bool more) {
    const std::uint64_t first = place_of::within(index);
    const std::uint64_t n = std::min(count, place_of::chunk_elements - first);
    place_of::grow(v, more ? std::max(index + n, place_of::chunk_elements) : index + n);
    const user_section in_section;
    auto* h = object_to_write<vector_header<E>>(v);
    h->size_ = index + n;
    return {place_of::slot_of(*h, place_of::chunk_of(index)), first, n};
  }
  static constexpr graph_container_ops ops{&walk, &place, nullptr, 0};
};

// ---- maps and sets ----

/// How a key lies in an entry.
template <class K>
struct graph_key {
  using type = K;
  static void store(K& to, const K& k) { to = k; }
};
template <>
struct graph_key<string> {
  using type = ref<string>;
  static void store(type& to, const string& k) { to = k; }
};

/// An entry of a map.
template <class K, class V>
struct graph_entry {
  typename graph_key<K>::type key{};
  V value{};
};

/// The entries of maps and sets, hashed and ordered.
template <class K, class V>
struct graph_entries {
  static constexpr bool is_set = std::is_same_v<V, no_value>;
  using entry = std::conditional_t<is_set, typename graph_key<K>::type, graph_entry<K, V>>;
  static constexpr std::uint64_t batch = batch_entries(sizeof(entry));

  /// Stores an entry as programs see it.
  template <class Seen>
  static void store(entry& to, const Seen& e) {
    if constexpr (is_set) {
      graph_key<K>::store(to, e);
    } else {
      graph_key<K>::store(to.key, e.first);
      element<V>::store(to.value, e.second);
    }
  }
  static const auto& key_of(const entry& e) {
    if constexpr (is_set)
      return e;
    else
      return e.key;
  }
  static auto value_of([[maybe_unused]] const entry& e) {
    if constexpr (is_set)
      return no_value::none;
    else
      return element<V>::load(e.value);
  }
  /// Calls add(key, value) with the entries of a batch, as long as it returns insertion::done.
  template <class Add>
  static insertion each(slot_t of, std::uint64_t count, Add&& add) {
    const read_pin<entry[]> entries(of);
    insertion result = insertion::done;
    for (std::uint64_t i = 0; i < count && result == insertion::done; ++i) {
      const entry& e = (*entries)[i];
      if constexpr (std::is_same_v<K, string>) {
        if (!key_of(e)) return insertion::null_key;
        const read_pin<string> text(key_of(e).slot());
        result = add(std::string_view(text->data(), text->size()), value_of(e));
      } else {
        result = add(key_of(e), value_of(e));
      }
    }
    return result;
  }
};

/// A walk over entries that others may write to. `Steps` copies them: at_end(), and copy(container, entries), which gives
/// the next ones.
template <class C, class Entries, class Steps>
class copying_walk final : public container_walk {
  using entry = typename Entries::entry;
  using seen = typename C::value_type;

 public:
  explicit copying_walk(slot_t c) : container_(ptr<C>::from_slot(c)) {}
  container_batch next() override {
    kept_ = nullptr;
    while (seen_.size() - taken_ < Entries::batch && !steps_.at_end()) {
      steps_.copy(container_.slot(), step_);
      seen_.erase(seen_.begin(), seen_.begin() + static_cast<std::ptrdiff_t>(taken_));
      taken_ = 0;
      seen_.insert(seen_.end(), std::make_move_iterator(step_.begin()), std::make_move_iterator(step_.end()));
    }
    const std::uint64_t n = std::min<std::uint64_t>(Entries::batch, seen_.size() - taken_);
    const seen* const from = seen_.data() + taken_;
    taken_ += n;
    if (n == 0) return {};
    if constexpr (has_refs<entry>) {
      kept_ = make_zero_array<entry>(cache_of(container_.slot()), n);
      const write_pin<entry[]> to(kept_.slot());
      for (std::uint64_t i = 0; i < n; ++i) Entries::store((*to)[i], from[i]);
      return {kept_.slot(), nullptr, n, true};
    } else {
      plain_.assign((n * sizeof(entry) + 7) / 8, 0);
      for (std::uint64_t i = 0; i < n; ++i) {
        entry e{};
        Entries::store(e, from[i]);
        std::memcpy(reinterpret_cast<char*>(plain_.data()) + i * sizeof(entry), &e, sizeof e);
      }
      return {0, reinterpret_cast<const char*>(plain_.data()), n};
    }
  }

 private:
  const ptr<C> container_;
  Steps steps_;
  std::vector<seen> step_, seen_;  ///< copied by the last step; copied and not shown yet
  std::size_t taken_ = 0;          ///< of seen_, those that were
  ptr<entry[]> kept_;              ///< the batch shown last
  std::vector<std::uint64_t> plain_;
};

/// `C`: an fm::hash_map or fm::hash_set.
template <class C, class K, class V, class Hash, class Equal>
struct graph_table {
  using entries = graph_entries<K, V>;
  using entry = typename entries::entry;
  using shards = hash_shards<K, V, Hash, Equal>;

  struct steps {
    hash_position at;
    [[nodiscard]] bool at_end() const noexcept { return at.at_end(); }
    void copy(slot_t table, std::vector<typename shards::entry>& to) { at = shards::copy_step(table, at, to); }
  };
  class filling final : public container_filling {
   public:
    explicit filling(slot_t table) : table_(ptr<C>::from_slot(table)) {}
    insertion add(slot_t batch, std::uint64_t count) override {
      return entries::each(batch, count, [&](const auto& key, [[maybe_unused]] const auto& value) {
        if constexpr (entries::is_set)
          return table_.insert(key) ? insertion::done : insertion::key_twice;
        else
          return table_.insert(key, value) ? insertion::done : insertion::key_twice;
      });
    }
    void finish() override {}

   private:
    const C table_;
  };
  static std::unique_ptr<container_walk> walk(slot_t table) {
    return std::make_unique<copying_walk<C, entries, steps>>(table);
  }
  static std::unique_ptr<container_filling> fill(slot_t table) { return std::make_unique<filling>(table); }
  static constexpr graph_container_ops ops{&walk, nullptr, &fill, 0};
};

template <class K, class V, class Hash, class Equal>
struct graph_container<hash_map<K, V, Hash, Equal>> : graph_table<hash_map<K, V, Hash, Equal>, K, V, Hash, Equal> {};
template <class K, class Hash, class Equal>
struct graph_container<hash_set<K, Hash, Equal>> : graph_table<hash_set<K, Hash, Equal>, K, no_value, Hash, Equal> {};

/// `C`: an fm::map or fm::set. The tree that is received gets its nodes at the end, all at once.
template <class C, class K, class V, class Compare>
struct graph_tree {
  using entries = graph_entries<K, V>;
  using entry = typename entries::entry;
  using walks = tree_walk<K, V, Compare>;

  struct steps {
    typename walks::position at;
    [[nodiscard]] bool at_end() const noexcept { return at.at_end; }
    void copy(slot_t tree, std::vector<typename walks::entry>& to) { walks::copy_step(tree, at, to); }
  };
  class filling final : public container_filling {
   public:
    explicit filling(slot_t tree) : tree_(ptr<C>::from_slot(tree)), builder_(cache_of(tree)) {}
    insertion add(slot_t batch, std::uint64_t count) override {
      return entries::each(batch, count, [&](const auto& key, const auto& value) {
        return builder_.add(key, value) ? insertion::done : insertion::out_of_order;
      });
    }
    void finish() override { builder_.publish(tree_.slot()); }

   private:
    const ptr<C> tree_;
    tree_builder<K, V, Compare> builder_;
  };
  static std::unique_ptr<container_walk> walk(slot_t tree) {
    return std::make_unique<copying_walk<C, entries, steps>>(tree);
  }
  static std::unique_ptr<container_filling> fill(slot_t tree) { return std::make_unique<filling>(tree); }
  static constexpr graph_container_ops ops{&walk, nullptr, &fill, sizeof(tree_top) + sizeof(tree_leaf<K, V, Compare>)};
};

template <class K, class V, class Compare>
struct graph_container<map<K, V, Compare>> : graph_tree<map<K, V, Compare>, K, V, Compare> {};
template <class K, class Compare>
struct graph_container<set<K, Compare>> : graph_tree<set<K, Compare>, K, no_value, Compare> {};

}  // namespace fm::detail

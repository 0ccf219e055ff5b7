// How managed trees are written: the base of fm::tree_table, which has their public members. A writer comes to the leaf of
// its key as a reader does, takes the leaf's lock, and looks whether the leaf was retired meanwhile. If so, it starts
// again. Remote nodes are fetched before the lock is taken.
//
// A function that was given to update runs without a lock. Its key is listed meanwhile (tree/locks.h), and other writers
// of the key wait. The function's result goes to the top that its key was found in. If the tree was cleared meanwhile,
// the update took place just before.
//
// Invariant owned here: whatever can fail comes before a motion. Used by fm::map and fm::set only.
#pragma once

#include <farmem/detail/tree/shape.h>
#include <farmem/detail/tree/walk.h>

namespace fm::detail {

/// How a writer's attempt at a leaf ended.
enum class tree_outcome : std::uint8_t { done, absent, no_tree, full, key_needed, listed };

/// `Self` is the handle that derives from it.
template <class Self, class K, class V, class Compare>
class tree_writer : public ptr<Self> {
  using base = ptr<Self>;

 protected:
  using reader = tree_reader<K, V, Compare>;
  using program = tree_by_program<K, V, Compare>;
  using walk = tree_walk<K, V, Compare>;
  using shape = tree_shape<K, V, Compare>;
  using writes = leaf_entries<K, V, Compare>;
  using key_of = typename reader::key_of;
  using element = typename reader::element;
  using leaf = typename reader::leaf;
  using inner = typename reader::inner;
  using key_type = typename key_of::lookup;
  using stored_value = typename element::argument;
  using mapped_value = typename element::value;
  static constexpr bool compares_in_place = !order_of_program<K, Compare>;

  constexpr tree_writer() noexcept = default;
  explicit tree_writer(base p) noexcept : base(std::move(p)) {}

  static base make(heap& h) {
    check_ordered_key<K, Compare>();
    check_element<V>();
    return base::from_slot(allocate(h.cache(), descriptor_of<typename reader::header>(), 0, nullptr, 0));
  }

  /// The value of a key, if it is there; as a bool, whether it is.
  template <class Result, class Q>
  Result look_up(const Q& key) const {
    Result result{};
    if constexpr (compares_in_place) {
      const auto& q = key_of::sought(key);
      const user_section in_section;
      tree_path path;
      if (!reader::descend(this->slot(), path, q)) return result;
      reader::read_leaf(path.leaf, [&](const leaf& l, const shard_snapshot& seen) {
        leaf_spot spot;
        if (!reader::search(l, q, seen, spot)) return false;
        if constexpr (std::same_as<Result, bool>)
          result = spot.there;
        else
          result = spot.there ? Result(element::load(l.values[l.place_of(spot.index)])) : Result{};
        return seen.holds();
      });
    } else if (auto top = program::top_of(this->slot())) {
      tree_path path;
      const auto here = program::descend(std::move(top), path, tree_end::key, key, [](const inner&, std::size_t) {});
      std::vector<typename reader::entry> entries;
      program::copy_entries(path, entries);
      if (const std::size_t i = program::index_in(entries, key); program::is_at(entries, i, key)) {
        if constexpr (std::same_as<Result, bool>)
          result = true;
        else
          result = Result(std::move(entries[i].second));
      }
    }
    return result;
  }

  /// Calls act(leaf, spot) under the lock of the leaf that has the place of a key, in a section, and returns what it
  /// does; no_tree if there is none. `top`: go down from this one; 0: from the tree's. Outside of sections that hold
  /// pointers.
  template <class Q, class Act>
  tree_outcome at_place(const Q& key, tree_path& path, slot_t top, Act&& act) const {
    if constexpr (compares_in_place) {
      const auto& q = key_of::sought(key);
      for (;;) {
        const user_section in_section;
        if (!go_down(path, top, q)) return tree_outcome::no_tree;
        (void)object_at<leaf>(path.leaf);
        const leaf_writing lock(path.leaf);
        leaf* l = object_to_write<leaf>(path.leaf);
        if (l->retired != 0) continue;
        leaf_spot spot;
        const bool found = reader::search(*l, q, l->snapshot(), spot);
        FM_CHECK(found, "a leaf of a managed tree changes without its lock");
        return act(*l, spot);
      }
    } else {
      for (;;) {
        ptr<tree_top> from = top != 0 ? ptr<tree_top>::from_slot(top) : program::top_of(this->slot());
        if (!from) return tree_outcome::no_tree;
        const auto here = program::descend(std::move(from), path, tree_end::key, key, [](const inner&, std::size_t) {});
        std::uint64_t version = 0;
        const leaf_spot spot = program::search(path, key, version);
        const leaf_writing lock(path.leaf);
        const user_section in_section;
        leaf* l = object_to_write<leaf>(path.leaf);
        if (l->retired == 0 && l->version.load(std::memory_order_relaxed) == version) return act(*l, spot);
      }
    }
  }

  /// Adds a key with that value, or calls known(leaf, index), if it is there and no function of the program is changing
  /// it. Returns whether it is new. `changes`: whether known changes the entry.
  template <class Known>
  bool insert_absent(const key_type& key, const stored_value& v, bool changes, Known&& known) const {
    std::optional<typename key_of::made> made;
    if constexpr (!std::same_as<K, string>) made.emplace(key);
    bool is_new = false;
    for (;;) {
      tree_path path;
      std::uint64_t number = 0;
      bool appended = false;
      const tree_outcome o = at_place(key, path, 0, [&](leaf& l, const leaf_spot& spot) {
        if (spot.there) {
          if (changes && is_listed(path, l, spot.index, number)) return tree_outcome::listed;
          known(l, spot.index);
          return tree_outcome::done;
        }
        appended = spot.index == l.count;
        if (l.count == leaf::entries) return tree_outcome::full;
        if (!made) return tree_outcome::key_needed;
        auto* top = object_to_write<tree_top>(path.top);
        writes::insert(l, spot.index, *made, v);
        top->count_of(path.leaf).fetch_add(1, std::memory_order_relaxed);
        is_new = true;
        return tree_outcome::done;
      });
      switch (o) {
        case tree_outcome::listed: tree_update::wait(path.top, number); break;
        case tree_outcome::full: shape::split(this->slot(), path, appended); break;
        case tree_outcome::key_needed: made.emplace(key_of::make(cache_of(this->slot()), key)); break;
        case tree_outcome::no_tree: make_top(); break;
        default: return is_new;
      }
    }
  }

  template <class Q>
  bool erase_key(const Q& key) const {
    const auto always = [](leaf&, std::size_t) { return true; };
    return erase_key_if(key, always);
  }
  /// Erases a key if it is there and goes(leaf, index) says so, under the leaf's lock.
  template <class Q, class Goes>
  bool erase_key_if(const Q& key, Goes&& goes) const {
    for (;;) {
      tree_path path;
      std::uint64_t number = 0;
      std::size_t left = 0;
      const tree_outcome o = at_place(key, path, 0, [&](leaf& l, const leaf_spot& spot) {
        if (!spot.there) return tree_outcome::absent;
        if (is_listed(path, l, spot.index, number)) return tree_outcome::listed;
        if (!goes(l, spot.index)) return tree_outcome::absent;
        auto* top = object_to_write<tree_top>(path.top);
        writes::erase(l, spot.index);
        top->count_of(path.leaf).fetch_sub(1, std::memory_order_relaxed);
        left = l.count;
        return tree_outcome::done;
      });
      if (o == tree_outcome::listed) {
        tree_update::wait(path.top, number);
        continue;
      }
      if (o != tree_outcome::done) return false;
      if (shape::may_merge(left)) shrink(path);
      return true;
    }
  }

  /// Calls f(value&) with a copy of the value of a key, and stores it back, while nobody else changes the key.
  template <class Q, class F>
  bool update_key(const Q& key, F& f) const {
    tree_update running;
    std::optional<mapped_value> copy;
    ptr<tree_top> top;
    for (;;) {
      tree_path path;
      std::uint64_t number = 0;
      const tree_outcome o = at_place(key, path, 0, [&](leaf& l, const leaf_spot& spot) {
        if (!spot.there) return tree_outcome::absent;
        if (is_listed(path, l, spot.index, number)) return tree_outcome::listed;
        top = ptr<tree_top>::from_slot(path.top);
        copy.emplace(element::load(l.values[l.order[spot.index]]));
        running.begin(path.top, number);
        return tree_outcome::done;
      });
      if (o == tree_outcome::done) break;
      if (o != tree_outcome::listed) return false;
      tree_update::wait(path.top, number);
    }
    {
      const function_running in_function;
      f(*copy);
    }
    tree_path path;
    const tree_outcome o = at_place(key, path, top.slot(), [&](leaf& l, const leaf_spot& spot) {
      if (!spot.there) return tree_outcome::absent;
      writes::replace(l, spot.index, *copy);
      return tree_outcome::done;
    });
    FM_CHECK(o == tree_outcome::done, "a key goes while it is updated");
    return true;
  }

  /// Asks the predicate about the entries of one leaf and erases those for which it is true. Returns how many.
  template <class Predicate>
  std::uint64_t erase_step(typename walk::position& at, Predicate& predicate) const {
    std::vector<typename reader::candidate> candidates;
    walk::copy_step(this->slot(), at, candidates);
    std::uint64_t erased = 0;
    for (typename reader::candidate& c : candidates) {
      bool changed = true;
      while (changed && static_cast<bool>(reader::call_with(predicate, c.shown))) {
        changed = false;
        erased += erase_key_if(key_to_look_up(reader::key_in(c)), [&](leaf& l, std::size_t index) {
          typename reader::candidate now(l, l.order[index]);
          changed = now.image != c.image;
          if (changed) c = std::move(now);
          return !changed;
        });
      }
    }
    return erased;
  }

 private:
  template <class Q>
  bool go_down(tree_path& path, slot_t top, const Q& q) const {
    if (top == 0) return reader::descend(this->slot(), path, q);
    path.top = top;
    reader::descend_top(path, tree_end::key, q, [](const inner&, std::size_t) {});
    return true;
  }
  static bool is_listed(const tree_path& path, const leaf& l, std::size_t index, std::uint64_t& number) {
    number = key_of::number_of(l.keys[l.order[index]]);
    return tree_update::lists(path.top, number);
  }
  void make_top() const {
    object_cache& cache = cache_of(this->slot());
    const ptr<leaf> root = shape::make_leaf(cache);
    const ptr<tree_top> top = make_zero<tree_top>(cache);
    tree_element::put(top.write()->root, root.slot());
    const write_pin<Self> h(this->slot());
    (void)h->top.compare_exchange(nullptr, top);  // or another thread was first
  }
  /// The key is erased, whether the tree can shrink now or only at a later erasure.
  void shrink(const tree_path& path) const {
    try {
      shape::merge(this->slot(), path);
    } catch (const std::exception&) {  // no memory for the nodes, or their agent is lost
      return;
    }
  }

  using tree_element = detail::element<ref<object>>;

  static decltype(auto) key_to_look_up(const typename reader::key_value& k) {
    if constexpr (std::same_as<K, string>)
      return k.str();
    else
      return (k);
  }
};

}  // namespace fm::detail

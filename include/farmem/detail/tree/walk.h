// Walks over a managed tree: a step copies the entries of one leaf from a key on, and says where the next one begins
// (tree/reader.h). Between steps nothing is held. A walk that goes on posts fetches of the leaves that come next, twice as
// many at each step, as the kernel's read-ahead does.
//
// Invariant owned here: a step that throws has changed nothing, so it can be taken again. Used by fm::map and fm::set
// only.
#pragma once

#include <farmem/detail/tree/bounds.h>
#include <farmem/detail/tree/program.h>

namespace fm::detail {

/// Where a walk is. `Limit`: kept_bound of the type that its limit was given as (tree/bounds.h).
template <class K, class Compare, class Limit = typename tree_key<K, Compare>::kept>
struct tree_position {
  tree_end from = tree_end::first;            ///< or a key
  typename tree_key<K, Compare>::kept key{};  ///< the walk goes on here
  bool at_end = false;
  std::size_t ahead = 0;       ///< leaves to fetch ahead at the next step
  std::size_t most = ~0ull;    ///< entries that a step copies
  std::optional<Limit> limit;  ///< keys from here on are not wanted
};

template <class K, class V, class Compare>
struct tree_walk {
  using reader = tree_reader<K, V, Compare>;
  using program = tree_by_program<K, V, Compare>;
  using key_of = typename reader::key_of;
  using leaf = typename reader::leaf;
  using inner = typename reader::inner;
  using entry = typename reader::entry;
  using stored_key = typename key_of::stored;
  using kept = typename key_of::kept;
  using bounds = tree_bounds<K, Compare>;
  using position = tree_position<K, Compare>;
  template <class Limit>
  using position_to = tree_position<K, Compare, Limit>;
  static constexpr std::size_t ahead_max = 16;  ///< leaves: 64 KiB

  /// Copies what the next step covers, and moves the position on. `Copied`: entry or candidate (tree/reader.h). Outside of
  /// sections that hold pointers.
  template <class Limit, class Copied>
  static void copy_step(slot_t tree, position_to<Limit>& at, std::vector<Copied>& entries) {
    step(tree, at, {at.from, false}, key_of::lookup_of(at.key), entries);
  }
  /// The first step of a walk that begins at the first key which is not before `q`, or which is after `q`.
  template <class Limit, class Q, class Copied>
  static void first_step(slot_t tree, position_to<Limit>& at, const Q& q, bool is_after, std::vector<Copied>& entries) {
    // Keys that are equivalent to something else than a key may fill several leaves.
    constexpr bool one_at_most = std::same_as<Q, typename key_of::lookup>;
    step(tree, at, {one_at_most || is_after ? tree_end::key : tree_end::before_key, is_after}, q, entries);
  }

  /// The last entry, if there is one.
  static std::optional<entry> last(slot_t tree) {
    std::optional<kept> before;
    for (;;) {
      std::optional<kept> low;
      std::optional<entry> found;
      if constexpr (order_of_program<K, Compare>)
        found = last_by_program(tree, before, low);
      else
        found = last_in_place(tree, before, low);
      if (found || !low) return found;
      before = std::move(low);  // the leaf was empty
    }
  }

 private:
  /// The leaves that come after one, below the same inner node.
  class next_leaves {
   public:
    /// In the section that reached the node.
    void note(const inner& parent, std::size_t child, std::size_t most) {
      for (std::size_t i = child + 1; i < parent.count && n_ < most; ++i)
        if (const slot_t s = parent.children[i].slot(); !word::is_resident(word_at(s).load(std::memory_order_relaxed)))
          slots_[n_++] = s;
    }
    void post() const {
      if (n_ != 0) prefetch_slots({slots_.data(), n_});
    }

   private:
    std::array<slot_t, ahead_max> slots_{};
    std::size_t n_ = 0;
  };
  static std::size_t more_ahead(std::size_t ahead) { return ahead == 0 ? 1 : std::min(2 * ahead, ahead_max); }
  /// Where a step begins: the leaf, and whether entries that are equivalent to the key are passed.
  struct beginning {
    tree_end leaf = tree_end::first;
    bool is_after = false;
  };
  template <class Limit, class Q, class Copied>
  static void step(slot_t tree, position_to<Limit>& at, beginning begin, const Q& q, std::vector<Copied>& entries) {
    if constexpr (order_of_program<K, Compare>)
      step_by_program(tree, at, begin, q, entries);
    else
      step_in_place(tree, at, begin, key_of::sought(q), entries);
  }
  /// Moves a position to the end of a leaf's interval.
  template <class Limit>
  static void go_on(position_to<Limit>& at, std::optional<kept> upper) {
    at.ahead = more_ahead(at.ahead);
    if (upper && (!at.limit || bounds::is_before(key_of::lookup_of(*upper), bounds::asked(*at.limit)))) {
      at.from = tree_end::key;
      at.key = std::move(*upper);
    } else {
      at.at_end = true;
    }
  }

  template <class Limit, class Q, class Copied>
  static void step_in_place(slot_t tree, position_to<Limit>& at, beginning begin, const Q& q,
                            std::vector<Copied>& entries) {
    std::vector<Copied> copied;
    std::optional<kept> upper;
    next_leaves next;
    {
      const user_section in_section;
      tree_path path;
      const stored_key* end = nullptr;
      const inner* parent = nullptr;
      std::size_t child = 0;
      const bool any = reader::descend(tree, path, begin.leaf, q, [&](const inner& n, std::size_t i) {
        if (i + 1 < n.count) end = &n.keys[i];
        parent = &n;
        child = i;
      });
      if (any) {
        if (parent != nullptr) note_wanted(next, *parent, child, at);
        copy_from(path, at, begin, q, copied);
        if (end != nullptr) upper = key_of::keep(*end);
      }
    }
    next.post();
    go_on(at, std::move(upper));
    entries.swap(copied);
  }
  template <class Limit>
  static void note_wanted(next_leaves& next, const inner& parent, std::size_t child, const position_to<Limit>& at) {
    std::size_t most = at.ahead;
    if (at.limit) {
      const auto& bound = bounds::asked(*at.limit);
      const auto& limit = key_of::sought(bound);
      const std::size_t last = reader::child_of(parent, tree_end::before_key, limit);
      most = last > child ? std::min(most, last - child) : 0;
    }
    next.note(parent, child, most);
  }
  template <class Limit, class Q, class Copied>
  static void copy_from(const tree_path& path, const position_to<Limit>& at, beginning begin, const Q& q,
                        std::vector<Copied>& copied) {
    reader::read_leaf(path.leaf, [&](const leaf& l, const shard_snapshot& seen) {
      copied.clear();
      std::size_t first = 0, last = l.count_seen();
      if (begin.is_after) {
        if (!reader::index_after(l, q, seen, first)) return false;
      } else if (begin.leaf != tree_end::first) {
        if (!reader::index_of(l, q, seen, first)) return false;
      }
      if (at.limit) {
        std::size_t limit = 0;
        if (!reader::index_of(l, key_of::sought(bounds::asked(*at.limit)), seen, limit)) return false;
        last = std::min(last, limit);
      }
      for (std::size_t i = first; i < last && copied.size() < at.most; ++i)
        copied.push_back(reader::template copy<Copied>(l, l.place_of(i)));
      return seen.holds();
    });
  }

  template <class Limit, class Q, class Copied>
  static void step_by_program(slot_t tree, position_to<Limit>& at, beginning begin, const Q& q,
                              std::vector<Copied>& entries) {
    std::vector<Copied> copied;
    std::optional<kept> upper;
    next_leaves next;
    if (ptr<tree_top> top = program::top_of(tree)) {
      tree_path path;
      const auto here = program::descend(std::move(top), path, begin.leaf, q, [&](const inner& n, std::size_t i) {
        if (i + 1 < n.count) upper = key_of::keep(n.keys[i]);
        if (n.level == 1) next.note(n, i, at.ahead);
      });
      program::copy_entries(path, copied);
      if (at.limit) keep_first(copied, program::index_in(copied, bounds::asked(*at.limit)));
      if (begin.leaf != tree_end::first) {
        const std::size_t first = begin.is_after ? program::index_after(copied, q) : program::index_in(copied, q);
        copied.erase(copied.begin(), copied.begin() + static_cast<std::ptrdiff_t>(first));
      }
      keep_first(copied, at.most);
    }
    next.post();
    go_on(at, std::move(upper));
    entries.swap(copied);
  }

  template <class Copied>
  static void keep_first(std::vector<Copied>& copied, std::size_t n) {
    if (n < copied.size()) copied.erase(copied.begin() + static_cast<std::ptrdiff_t>(n), copied.end());
  }

  static tree_end end_before(const std::optional<kept>& before) {
    return before ? tree_end::before_key : tree_end::last;
  }

  static std::optional<entry> last_in_place(slot_t tree, const std::optional<kept>& before, std::optional<kept>& low) {
    const user_section in_section;
    const kept none{};
    const auto& q = key_of::sought(key_of::lookup_of(before ? *before : none));
    tree_path path;
    const stored_key* begin = nullptr;
    std::optional<entry> found;
    if (!reader::descend(tree, path, end_before(before), q, [&](const inner& n, std::size_t i) {
          if (i != 0) begin = &n.keys[i - 1];
        }))
      return found;
    reader::read_leaf(path.leaf, [&](const leaf& l, const shard_snapshot& seen) {
      found.reset();
      leaf_spot spot{l.count_seen(), false};
      if (before && !reader::search(l, q, seen, spot)) return false;
      if (spot.index != 0) found.emplace(reader::show(l, l.place_of(spot.index - 1)));
      return seen.holds();
    });
    if (!found && begin != nullptr) low = key_of::keep(*begin);
    return found;
  }
  static std::optional<entry> last_by_program(slot_t tree, const std::optional<kept>& before,
                                              std::optional<kept>& low) {
    ptr<tree_top> top = program::top_of(tree);
    if (!top) return std::nullopt;
    const kept none{};
    tree_path path;
    std::optional<kept> begin;
    const auto here = program::descend(std::move(top), path, end_before(before), before ? *before : none,
                                       [&](const inner& n, std::size_t i) {
                                         if (i != 0) begin = key_of::keep(n.keys[i - 1]);
                                       });
    std::vector<entry> copied;
    program::copy_entries(path, copied);
    const std::size_t end = before ? program::index_in(copied, *before) : copied.size();
    if (end != 0) return std::move(copied[end - 1]);
    low = std::move(begin);
    return std::nullopt;
  }
};

}  // namespace fm::detail

// Persons who know each other, in containers of the standard library. far_network.h is the same in far memory; the guide
// docs/how-to/migrate.md compares the two.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "answers.h"

namespace fm::example {

class plain_network {
 public:
  /// Adds a person. False if there is one of that id.
  bool add(std::uint64_t id, const std::string& name) {
    const auto [at, is_new] = by_id_.try_emplace(id);
    if (is_new) at->second = std::make_unique<person>(person{.id = id, .name = name});
    return is_new;
  }
  /// Makes two persons know each other. False if they do, if one is missing, or if it is the same person.
  bool connect(std::uint64_t a, std::uint64_t b) {
    person *const x = find(a), *const y = find(b);
    if (!x || !y || x == y || place_of(*x, y) != x->known.size()) return false;
    x->known.push_back(y);
    y->known.push_back(x);
    return true;
  }
  /// Ends that. False if they do not know each other.
  bool disconnect(std::uint64_t a, std::uint64_t b) {
    person *const x = find(a), *const y = find(b);
    if (!x || !y || place_of(*x, y) == x->known.size()) return false;
    forget(*x, y);
    forget(*y, x);
    return true;
  }
  /// Removes a person from everywhere. False if there is none of that id.
  bool remove(std::uint64_t id) {
    const auto at = by_id_.find(id);
    if (at == by_id_.end()) return false;
    for (person* other : at->second->known) forget(*other, at->second.get());
    by_id_.erase(at);
    return true;
  }

  /// Name of a person, empty if there is none.
  [[nodiscard]] std::string name(std::uint64_t id) const {
    const person* p = find(id);
    return p ? p->name : std::string();
  }
  /// Steps from one person to another, `unreachable` beyond `most`.
  [[nodiscard]] std::uint64_t distance(std::uint64_t from, std::uint64_t to, std::uint64_t most) {
    person *const start = find(from), *const end = find(to);
    if (!start || !end) return unreachable;
    const std::uint64_t visit = ++visits_;
    std::vector<person*> now{start}, next;
    start->visit = visit;
    for (std::uint64_t steps = 0; steps <= most && !now.empty(); ++steps) {
      for (person* p : now) {
        if (p == end) return steps;
        for (person* other : p->known) {
          if (other->visit == visit) continue;
          other->visit = visit;
          next.push_back(other);
        }
      }
      now.swap(next);
      next.clear();
    }
    return unreachable;
  }
  /// Persons whom those know who `id` knows, by how many of them do, and then by id: the first `most`.
  [[nodiscard]] std::vector<suggestion> suggest(std::uint64_t id, std::size_t most) {
    person* const p = find(id);
    std::vector<suggestion> all;
    if (!p) return all;
    std::unordered_map<person*, std::uint64_t> common;
    for (person* known : p->known)
      for (person* other : known->known) ++common[other];
    common.erase(p);
    for (person* known : p->known) common.erase(known);
    for (const auto& [other, n] : common) all.push_back({.id = other->id, .common = n});
    keep_best(all, most);
    return all;
  }
  /// Groups of persons who reach each other.
  [[nodiscard]] groups count_groups() {
    groups found;
    const std::uint64_t visit = ++visits_;
    for (const auto& [id, first] : by_id_) {
      if (first->visit == visit) continue;
      std::deque<person*> open{first.get()};
      first->visit = visit;
      std::uint64_t size = 0;
      for (; !open.empty(); ++size) {
        const person* p = open.front();
        open.pop_front();
        for (person* other : p->known) {
          if (other->visit == visit) continue;
          other->visit = visit;
          open.push_back(other);
        }
      }
      found.add(size);
    }
    return found;
  }
  /// Triples of persons who all know each other.
  [[nodiscard]] std::uint64_t count_triangles() {
    std::uint64_t count = 0;
    for (const auto& [id, p] : by_id_) {
      const std::uint64_t visit = ++visits_;
      for (person* q : p->known) q->visit = visit;
      for (const person* q : p->known) {
        if (q->id < p->id) continue;
        for (const person* r : q->known) count += r->id > q->id && r->visit == visit;
      }
    }
    return count;
  }
  /// Persons who are left once all who know fewer than `k` of those who are left have been taken away.
  [[nodiscard]] std::uint64_t core_size(std::uint64_t k) {
    const std::uint64_t visit = ++visits_;
    std::vector<person*> leaving;
    for (const auto& [id, p] : by_id_) {
      p->left = p->known.size();
      if (p->left < k) {
        p->visit = visit;
        leaving.push_back(p.get());
      }
    }
    std::uint64_t gone = 0;
    for (; !leaving.empty(); ++gone) {
      const person* p = leaving.back();
      leaving.pop_back();
      for (person* other : p->known) {
        if (other->visit == visit || --other->left >= k) continue;
        other->visit = visit;
        leaving.push_back(other);
      }
    }
    return by_id_.size() - gone;
  }

  [[nodiscard]] std::uint64_t size() const { return by_id_.size(); }

 private:
  struct person {
    std::uint64_t id = 0;
    std::string name;
    std::vector<person*> known;
    std::uint64_t visit = 0;  ///< the last analysis that came here
    std::uint64_t left = 0;   ///< core_size: of those that it knows
  };

  [[nodiscard]] person* find(std::uint64_t id) const {
    const auto at = by_id_.find(id);
    return at == by_id_.end() ? nullptr : at->second.get();
  }
  static std::size_t place_of(const person& p, const person* other) {
    return static_cast<std::size_t>(std::find(p.known.begin(), p.known.end(), other) - p.known.begin());
  }
  static void forget(person& p, const person* other) {
    p.known[place_of(p, other)] = p.known.back();
    p.known.pop_back();
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<person>> by_id_;
  std::uint64_t visits_ = 0;
};

}  // namespace fm::example

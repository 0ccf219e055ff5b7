// Persons who know each other, in containers of farmem. plain_network.h is the same in local memory; the guide
// docs/how-to/migrate.md compares the two.
#pragma once

#include <farmem/farmem.h>

#include <deque>
#include <unordered_map>

#include "answers.h"

namespace fm::example {

struct person {
  std::uint64_t id = 0;
  ref<string> name;
  ref<vector<ref<person>>> known;
  std::uint64_t visit = 0;  ///< the last analysis that came here
  std::uint64_t left = 0;   ///< core_size: of those that it knows
};

class far_network {
 public:
  explicit far_network(heap& h) : heap_(h), by_id_(h) {}

  /// Adds a person. False if there is one of that id.
  bool add(std::uint64_t id, const std::string& name) {
    if (by_id_.contains(id)) return false;
    return by_id_.try_emplace(
        id, heap_.make<person>({.id = id, .name = heap_.str(name), .known = vector<ref<person>>(heap_)}));
  }
  /// Makes two persons know each other. False if they do, if one is missing, or if it is the same person.
  bool connect(std::uint64_t a, std::uint64_t b) {
    const ptr<person> x = find(a), y = find(b);
    if (!x || !y || x == y) return false;
    const list of_x = x->known, of_y = y->known;
    if (place_of(of_x, y) != of_x.size()) return false;
    of_x.push_back(y);
    of_y.push_back(x);
    return true;
  }
  /// Ends that. False if they do not know each other.
  bool disconnect(std::uint64_t a, std::uint64_t b) {
    const ptr<person> x = find(a), y = find(b);
    if (!x || !y) return false;
    const list of_x = x->known;
    if (place_of(of_x, y) == of_x.size()) return false;
    forget(of_x, y);
    forget(y->known, x);
    return true;
  }
  /// Removes a person from everywhere. False if there is none of that id.
  bool remove(std::uint64_t id) {
    const ptr<person> gone = find(id);
    if (!gone) return false;
    for (const ptr<person>& other : list(gone->known)) forget(other->known, gone);
    return by_id_.erase(id);
  }

  /// Name of a person, empty if there is none.
  [[nodiscard]] std::string name(std::uint64_t id) const {
    const ptr<person> p = find(id);
    return p ? string(p->name).str() : std::string();
  }
  /// Steps from one person to another, `unreachable` beyond `most`.
  [[nodiscard]] std::uint64_t distance(std::uint64_t from, std::uint64_t to, std::uint64_t most) {
    const ptr<person> start = find(from), end = find(to);
    if (!start || !end) return unreachable;
    const std::uint64_t visit = ++visits_;
    std::vector<ptr<person>> now{start}, next;
    start.write()->visit = visit;
    for (std::uint64_t steps = 0; steps <= most && !now.empty(); ++steps) {
      for (const ptr<person>& p : now) {
        if (p == end) return steps;
        for (const ptr<person>& other : list(p->known)) {
          if (other->visit == visit) continue;
          other.write()->visit = visit;
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
    const ptr<person> p = find(id);
    std::vector<suggestion> all;
    if (!p) return all;
    std::unordered_map<ptr<person>, std::uint64_t> common;
    for (const ptr<person>& known : list(p->known))
      for (const ptr<person>& other : list(known->known)) ++common[other];
    common.erase(p);
    for (const ptr<person>& known : list(p->known)) common.erase(known);
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
      std::deque<ptr<person>> open{first};
      first.write()->visit = visit;
      std::uint64_t size = 0;
      for (; !open.empty(); ++size) {
        const ptr<person> p = open.front();
        open.pop_front();
        for (const ptr<person>& other : list(p->known)) {
          if (other->visit == visit) continue;
          other.write()->visit = visit;
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
      for (const ptr<person>& q : list(p->known)) q.write()->visit = visit;
      for (const ptr<person>& q : list(p->known)) {
        const auto at = q.read();
        if (at->id < id) continue;
        for (const ptr<person>& r : list(at->known)) {
          const auto third = r.read();
          count += third->id > at->id && third->visit == visit;
        }
      }
    }
    return count;
  }
  /// Persons who are left once all who know fewer than `k` of those who are left have been taken away.
  [[nodiscard]] std::uint64_t core_size(std::uint64_t k) {
    const std::uint64_t visit = ++visits_;
    std::vector<ptr<person>> leaving;
    for (const auto& [id, p] : by_id_) {
      const auto w = p.write();
      w->left = w->known->size();
      if (w->left < k) {
        w->visit = visit;
        leaving.push_back(p);
      }
    }
    std::uint64_t gone = 0;
    for (; !leaving.empty(); ++gone) {
      const ptr<person> p = leaving.back();
      leaving.pop_back();
      for (const ptr<person>& other : list(p->known)) {
        if (other->visit == visit) continue;
        const auto w = other.write();
        if (--w->left >= k) continue;
        w->visit = visit;
        leaving.push_back(other);
      }
    }
    return by_id_.size() - gone;
  }

  [[nodiscard]] std::uint64_t size() const { return by_id_.size(); }

 private:
  using list = vector<ref<person>>;

  [[nodiscard]] ptr<person> find(std::uint64_t id) const { return by_id_.find(id); }
  static std::uint64_t place_of(const list& known, const ptr<person>& other) {
    return static_cast<std::uint64_t>(std::find(known.begin(), known.end(), other) - known.begin());
  }
  static void forget(const list& known, const ptr<person>& other) {
    known.set(place_of(known, other), known.back());
    known.pop_back();
  }

  heap& heap_;
  hash_map<std::uint64_t, ref<person>> by_id_;
  std::uint64_t visits_ = 0;
};

}  // namespace fm::example

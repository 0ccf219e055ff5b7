// The mutators' other ways to objects, beside their graphs: raw pointers into the shared array, pins that live on from
// step to step, mail to other threads, tasks and a hash map.
#include <optional>
#include <utility>

#include "mutator.h"

namespace fm::sim {

// The field may be overwritten while the object that it referred to, or its data, is waited for. The thread has left its
// section then: the slot that it is about to reach, and pins of all that it holds, keep them alive.
void mutator::reach_in_place() {
  const scope s;
  const array_object<ref<node>>* places = shared_.places.get(s);
  const std::size_t at = pick(places->size());
  if (options_.favours == favour::shared) shared_.reached = at;
  const node* n = (*places)[at].get(s);
  if (n == nullptr) return;
  const std::uint64_t id = n->id;
  require_node(*n, id);
  const array_object<std::uint64_t>* data = n->data.get(s);
  if (data == nullptr || data->size() != words_of(id)) wrong("the data of a node is another's", id);
  for (std::size_t i = 1; i < data->size(); ++i)
    if ((*data)[i] != word_of(id, i, 0)) wrong("the data of a node is another's", id);
  require_node(*n, id);
}

// Perhaps another thread waits for what the place refers to. Nobody else looks at that: a root would keep it alive.
void mutator::overwrite_reached() {
  std::uint64_t id = 0;
  const ptr<node> fresh = make_to_give_away(id);
  const auto places = shared_.places.write();
  (*places)[shared_.reached] = fresh;
}

// A pin may be all that keeps a node: it lives on when this returns. A later step takes a root from the node, which may
// be all that keeps the next one, and gives the pin back.
void mutator::use_pins() {
  if (pins_.size() < options_.pins_max && pick(2) == 0) {
    if (pick(2) == 0) {
      auto [p, id] = walk(12);
      if (id != 0) pins_.emplace_back(p.read(), id);
      return;
    }
    std::uint64_t id = 0, next_id = 0;
    const ptr<node> p = make(id), next = make(next_id);
    const std::size_t e = pick(edges);
    p.write()->to[e] = next;
    shadow_[id].to[e] = next_id;
    pins_.emplace_back(p.read(), id);
    return;
  }
  if (pins_.empty()) return;
  auto& [pin, id] = pins_[pick(pins_.size())];
  require_node(*pin, id);
  const std::size_t r = pick(roots_.size());
  for (std::size_t e = 0; e < edges; ++e) {
    const std::uint64_t next_id = shadow_[id].to[e];
    ptr<node> next = pin->to[e].root();
    if ((next_id == 0) != !next) wrong("an edge of a pinned node is another", id);
    if (next_id == 0) continue;
    roots_[r] = std::move(next);
    root_ids_[r] = next_id;
  }
  if (pick(4) == 0) return;
  std::swap(pins_.back().first, pin);
  std::swap(pins_.back().second, id);
  pins_.pop_back();
}

// Roots and pins that one thread makes and another one gives up.
void mutator::use_mail() {
  if (pick(2) == 0) {
    mailbox::parcel p;
    ptr<node> fresh = make_to_give_away(p.id);
    if (options_.pins_by_mail && pick(2) == 0)
      p.pin.emplace(fresh.read());
    else
      p.root = std::move(fresh);
    shared_.mail.post(p);
    return;
  }
  std::optional<mailbox::parcel> p = shared_.mail.take(random_());
  if (!p) return;
  if (p->pin) {
    require_node(**p->pin, p->id);
    require_data_of(*p->pin, p->id);
    return;
  }
  require_node(p->root, p->id);
  require_data(p->root);
  const std::size_t r = pick(roots_.size());
  shadow_[p->id] = {};
  roots_[r] = std::move(p->root);
  root_ids_[r] = p->id;
}

// Some walks at once, on this thread. Nothing of this mutator changes meanwhile.
void mutator::run_tasks() {
  std::vector<task<>> walks;
  for (std::size_t n = 2 + pick(4); n > 0; --n) {
    const std::size_t r = pick(roots_.size());
    if (root_ids_[r] != 0) walks.push_back(visit(roots_[r], root_ids_[r]));
  }
  run_all(walks, 3);
}

task<> mutator::visit(ptr<node> p, std::uint64_t id) {
  auto at = co_await p.fetch();
  for (std::size_t n = pick(8); n > 0; --n) {
    require_node(*at, id);
    const std::size_t e = pick(edges);
    const std::uint64_t next_id = shadow_[id].to[e];
    if ((next_id == 0) != (at->to[e] == nullptr)) wrong("an edge is another in a task", id);
    if (next_id == 0) break;
    at = co_await at->to[e].fetch();
    id = next_id;
  }
  require_node(*at, id);
  require_data_of(at, id);
}

void mutator::use_map() {
  const std::uint64_t key = pick(64), value = random_();
  if (pick(3) == 0) {
    if (map_.erase(key) != (map_shadow_.erase(key) != 0)) wrong("a map has another key", key);
  } else {
    map_.insert_or_assign(key, value);
    map_shadow_[key] = value;
  }
  const std::uint64_t other = pick(64);
  const auto known = map_shadow_.find(other);
  const auto found = map_.find(other);
  if (found.has_value() != (known != map_shadow_.end()) || (found && *found != known->second))
    wrong("a map has another value", other);
}

void mutator::compare_map() {
  if (!map_) return;
  for (const auto& [key, value] : map_shadow_)
    if (const auto found = map_.find(key); !found || *found != value) wrong("a map has lost a value", key);
  map_ = nullptr;
}

}  // namespace fm::sim

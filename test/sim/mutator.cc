// The mutators' work on their graphs, and the comparison with their shadows.
#include "mutator.h"

#include <fmt/format.h>

#include <thread>

#include "../support/reached.h"

namespace fm::sim {

namespace {

constexpr std::size_t data_words_max = 48;
constexpr std::size_t large_words = 1100;  // more than the largest segment
constexpr std::uint64_t large_one_in = 96;
constexpr std::size_t roots_n = 12;
constexpr std::size_t weak_n = 24;

}  // namespace

bool is_loss(errc e) {
  return e == errc::agent_lost || e == errc::disconnected || e == errc::timed_out || e == errc::cancelled ||
         e == errc::cache_full ||
         e == errc::access_denied;  // the last one: a batch was refused, and no memory came in time
}

void wrong(const char* what, std::uint64_t id) {
  throw disagreement(fmt::format("{} (node {}:{})", what, id >> 32, id & 0xffffffff));
}

void wrong_edge(const ptr<node>& at, std::uint64_t id, std::size_t edge, std::uint64_t should_be, const ptr<node>& is) {
  throw disagreement(fmt::format("edge {} of node {}:{} (slot {:#x}) should be {}:{}, and is slot {:#x}, node {:x}",
                                 edge, id >> 32, id & 0xffffffff, at.slot(), should_be >> 32, should_be & 0xffffffff,
                                 is.slot(), is ? is->id : 0));
}

mutator::mutator(heap& h, commons& shared, const mutator_options& options)
    : heap_(h),
      shared_(shared),
      options_(options),
      next_id_((options.number + 1) << 32),
      random_(options.seed * 1000 + options.number) {
  roots_.resize(roots_n);
  root_ids_.resize(roots_n);
  if (options.map) map_ = hash_map<std::uint64_t, std::uint64_t>(h);
}

std::size_t mutator::words_of(std::uint64_t id) const {
  return options_.large && check_of(id) % large_one_in == 0 ? large_words : 1 + check_of(id) % data_words_max;
}

void mutator::step() {
  try {
    act();
  } catch (const error& e) {
    if (!options_.may_lose_agents || !is_loss(e.code())) throw;
    ++failed;
  }
}

void mutator::act_as_favoured() {
  if (options_.favours == favour::pins) return use_pins();
  if (options_.favours == favour::letters) return use_letters();
  return pick(2) == 0 ? reach_in_place() : overwrite_reached();
}

void mutator::act() {
  if (options_.favours != favour::nothing && pick(2) == 0) return act_as_favoured();
  if ((options_.outbox != nullptr || options_.inbox != nullptr) && pick(8) == 0) return use_letters();
  switch (pick(26)) {
    case 0:
    case 1: return make_root();
    case 2:
    case 3:
    case 4: return attach_new();
    case 5: return link();
    case 6: return cut();
    case 7: return drop_root();
    case 8: return move_root();
    case 9: return swap_edges();
    case 10:
    case 11:
    case 12: return use_weak();
    case 13: return exchange_shared();
    case 14: return make_garbage();
    case 15: return prefetch_some();
    case 16: return hold_scope();
    case 17: return write_data();
    case 18: return reach_in_place();
    case 19: return use_pins();
    case 20: return use_mail();
    case 21: return run_tasks();
    case 22: return options_.map ? use_map() : use_weak();
    default: walk(24);
  }
}

// A node is read in one place, so that what it says was true at one moment.
void mutator::require_node(const ptr<node>& p, std::uint64_t id) {
  const auto pin = p.read();
  require_node(*pin, id);
}
void mutator::require_node(const node& n, std::uint64_t id) {
  if (n.id != id || n.check != check_of(id)) wrong("a node is another, or changed", id);
  if (shared_.dead.is_dead(id)) wrong("a node can be reached, and its death was told", id);
}

void mutator::require_data(const ptr<node>& p) {
  const auto pin = p.read();
  require_data_of(pin, pin->id);
}
void mutator::require_data_of(const read_pin<node>& p, std::uint64_t id) {
  const ptr<std::uint64_t[]> data = p->data;
  if (!data) wrong("a node has lost its data", id);
  const auto pin = data.read();
  if (pin->size() != words_of(id)) wrong("the data of a node is another's", id);
  const std::uint64_t version = (*pin)[0];
  for (std::size_t i = 1; i < pin->size(); ++i)
    if ((*pin)[i] != word_of(id, i, version)) wrong("the data of a node is torn, or old", id);
}

ptr<node> mutator::make(std::uint64_t& id) {
  const std::uint64_t fresh = ++next_id_;
  std::array<std::uint64_t, large_words> words{};
  for (std::size_t i = 1; i < words_of(fresh); ++i) words[i] = word_of(fresh, i, 0);
  const auto data = heap_.array(std::span(words.data(), words_of(fresh)));
  ptr<node> p = heap_.make<node>({.id = fresh, .check = check_of(fresh), .to = {}, .data = data});
  id = fresh;
  shadow_[id] = {};
  if (options_.obituaries && pick(4) == 0) shared_.dead.watch(heap_, p, id);
  return p;
}

ptr<node> mutator::make_to_give_away(std::uint64_t& id) {
  ptr<node> p = make(id);
  shadow_.erase(id);
  return p;
}

// A node that can be reached, by a random path from a random root; checked on the way.
mutator::place mutator::walk(std::size_t most) {
  const std::size_t r = pick(roots_.size());
  place at{roots_[r], root_ids_[r]};
  if (at.second == 0) return at;
  require_node(at.first, at.second);
  for (std::size_t n = pick(most); n > 0; --n) {
    const std::size_t e = pick(edges);
    const std::uint64_t next_id = shadow_[at.second].to[e];
    ptr<node> next = at.first->to[e];
    if ((next_id == 0) != !next) wrong_edge(at.first, at.second, e, next_id, next);
    if (next_id == 0) break;
    require_node(next, next_id);
    at = {std::move(next), next_id};
  }
  if (pick(4) == 0) require_data(at.first);
  return at;
}

void mutator::make_root() {
  const std::size_t r = pick(roots_.size());
  if (root_ids_[r] != 0 && pick(4) != 0) return;
  std::uint64_t id = 0;
  ptr<node> p = make(id);
  roots_[r] = std::move(p);
  root_ids_[r] = id;
}

void mutator::attach_new() {
  auto [p, id] = walk(24);
  if (id == 0) return;
  const std::size_t e = pick(edges);
  std::uint64_t added = 0;
  const auto q = make(added);
  if (pick(2) == 0) {  // between the node and what it referred to
    const std::size_t back = pick(edges);
    const ptr<node> was = p->to[e];
    q.write()->to[back] = was;
    shadow_[added].to[back] = shadow_[id].to[e];
  }
  p.write()->to[e] = q;
  shadow_[id].to[e] = added;
  forget_some();
}

void mutator::link() {
  const auto [p, id] = walk(24);
  const auto [q, other] = walk(24);
  if (id == 0 || other == 0) return;
  const std::size_t e = pick(edges);
  p.write()->to[e] = q;
  shadow_[id].to[e] = other;
}

void mutator::cut() {
  const auto [p, id] = walk(6);
  if (id == 0) return;
  const std::size_t e = pick(edges);
  p.write()->to[e] = nullptr;
  shadow_[id].to[e] = 0;
}

void mutator::swap_edges() {
  const auto [p, id] = walk(24);
  const auto [q, other] = walk(24);
  if (id == 0 || other == 0) return;
  const std::size_t a = pick(edges), b = pick(edges);
  {
    const auto pp = p.write(), qq = q.write();
    ptr<node> was = pp->to[a].exchange(qq->to[b].root());
    qq->to[b] = was;
  }
  std::swap(shadow_[id].to[a], shadow_[other].to[b]);
}

void mutator::drop_root() {
  const std::size_t r = pick(roots_.size());
  if (pick(3) != 0) return;
  roots_[r] = nullptr;
  root_ids_[r] = 0;
}

// The node goes on from a root of another node's field, and its old root is gone: only the log can know of it.
void mutator::move_root() {
  const std::size_t r = pick(roots_.size());
  auto [p, id] = walk(24);
  if (id == 0) return;
  const std::size_t e = pick(edges);
  ptr<node> taken = p->to[e];
  const std::uint64_t taken_id = shadow_[id].to[e];
  p.write()->to[e] = nullptr;
  shadow_[id].to[e] = 0;
  roots_[r] = std::move(taken);
  root_ids_[r] = taken_id;
}

void mutator::use_weak() {
  if (weak_.size() < weak_n) {
    const auto [p, id] = walk(24);
    if (id != 0) weak_.emplace_back(weak<node>(p), id);
    return;
  }
  const std::size_t i = pick(weak_.size());
  if (const auto p = weak_[i].first.lock()) {
    require_node(p, weak_[i].second);
    require_data(p);
    ++locked;
    if (pick(4) == 0) {  // back to life, whoever had dropped it
      const std::size_t r = pick(roots_.size());
      roots_[r] = p;
      root_ids_[r] = weak_[i].second;
      return;
    }
    if (pick(2) == 0) return;  // asked again, perhaps when it has died
  } else {
    ++gone;
  }
  weak_[i] = std::move(weak_.back());
  weak_.pop_back();
}

void mutator::exchange_shared() {
  const std::size_t n = shared_.places.read()->size(), at = pick(n);
  std::uint64_t id = 0;
  const auto fresh = make_to_give_away(id);
  ptr<node> old;
  {
    const auto places = shared_.places.write();
    old = (*places)[at].exchange(fresh);
  }
  if (old) require_node(old, old->id);
  const ptr<node> other = (*shared_.places.read().get())[pick(n)].root();
  if (other) {
    require_node(other, other->id);
    require_data(other);
  }
}

void mutator::make_garbage() {
  for (std::size_t n = 4 + pick(40); n > 0; --n) {
    const auto p = heap_.array<std::uint64_t>(1 + pick(data_words_max));
    const auto pin = p.read();
    if ((*pin)[0] != 0) wrong("a fresh array is not zero", 0);
  }
}

void mutator::prefetch_some() {
  for (const ptr<node>& p : roots_)
    if (p && pick(2) == 0) prefetch(p);
}

// Raw pointers that are kept for long.
void mutator::hold_scope() {
  const std::size_t r = pick(roots_.size());
  if (root_ids_[r] == 0) return;
  const ptr<node> first = roots_[r];
  const auto [second, second_id] = walk(12);
  const scope s;
  const node* a = first.get(s);
  const node* b = second_id != 0 ? second.get(s) : a;
  for (std::size_t n = pick(8); n > 0; --n) {
    std::this_thread::yield();
    if (a->id != root_ids_[r] || a->check != check_of(a->id)) wrong("a node changed under a scope", root_ids_[r]);
    if (second_id != 0 && (b->id != second_id || b->check != check_of(b->id)))
      wrong("a node changed under a scope", second_id);
  }
}

void mutator::write_data() {
  const auto [p, id] = walk(24);
  if (id != 0) write_data_of(p, id);
}

void mutator::write_data_of(const ptr<node>& p, std::uint64_t id) {
  const ptr<std::uint64_t[]> data = p->data;
  if (!data) wrong("a node has lost its data", id);
  const auto pin = data.write();
  const std::uint64_t version = (*pin)[0] + 1;
  for (std::size_t i = 1; i < pin->size(); ++i) {
    if ((*pin)[i] != word_of(id, i, version - 1)) wrong("the data of a node is torn, or old", id);
    (*pin)[i] = word_of(id, i, version);
  }
  (*pin)[0] = version;
}

// The shadow of what died is dropped now and then; what weak handles may bring back stays.
void mutator::forget_some() {
  if (shadow_.size() < 2 * last_size_ + 512) return;
  fm::test::reached kept;
  for (const std::uint64_t id : root_ids_) kept.from(id);
  for (const auto& [w, id] : weak_) kept.from(id);
  for (const auto& [pin, id] : pins_) kept.from(id);
  const auto& seen = kept.along([&](std::uint64_t id) -> auto& { return shadow_[id].to; });
  std::erase_if(shadow_, [&](const auto& n) { return !seen.contains(n.first); });
  last_size_ = shadow_.size();
}

void mutator::compare_all() {
  compare_map();
  pins_.clear();
  std::set<std::uint64_t>& seen = alive;
  seen.clear();
  std::vector<place> open;
  for (std::size_t i = 0; i < roots_.size(); ++i)
    if (root_ids_[i] != 0 && seen.insert(root_ids_[i]).second) open.emplace_back(roots_[i], root_ids_[i]);
  while (!open.empty()) {
    auto [p, id] = std::move(open.back());
    open.pop_back();
    try {
      require_node(p, id);
      require_data(p);
      for (std::size_t e = 0; e < edges; ++e) {
        ptr<node> next = p->to[e].root();
        const std::uint64_t next_id = shadow_[id].to[e];
        if ((next_id == 0) != !next) wrong_edge(p, id, e, next_id, next);
        if (next_id != 0 && seen.insert(next_id).second) open.emplace_back(std::move(next), next_id);
      }
    } catch (const error& e) {
      if (!options_.may_lose_agents || !is_loss(e.code())) throw;
      ++failed;
    }
  }
}

}  // namespace fm::sim

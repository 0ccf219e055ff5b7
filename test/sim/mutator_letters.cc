// The mutators' letters: graphs that they send to another heap, and copies of graphs that came, which are compared with
// what was sent, changed, and dropped.
//
// A copy has the numbers of the nodes that it is of. It is thus no part of the mutator's own graph, and its numbers are
// not looked up among the dead.
#include <tuple>
#include <utility>

#include "../support/reached.h"
#include "mutator.h"

namespace fm::sim {

namespace {

constexpr std::size_t copies_max = 6;
constexpr std::size_t sends_together = 3;
constexpr std::size_t receives_together = 16;  ///< so that somebody receives while the mutator waits for what it sends
constexpr duration long_patience = std::chrono::seconds(2);
constexpr std::size_t bush_least = 8, bush_more = 56;
constexpr std::size_t all_of_a_letter = 1 << 20;

/// Of a send: short, because cycles without end go on meanwhile. Of a receive more often long, because nobody waits.
duration patience(std::size_t choice) {
  constexpr duration some[] = {std::chrono::milliseconds(1), std::chrono::milliseconds(4),
                               std::chrono::milliseconds(20)};
  return some[choice % std::size(some)];
}

}  // namespace

void mutator::use_letters() {
  const std::size_t what = pick(6);
  if (what < 3 && options_.inbox != nullptr) return take_letter(pick(4) == 0 ? patience(pick(3)) : long_patience);
  if (what < 4 && options_.outbox != nullptr) return send_letters();
  use_copy();
}

// Nodes that the letter alone has: a tree, and edges across and back.
mutator::place mutator::make_bush(contents& what) {
  std::vector<place> all;
  const auto connect = [&](std::size_t from, std::size_t e, std::size_t to) {
    all[from].first.write()->to[e] = all[to].first;
    what.nodes[all[from].second][e] = all[to].second;
  };
  for (std::size_t n = bush_least + pick(bush_more), i = 0; i < n; ++i) {
    std::uint64_t id = 0;
    ptr<node> p = make_to_give_away(id);
    all.emplace_back(std::move(p), id);
    what.nodes.emplace(id, std::array<std::uint64_t, edges>{});
    if (i != 0) connect((i - 1) / (edges - 1), (i - 1) % (edges - 1), i);
    if (i != 0 && pick(3) == 0) connect(i, edges - 1, pick(i));
  }
  return all.front();
}

// Of some places of the mutator's own graph, and perhaps of nodes that were made for it.
ptr<letter> mutator::write_letter(contents& what) {
  std::array<ptr<node>, letter_roots> first;
  fm::test::reached own;
  const bool with_bush = pick(2) == 0;
  for (std::size_t i = 1 + pick(letter_roots); i < letter_roots; ++i) {
    auto [p, id] = walk(12);
    first[i] = std::move(p);
    what.first[i] = id;
    own.from(id);
  }
  for (const std::uint64_t n : own.along([&](std::uint64_t n) -> auto& { return shadow_[n].to; }))
    what.nodes.emplace(n, shadow_[n].to);
  if (with_bush) std::tie(first[0], what.first[0]) = make_bush(what);
  ptr<letter> l = heap_.make<letter>();
  const auto pin = l.write();
  for (std::size_t i = 0; i < letter_roots; ++i) pin->first[i] = first[i];
  return l;
}

// While a graph is sent, its mutator looks at nodes; or, where that is allowed, goes on as ever.
void mutator::send_letters() {
  if (!under_way_.empty()) return settle_letters(false);
  const letter_box::shared_line line = options_.outbox->stands();
  if (!line) return;
  try {
    send_some(line);
  } catch (const error&) {
    if (!options_.letters_change) settle_letters(true);
    throw;
  }
}

void mutator::send_some(const letter_box::shared_line& line) {
  const bool by_itself = pick(2) == 0;
  const std::uint64_t most = pick(4) == 0 ? 64 : all_of_a_letter;
  const send_options how{
      .until = pick(2) == 0 ? delivery::sent : delivery::accepted, .within = patience(pick(3)), .objects_max = most};
  for (std::size_t n = by_itself ? 1 + pick(sends_together) : 1; n > 0; --n) {
    contents what;
    const ptr<letter> l = write_letter(what);
    what.changes = by_itself && options_.letters_change;
    const std::uint64_t number = options_.outbox->sent(options_.number, line, what);
    l.write()->number = number;
    outgoing o{line, number, std::move(what), how, {}};
    if (by_itself)
      o.operation.emplace(line->out.send_async(l, how));
    else
      settle(o, [&] { line->out.send(l, how); });
    if (by_itself) under_way_.push_back(std::move(o));
  }
  if (options_.letters_change) return;
  for (std::size_t n = pick(12); n > 0; --n) walk(24);
  settle_letters(true);
}

template <class Wait>
void mutator::settle(const outgoing& o, const Wait& wait) {
  try {
    wait();
    if (o.what.objects() > o.how.objects_max && !o.what.changes) wrong("a graph over the limit was sent", o.number);
    if (o.how.until == delivery::accepted) options_.outbox->accepted(o.number);
  } catch (const error& e) {
    ++(e.code() == errc::timed_out ? options_.outbox->counts.late : options_.outbox->counts.failed);
    options_.outbox->require_expected(e, &o.what, o.how.objects_max);
    if (ends_line(e.code())) options_.outbox->broke(o.line);
  }
}

void mutator::settle_letters(bool all) {
  while (!under_way_.empty() && (all || under_way_.front().operation->test())) {
    outgoing o = std::move(under_way_.front());
    under_way_.erase(under_way_.begin());
    settle(o, [&] { o.operation->wait(); });
  }
}

// By a call, or on the channel's own thread, while this one does other things.
void mutator::take_letter(duration within) {
  if (!line_in_) line_in_ = options_.inbox->stands();
  if (!line_in_) return;
  if (receiving_.empty() && within < long_patience)
    return open_letter([&] { return line_in_->in.recv<letter>({.within = within}); });
  while (!receiving_.empty() && receiving_.front().test()) take_received();
  while (line_in_ && receiving_.size() < receives_together && options_.inbox->still_stands(line_in_))
    receiving_.push_back(line_in_->in.recv_async<letter>({.within = within}));
}

void mutator::take_received() {
  channel_operation<ptr<letter>> first = std::move(receiving_.front());
  receiving_.pop_front();
  open_letter([&] { return first.wait(); });
}

template <class Receive>
void mutator::open_letter(const Receive& receive) {
  ptr<letter> l;
  try {
    l = receive();
  } catch (const error& e) {
    options_.inbox->require_expected(e, nullptr, 0);
    if (ends_line(e.code())) options_.inbox->broke(line_in_);
    if (receiving_.empty() && !options_.inbox->still_stands(line_in_)) line_in_ = nullptr;
    return;
  }
  const std::uint64_t number = l->number;
  copies_.push_back({l, number, options_.inbox->came(number, line_in_)});
  if (pick(3) == 0) compare_copy(copies_.back());
  if (copies_.size() > copies_max) drop_copy(pick(copies_.size()));
}

void mutator::drop_copy(std::size_t i) {
  std::swap(copies_[i], copies_.back());
  copies_.pop_back();
}

void mutator::use_copy() {
  if (copies_.empty()) return;
  const std::size_t i = pick(copies_.size());
  copy& c = copies_[i];
  switch (pick(5)) {
    case 0: return compare_copy(c);
    case 1: compare_copy(c); return drop_copy(i);
    default: change_copy(c);
  }
}

// The data of a mixture may be that of two versions, or another node's.
void mutator::require_copy(const copy& c, const ptr<node>& p, std::uint64_t id) {
  const auto pin = p.read();
  if (pin->id != id || pin->check != check_of(id)) wrong("a node of a letter is another, or changed", id);
  if (!c.what.changes) return require_data_of(pin, id);
  if (pin->data == nullptr) wrong("a node of a letter has lost its data", id);
}

// A path through the copy; at its end an edge is cut or data is written.
void mutator::change_copy(copy& c) {
  if (c.what.changes) return;
  const std::size_t r = pick(letter_roots);
  ptr<node> at = c.root->first[r].root();
  if (!at) return;
  std::uint64_t id = c.what.first[r];
  for (std::size_t n = pick(24);; --n) {
    require_copy(c, at, id);
    if (n == 0) break;
    ptr<node> next = at->to[pick(edges)].root();
    if (!next) break;
    id = next->id;
    at = std::move(next);
  }
  if (pick(2) == 0) return write_data_of(at, id);
  const auto known = c.what.nodes.find(id);
  if (known == c.what.nodes.end()) wrong("a node came that was not in the letter", id);
  const std::size_t e = pick(edges);
  at.write()->to[e] = nullptr;
  known->second[e] = 0;
}

// Nodes that two edges refer to are one node, and each edge is as it was. Of a mixture every node is sound.
void mutator::compare_copy(const copy& c) {
  if (c.root->number != c.number) wrong("a letter is another", c.number);
  std::unordered_map<std::uint64_t, detail::slot_t> seen;
  std::vector<place> open;
  const auto reach = [&](ptr<node> p, std::uint64_t id) {
    const auto [known, added] = seen.emplace(c.what.changes ? p.slot() : id, p.slot());
    if (!added && known->second != p.slot()) wrong("a node came twice in one letter", id);
    if (added) open.emplace_back(std::move(p), id);
  };
  for (std::size_t r = 0; r < letter_roots; ++r) {
    ptr<node> first = c.root->first[r].root();
    if (!first != (c.what.first[r] == 0)) wrong("a letter has lost what it refers to, or has more", c.number);
    if (first) reach(std::move(first), c.what.first[r]);
  }
  while (!open.empty()) {
    const auto [p, id] = std::move(open.back());
    open.pop_back();
    require_copy(c, p, id);
    const auto known = c.what.nodes.find(id);
    if (known == c.what.nodes.end() && !c.what.changes) wrong("a node came that was not in the letter", id);
    for (std::size_t e = 0; e < edges; ++e) {
      ptr<node> next = p->to[e].root();
      const std::uint64_t next_id = !c.what.changes ? known->second[e] : next ? next->id : 0;
      if ((next_id == 0) != !next) wrong_edge(p, id, e, next_id, next);
      if (next) reach(std::move(next), next_id);
    }
  }
}

void mutator::end_letters() {
  settle_letters(true);
  if (options_.inbox != nullptr) options_.inbox->shut();
}

void mutator::compare_letters() {
  if (options_.inbox == nullptr) return;
  const auto unless_lost = [&](const auto& look) {
    try {
      look();
    } catch (const error& e) {
      if (!options_.may_lose_agents || !is_loss(e.code())) throw;
      ++failed;
    }
  };
  while (!receiving_.empty()) unless_lost([&] { take_received(); });
  for (const copy& c : copies_) unless_lost([&] { compare_copy(c); });
  copies_.clear();
  line_in_ = nullptr;
  options_.inbox->require_all_came();
}

}  // namespace fm::sim

#include "program.h"
#include "heap/heap_core.h"

#include <fmt/format.h>

namespace stress {

namespace {

constexpr std::size_t pins_max = 1;  // a thread, of each kind: each may hold a segment
constexpr std::uint64_t operations_a_break = 400;
constexpr std::uint32_t list_length = 1500;

}  // namespace

template <class Work>
void program::on_threads(Work&& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < plan_.threads; ++t)
    threads.emplace_back([&, t] {
      worker w{*this, std::mt19937_64(mix(plan_.seed + static_cast<std::uint64_t>(t))), {}, {}};
      try {
        work(w, t);
      } catch (const std::exception& e) {
        wrong.add(fmt::format("thread {}: {}", t, e.what()));
      }
    });
  for (auto& t : threads) t.join();
}

// ---- making ----

std::uint64_t program::length_of(std::uint32_t id) const {
  if (id >= plan_.arrays) return plan_.segment / 8 + 1 + mix(plan_.seed ^ id) % (plan_.segment / 16);
  const std::uint64_t r = mix(plan_.seed ^ id);
  return 1 + (r >> 8) % (std::uint64_t{8} << (r % 7));  // up to 512 words, mostly few
}

void program::make_cell(std::uint32_t id) {
  cell c;
  fill(c, id, cells_[id].version);
  cells_[id].object = heap_.make<cell>(std::move(c));
  cells_[id].to = {};
}

void program::make_array(std::uint32_t id, std::uint64_t length) {
  shadow_array& a = arrays_[id];
  a.length = length;
  if (id % 2 == 0) {
    std::vector<std::uint64_t> values(length);
    for (std::size_t i = 0; i < length; ++i) values[i] = word_of(id, a.version, i);
    a.object = heap_.array(std::span(values));
  } else {
    a.object = heap_.array<std::uint64_t>(length);
    auto pin = a.object.write();
    fill(*pin, id, a.version);
  }
}

void program::build() {
  lists_.resize(plan_.list_nodes / list_length);
  on_threads([&](worker&, int t) {
    const auto n = static_cast<std::uint32_t>(plan_.threads);
    const auto mine = static_cast<std::uint32_t>(t);
    for (std::uint32_t i = mine; i < cells_.size(); i += n) make_cell(i);
    for (std::uint32_t i = mine; i < arrays_.size(); i += n) make_array(i, length_of(i));
    for (std::uint32_t l = mine; l < lists_.size(); l += n)
      for (std::uint64_t k = 0; k < list_length; ++k) {
        const std::uint64_t id = l * std::uint64_t{list_length} + k;
        lists_[l].head =
            heap_.make<link_node>({.id = id, .position = k, .next = lists_[l].head, .check = word_of(id, k, 0)});
        ++lists_[l].length;
      }
  });
}

// ---- checking ----

void program::check_cell(const cell& c, std::uint32_t id, const char* who) {
  const shadow_cell& s = cells_[id];
  if (!good(c, id, s.version))
    wrong.add(fmt::format("{}: cell {} (slot {:#x}) should have version {}: it says id {}, version {}, check {:#x}",
                          who, id, s.object.slot(), s.version, c.id, c.version, c.check));
  for (std::size_t i = 0; i < edges; ++i)
    if (c.to[i].slot() != s.to[i].slot)
      wrong.add(
          fmt::format("{}: cell {} edge {} should be slot {:#x}, is {:#x}", who, id, i, s.to[i].slot, c.to[i].slot()));
}

void program::check_array(const numbers& a, std::uint32_t id, std::size_t stride, const char* who) {
  const shadow_array& s = arrays_[id];
  if (!good(a, id, s.version, s.length, stride))
    wrong.add(
        fmt::format("{}: array {} (slot {:#x}) of {} words should have version {}: it has {} words, the first is {:#x}",
                    who, id, s.object.slot(), s.length, s.version, a.size(), a[0]));
}

void program::compare() {
  on_threads([&](worker&, int t) {
    const auto n = static_cast<std::uint32_t>(plan_.threads);
    const auto mine = static_cast<std::uint32_t>(t);
    for (std::uint32_t i = mine; i < cells_.size(); i += n) check_cell(*cells_[i].object.read().get(), i, "compare");
    for (std::uint32_t i = mine; i < arrays_.size(); i += n)
      check_array(*arrays_[i].object.read().get(), i, 1, "compare");
    for (std::uint32_t l = mine; l < lists_.size(); l += n) {
      std::uint64_t nodes = 0;
      for (fm::ptr<link_node> at = lists_[l].head; at; at = at->next) ++nodes;
      if (nodes != lists_[l].length)
        wrong.add(fmt::format("compare: a list of {} nodes has {}", lists_[l].length, nodes));
    }
  });
}

// ---- operations ----

std::uint32_t program::worker::pick(std::size_t n) {
  const std::uint64_t sixteenth = std::max<std::uint64_t>(n / 16, 1);
  if (below(2) == 0) return static_cast<std::uint32_t>(below(n));
  return static_cast<std::uint32_t>((p.operations.load(std::memory_order_relaxed) / 64 + below(sixteenth)) % n);
}

void program::worker::read_cell() {
  const std::uint32_t id = pick(p.cells_.size());
  const std::lock_guard lock(p.cell_locks_.of(id));
  const auto& object = p.cells_[id].object;
  if (below(2) == 0) {
    const fm::scope s;
    p.check_cell(*object.get(s), id, "read in a scope");
  } else if (object->version != p.cells_[id].version) {
    p.wrong.add(fmt::format("cell {} has another version than {}", id, p.cells_[id].version));
  }
}

void program::worker::write_cell() {
  const std::uint32_t id = pick(p.cells_.size());
  const std::lock_guard lock(p.cell_locks_.of(id));
  if (below(2) == 0) {
    auto pin = p.cells_[id].object.write();
    p.check_cell(*pin, id, "write through a pin");
    fill(*pin, id, ++p.cells_[id].version);
  } else {
    const fm::scope s;
    cell* c = p.cells_[id].object.get_for_write(s);
    p.check_cell(*c, id, "write in a scope");
    fill(*c, id, ++p.cells_[id].version);
  }
}

void program::worker::set_edge() {
  const std::uint32_t id = pick(p.cells_.size()), target = pick(p.cells_.size());
  const std::size_t which = below(edges);
  fm::ptr<cell> to;
  if (below(8) != 0) {
    const std::lock_guard lock(p.cell_locks_.of(target));
    to = p.cells_[target].object;
  }
  const std::lock_guard lock(p.cell_locks_.of(id));
  p.cells_[id].object.write()->to[which] = to;
  p.cells_[id].to[which] = {target, to.slot()};
}

void program::worker::follow_edges() {
  std::uint32_t id = pick(p.cells_.size());
  for (int hop = 0; hop < 4; ++hop) {
    shadow_edge next;
    {
      std::mutex& mine = p.cell_locks_.of(id);
      const std::lock_guard lock(mine);
      next = p.cells_[id].to[below(edges)];
      const fm::scope s;
      const cell* c = p.cells_[id].object.get(s);
      p.check_cell(*c, id, "at an edge's start");
      if (next.slot == 0) return;
      std::mutex& other = p.cell_locks_.of(next.id);
      std::unique_lock<std::mutex> tried;
      if (&other != &mine) {
        tried = std::unique_lock(other, std::try_to_lock);
        if (!tried.owns_lock()) return;
      }
      for (const auto& e : c->to) {
        if (e.slot() != next.slot) continue;
        const cell* t = e.get(s);
        if (p.cells_[next.id].object.slot() == next.slot)
          p.check_cell(*t, next.id, "through an edge");
        else if (!good(*t, next.id, t->version))
          p.wrong.add(fmt::format("a replaced cell {} is spoilt", next.id));
        break;
      }
      p.check_cell(*c, id, "at an edge's start, again");
    }
    id = next.id;
  }
}

void program::worker::replace_cell() {
  if (p.replacements_left_.fetch_sub(1) <= 0) return write_cell();
  const std::uint32_t id = pick(p.cells_.size());
  const std::lock_guard lock(p.cell_locks_.of(id));
  ++p.cells_[id].version;
  p.make_cell(id);
}

void program::worker::read_array() {
  const std::uint32_t id = pick(p.arrays_.size());
  std::unique_lock<std::mutex> lock;
  if (!frozen(id)) lock = std::unique_lock(p.array_locks_.of(id));
  const fm::scope s;
  p.check_array(*p.arrays_[id].object.get(s), id, 7, "read an array");
}

void program::worker::write_array() {
  const std::uint32_t id = pick(p.arrays_.size());
  if (frozen(id)) return read_array();
  const std::lock_guard lock(p.array_locks_.of(id));
  auto pin = p.arrays_[id].object.write();
  p.check_array(*pin, id, 7, "write an array");
  fill(*pin, id, ++p.arrays_[id].version);
}

void program::worker::replace_array() {
  const auto id = static_cast<std::uint32_t>(below(p.plan_.arrays));
  if (frozen(id) || p.replacements_left_.fetch_sub(1) <= 0) return write_array();
  const std::lock_guard lock(p.array_locks_.of(id));
  ++p.arrays_[id].version;
  p.make_array(id, 1 + below(64));
}

void program::worker::walk_list() {
  const shadow_list& l = p.lists_[below(p.lists_.size())];
  fm::scope s;
  const link_node* n = l.head.get(s);
  fm::ptr<link_node> at;
  for (std::uint64_t position = l.length; n; n = n->next.get(s)) {
    if (n->position != --position || n->check != word_of(n->id, n->position, 0))
      return p.wrong.add(
          fmt::format("list node {} at position {} says {}, check {:#x}", n->id, position, n->position, n->check));
    if (position % 64 == 0) {  // a long walk gives memory back now and then
      at.move_to_slot(n->next.slot());
      s.renew();
      n = at.get(s);
      if (!n) return;
      if (n->position != --position)
        return p.wrong.add(fmt::format("after renewing, position {} instead of {}", n->position, position));
      if (position > 256 && below(8) == 0) return;
    }
  }
}

void program::worker::pin_cell() {
  if (cells.size() == pins_max) cells.erase(cells.begin());
  const std::uint32_t id = pick(p.cells_.size());
  const std::lock_guard lock(p.cell_locks_.of(id));
  const auto& object = p.cells_[id].object;
  cells.push_back({id, object.slot(), object.write()});
}

void program::worker::write_pinned() {
  if (cells.empty()) return pin_cell();
  const pinned_cell& c = cells[below(cells.size())];
  const std::lock_guard lock(p.cell_locks_.of(c.id));
  if (p.cells_[c.id].object.slot() != c.slot) return;  // the id has another object now
  p.check_cell(*c.pin, c.id, "through a pin of before");
  fill(*c.pin.get(), c.id, ++p.cells_[c.id].version);
}

void program::worker::pin_array() {
  if (arrays.size() == pins_max) arrays.erase(arrays.begin());
  const auto id = static_cast<std::uint32_t>(below(p.plan_.arrays));
  const std::lock_guard lock(p.array_locks_.of(id));
  const auto& object = p.arrays_[id].object;
  arrays.push_back({id, object.slot(), object.read()});
}

void program::worker::read_pinned() {
  if (arrays.empty()) return pin_array();
  const pinned_array& a = arrays[below(arrays.size())];
  const std::lock_guard lock(p.array_locks_.of(a.id));
  if (p.arrays_[a.id].object.slot() == a.slot) p.check_array(*a.pin.get(), a.id, 3, "through a read pin of before");
}

void program::worker::prefetch() {
  fm::detail::slot_t slots[24];
  std::size_t n = 0;
  const std::uint32_t first = pick(p.cells_.size());
  for (std::uint32_t i = 0; i < 16; ++i) {
    const auto id = static_cast<std::uint32_t>((first + i) % p.cells_.size());
    const std::lock_guard lock(p.cell_locks_.of(id));
    slots[n++] = p.cells_[id].object.slot();
  }
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto id = static_cast<std::uint32_t>(below(p.arrays_.size()));
    const std::lock_guard lock(p.array_locks_.of(id));
    slots[n++] = p.arrays_[id].object.slot();
  }
  p.heap_.core().cache().detached().prefetch(slots, n);
}

void program::worker::nested_scopes() {
  const fm::scope outer;
  const auto id = static_cast<std::uint32_t>(below(p.arrays_.size() / 4) * 4);
  const numbers* first = p.arrays_[id].object.get(outer);
  for (int i = 0; i < 6; ++i) {
    const fm::scope inner;
    const auto other = static_cast<std::uint32_t>(below(p.arrays_.size() / 4) * 4);
    p.check_array(*p.arrays_[other].object.get(inner), other, 5, "in a nested scope");
  }
  const std::uint32_t c = pick(p.cells_.size());
  if (const std::unique_lock lock(p.cell_locks_.of(c), std::try_to_lock); lock.owns_lock()) {
    const fm::scope inner;
    p.check_cell(*p.cells_[c].object.get(inner), c, "in a nested scope");
  }
  p.check_array(*first, id, 1, "in the outer scope, after the inner ones");
}

void program::worker::step() {
  const std::uint64_t what = below(100);
  if (what < 24)
    read_cell();
  else if (what < 42)
    write_cell();
  else if (what < 50)
    set_edge();
  else if (what < 58)
    follow_edges();
  else if (what < 61)
    replace_cell();
  else if (what < 70)
    read_array();
  else if (what < 78)
    write_array();
  else if (what < 80)
    replace_array();
  else if (what < 81)
    walk_list();
  else if (what < 84)
    pin_cell();
  else if (what < 88)
    write_pinned();
  else if (what < 90)
    pin_array();
  else if (what < 93)
    read_pinned();
  else if (what < 96)
    prefetch();
  else
    nested_scopes();
}

// ---- running ----

// Every so often a break is due, of three kinds in turn. The agent breaks the connection with its next batch, before or after
// it has handled it (breaking_agent.h). Or the owner does, when some worker sees a batch between its append and the
// acknowledgement, most likely one that it has just sent; or anywhere, if none was seen until it is due again.
void program::break_connection(worker& w) {
  if (!plan_.breaks) return;
  auto& links = heap_.core().cache().agents();
  if (break_due_.load(std::memory_order_relaxed))
    for (auto& link : links) {
      if (link->batches_in_flight() == 0 || !break_due_.exchange(false)) continue;
      link->session().drop_connection(link->session().generation());
      breaks.fetch_add(1);
      break;
    }
  const std::uint64_t n = operations.fetch_add(1, std::memory_order_relaxed) + 1;
  if (n % operations_a_break != 0) return;
  const std::uint64_t turn = n / operations_a_break;
  if (!agents_.empty() && turn % 3 != 0) {
    using loss = breaking_agent::loss;
    return agents_[(turn / 3 + turn % 3) % agents_.size()]->lose_next(turn % 3 == 1 ? loss::index_message
                                                                                    : loss::index_answer);
  }
  if (!break_due_.exchange(true)) return;
  auto& s = links[w.below(links.size())]->session();
  s.drop_connection(s.generation());
  breaks.fetch_add(1);
}

void program::run() {
  replacements_left_ = plan_.replacements;
  const fm::time_point end = fm::clock::now() + plan_.run_for;
  on_threads([&](worker& w, int) {
    while (!wrong.any() && fm::clock::now() < end)
      for (int i = 0; i < 32; ++i) {
        w.step();
        break_connection(w);
      }
  });
}

}  // namespace stress

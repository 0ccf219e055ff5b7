// A seeded random mutator with a shadow of everything that it can reach: several threads, several agents, small regions, a small
// cache, and collections one after the other. Each thread has a graph of its own, which it changes and walks beside its shadow;
// all of them store to and load from one array of references. FARMEM_SEED replays, FARMEM_STRESS_SECONDS lengthens.
#include "heap/heap_core.h"
#include <cstdlib>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>

#include "fixture.h"
#include "support/reached.h"

using namespace gc_test;

namespace {

constexpr std::size_t edges = 4;

struct mutated {
  std::uint64_t id = 0;
  std::uint64_t check = 0;
  std::array<fm::ref<mutated>, edges> to;
  fm::weak<mutated> near;     // keeps nothing alive
  std::uint64_t near_id = 0;  // of which node
  std::uint64_t rest = 0;
};
struct exchange_place {
  fm::ref<fm::ref<mutated>[]> places;
};

std::uint64_t check_of(std::uint64_t id) { return id * 0x9e3779b97f4a7c15 ^ 0x5bd1e995; }

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* s = std::getenv(name);
  return s ? std::strtoull(s, nullptr, 0) : otherwise;
}

// What a thread knows: the nodes that its roots reach, with their edges. 0 is null.
class thread_of_mutation {
  using place = std::pair<fm::ptr<mutated>, std::uint64_t>;

 public:
  thread_of_mutation(fm::heap& h, fm::ptr<fm::ref<mutated>[]> shared, std::uint64_t number, std::uint64_t seed)
      : heap_(h), shared_(std::move(shared)), next_id_((number + 1) << 40), random_(seed * 1000 + number) {
    roots_.resize(16);
    root_ids_.resize(16);
  }

  void step() {
    switch (pick(14)) {
      case 0:
      case 1: return make_root();
      case 2:
      case 3: return attach_new();
      case 4: return link();
      case 5: return cut();
      case 6: return drop_root();
      case 7: return move_root();
      case 8: return swap_edges();
      case 9: return use_weak();
      case 10: return exchange_shared();
      case 11: return set_near();
      case 12: return reach_near();
      default: walk(24);
    }
  }

  // Every node that the shadow reaches is there, with its edges, and is found by those that name it weakly.
  void compare_all() {
    std::set<std::uint64_t> seen;
    std::vector<place> open, near_of_all;
    for (std::size_t i = 0; i < roots_.size(); ++i)
      if (root_ids_[i] != 0 && seen.insert(root_ids_[i]).second) open.emplace_back(roots_[i], root_ids_[i]);
    while (!open.empty()) {
      auto [p, id] = std::move(open.back());
      open.pop_back();
      require_node(p, id);
      near_of_all.emplace_back(p->near.lock(), p->near_id);
      for (std::size_t e = 0; e < edges; ++e) {
        fm::ptr<mutated> next = p->to[e].root();
        const std::uint64_t next_id = shadow_[id][e];
        if ((next_id == 0) != !next) throw std::runtime_error("an edge is not what its shadow is");
        if (next_id != 0 && seen.insert(next_id).second) open.emplace_back(std::move(next), next_id);
      }
    }
    reachable = seen.size();
    for (const auto& [near, id] : near_of_all)
      if (seen.contains(id) && !near) throw std::runtime_error("a weak field to a living node is null");
  }
  std::size_t reachable = 0;
  std::uint64_t locked = 0, gone = 0;

 private:
  std::size_t pick(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  static void require_node(const fm::ptr<mutated>& p, std::uint64_t id) {
    const auto pin = p.read();
    if (pin->id != id || pin->check != check_of(id)) throw std::runtime_error("a node is another, or changed");
    if (const auto near = pin->near.lock(); near && near->id != pin->near_id)
      throw std::runtime_error("a weak field names another node than it was set to");
  }
  fm::ptr<mutated> make(std::uint64_t& id) {
    id = ++next_id_;
    shadow_[id] = {};
    return heap_.make<mutated>({.id = id, .check = check_of(id)});
  }
  // A node that can be reached, by a random path from a random root; checked on the way.
  place walk(std::size_t most) {
    const std::size_t r = pick(roots_.size());
    place at{roots_[r], root_ids_[r]};
    if (at.second == 0) return at;
    require_node(at.first, at.second);
    for (std::size_t n = pick(most); n > 0; --n) {
      const std::size_t e = pick(edges);
      const std::uint64_t next_id = shadow_[at.second][e];
      fm::ptr<mutated> next = at.first->to[e];
      if ((next_id == 0) != !next) throw std::runtime_error("an edge is not what its shadow is");
      if (next_id == 0) break;
      require_node(next, next_id);
      at = {std::move(next), next_id};
    }
    return at;
  }
  void make_root() {
    const std::size_t r = pick(roots_.size());
    if (root_ids_[r] != 0 && pick(4) != 0) return;
    roots_[r] = make(root_ids_[r]);
  }
  void attach_new() {
    auto [p, id] = walk(24);
    if (id == 0) return;
    const std::size_t e = pick(edges);
    std::uint64_t added = 0;
    const auto q = make(added);
    shadow_[added][pick(edges)] = 0;
    if (pick(2) == 0) {  // between the node and what it referred to
      const std::size_t back = pick(edges);
      q.write()->to[back] = p->to[e].root();
      shadow_[added][back] = shadow_[id][e];
    }
    p.write()->to[e] = q;
    shadow_[id][e] = added;
    forget_some();
  }
  void link() {
    const auto [p, id] = walk(24);
    const auto [q, other] = walk(24);
    if (id == 0 || other == 0) return;
    const std::size_t e = pick(edges);
    p.write()->to[e] = q;
    shadow_[id][e] = other;
  }
  void cut() {
    const auto [p, id] = walk(6);
    if (id == 0) return;
    const std::size_t e = pick(edges);
    p.write()->to[e] = nullptr;
    shadow_[id][e] = 0;
  }
  void swap_edges() {
    const auto [p, id] = walk(24);
    const auto [q, other] = walk(24);
    if (id == 0 || other == 0) return;
    const std::size_t a = pick(edges), b = pick(edges);
    {
      const auto pp = p.write(), qq = q.write();
      fm::ptr<mutated> was = pp->to[a].exchange(qq->to[b].root());
      qq->to[b] = was;
    }
    std::swap(shadow_[id][a], shadow_[other][b]);
  }
  void drop_root() {
    const std::size_t r = pick(roots_.size());
    if (pick(3) != 0) return;
    roots_[r] = nullptr;
    root_ids_[r] = 0;
  }
  // The node goes on from a root of another node's field, and its old root is gone: only the log can know of it.
  void move_root() {
    const std::size_t r = pick(roots_.size());
    auto [p, id] = walk(24);
    if (id == 0) return;
    const std::size_t e = pick(edges);
    fm::ptr<mutated> taken = p->to[e];
    const std::uint64_t taken_id = shadow_[id][e];
    p.write()->to[e] = nullptr;
    shadow_[id][e] = 0;
    roots_[r] = std::move(taken);
    root_ids_[r] = taken_id;
  }
  void use_weak() {
    if (weak_.size() < 64) {
      const auto [p, id] = walk(24);
      if (id != 0) weak_.emplace_back(fm::weak<mutated>(p), id);
      return;
    }
    const std::size_t i = pick(weak_.size());
    if (const auto p = weak_[i].first.lock()) {
      require_node(p, weak_[i].second);
      ++locked;
      if (pick(4) == 0) {  // back to life, whoever had dropped it
        const std::size_t r = pick(roots_.size());
        roots_[r] = p;
        root_ids_[r] = weak_[i].second;
      }
    } else {
      ++gone;
    }
    weak_[i] = std::move(weak_.back());
    weak_.pop_back();
  }
  void set_near() {
    const auto [p, id] = walk(24);
    const auto [q, other] = walk(24);
    if (id == 0 || other == 0) return;
    const auto in_place = p.write();
    in_place->near = q;
    in_place->near_id = other;
  }
  // A node that may be reachable from a weak field alone is rooted again.
  void reach_near() {
    const auto [p, id] = walk(24);
    if (id == 0) return;
    fm::ptr<mutated> near = p->near.lock();
    const std::uint64_t near_id = p->near_id;
    ++(near ? locked : gone);
    if (!near || !shadow_.contains(near_id)) return;
    require_node(near, near_id);
    const std::size_t r = pick(roots_.size());
    roots_[r] = std::move(near);
    root_ids_[r] = near_id;
  }
  void exchange_shared() {
    const std::size_t at = pick(64);
    std::uint64_t id = 0;
    const auto fresh = make(id);
    shadow_.erase(id);
    fm::ptr<mutated> old;
    {
      const auto places = shared_.write();
      old = (*places)[at].exchange(fresh);
    }
    if (old) {
      const auto pin = old.read();
      if (pin->check != check_of(pin->id)) throw std::runtime_error("a shared node changed");
    }
    const fm::ptr<mutated> other = (*shared_.read().get())[pick(64)].root();
    if (other && other->check != check_of(other->id)) throw std::runtime_error("a shared node changed");
  }
  // The shadow of what died is dropped now and then; what weak handles may bring back stays.
  void forget_some() {
    if (shadow_.size() < 2 * last_size_ + 4096) return;
    fm::test::reached alive;
    for (const std::uint64_t id : root_ids_) alive.from(id);
    for (const auto& [w, id] : weak_) alive.from(id);
    const auto& seen = alive.along([&](std::uint64_t id) -> auto& { return shadow_[id]; });
    std::erase_if(shadow_, [&](const auto& node) { return !seen.contains(node.first); });
    last_size_ = shadow_.size();
  }

  fm::heap& heap_;
  fm::ptr<fm::ref<mutated>[]> shared_;
  std::uint64_t next_id_;
  std::mt19937_64 random_;
  std::vector<fm::ptr<mutated>> roots_;
  std::vector<std::uint64_t> root_ids_;
  std::unordered_map<std::uint64_t, std::array<std::uint64_t, edges>> shadow_;
  std::vector<std::pair<fm::weak<mutated>, std::uint64_t>> weak_;
  std::size_t last_size_ = 0;
};

// `verify`: every cycle is verified as well. After each of them the agents evacuate, in this order.
void mutate_and_compare(fm::detail::tracing who, bool verify, fm::evacuation_order order, fm::evacuate what) {
  const std::uint64_t seed = number_from("FARMEM_SEED", 20);
  const auto seconds = std::chrono::seconds(number_from("FARMEM_STRESS_SECONDS", what == fm::evacuate::all ? 2 : 3));
  INFO("FARMEM_SEED=" << seed);
  constexpr std::size_t threads_n = 3;
  fm::heap h({.cache = 512_KiB,
              .agents = {"local:", "local:", "local:"},
              .local_memory = 256_MiB,  // room for what is made while a cycle runs on a slow machine
              .local_region = 64_KiB,
              .segment = 16_KiB,
              .collect = false,
              .verify_cycles = verify,
              .evacuation = {.order = order},
              .access_within = std::chrono::seconds(60),
              .memory_within = std::chrono::seconds(60)});
  h.core().gc().trace_by(who);
  const fm::ptr<fm::ref<mutated>[]> shared = h.array<fm::ref<mutated>>(64);
  std::vector<std::unique_ptr<thread_of_mutation>> work;
  for (std::size_t t = 0; t < threads_n; ++t) work.push_back(std::make_unique<thread_of_mutation>(h, shared, t, seed));
  std::atomic<bool> stop{false};
  std::vector<std::string> wrong(threads_n);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < threads_n; ++t)
    threads.emplace_back([&, t] {
      try {
        while (!stop.load(std::memory_order_relaxed)) work[t]->step();
        work[t]->compare_all();
      } catch (const std::exception& e) {
        wrong[t] = e.what();
        stop = true;
      }
    });
  const auto until = fm::clock::now() + seconds;
  std::uint64_t cycles = 0, freed = 0, overwritten = 0, left_for_later = 0;
  std::uint64_t evacuations_failed = 0, traversed = 0, died_young = 0;
  bool young_failed = false;
  // However slow the machine: some cycles, and all that is asked for below.
  const auto enough = [&] { return cycles > 3 && freed > 1000 && died_young > 0 && overwritten > 0 && traversed > 0; };
  while (!stop.load() && fm::clock::now() < (enough() ? until : until + std::chrono::minutes(5))) {
    const auto r = h.collect("always", what);
    if (!r.ok()) {
      UNSCOPED_INFO(r.text());
      break;
    }
    ++cycles;
    for (const auto& a : r.agents) {
      evacuations_failed += a.evacuation != fm::errc::ok;
      traversed += a.order == order && a.evacuated_objects != 0;
    }
    freed += r.freed;
    overwritten += r.overwritten;
    left_for_later += r.dead - r.freed;
    for (int i = 0; i < 3; ++i) {
      const auto young = h.collect_young("in between");
      if (!young.ok() && young.status != fm::errc::timed_out) {
        UNSCOPED_INFO(young.text());
        young_failed = true;
        stop = true;
      }
      died_young += young.freed;
    }
  }
  stop = true;
  for (auto& t : threads) t.join();
  for (const std::string& w : wrong) REQUIRE(w == "");
  UNSCOPED_INFO(cycles << " cycles, " << freed << " freed, " << overwritten << " overwritten, " << left_for_later
                       << " left for a later cycle, " << died_young << " died young");
  REQUIRE(h.stats().collections_failed == 0);
  REQUIRE(cycles > 3);
  REQUIRE(freed > 1000);
  REQUIRE(!young_failed);
  REQUIRE(died_young > 0);
  REQUIRE(overwritten > 0);
  REQUIRE(evacuations_failed == 0);
  REQUIRE(traversed > 0);
  REQUIRE(h.stats().evacuated_objects > 0);
  REQUIRE(h.stats().emptied_regions > 0);
  require_sound_at_home(h);

  // With everybody still, a cycle marks exactly what the shadows reach.
  const auto last = collect(h, "at the end");
  std::size_t reachable = 1;  // the shared array
  for (const auto& w : work) reachable += w->reachable;
  const auto places = shared.read();
  for (std::size_t i = 0; i < places->size(); ++i) reachable += bool((*places)[i]);
  REQUIRE(last.marked == reachable);
}

}  // namespace

TEST_CASE("a random mutator and its shadow agree while collections run one after the other") {
  mutate_and_compare(fm::detail::tracing::agents, true, fm::evacuation_order::address, fm::evacuate::sparse);
}

TEST_CASE("a random mutator and its shadow agree while the compute node traces") {
  mutate_and_compare(fm::detail::tracing::compute_node, false, fm::evacuation_order::address, fm::evacuate::sparse);
}

TEST_CASE("a random mutator and its shadow agree while everything is evacuated in address order") {
  mutate_and_compare(fm::detail::tracing::agents, false, fm::evacuation_order::address, fm::evacuate::all);
}

TEST_CASE("a random mutator and its shadow agree while everything is evacuated depth first") {
  mutate_and_compare(fm::detail::tracing::agents, true, fm::evacuation_order::depth_first, fm::evacuate::all);
}

TEST_CASE("a random mutator and its shadow agree while everything is evacuated breadth first") {
  mutate_and_compare(fm::detail::tracing::agents, false, fm::evacuation_order::breadth_first, fm::evacuate::all);
}

// What changes about the agents of a simulated program's heaps; see members.h.
#include "members.h"

#include "cache/object_cache.h"
#include "heap/heap_core.h"

#include <algorithm>

#include "network.h"
#include "scheduler.h"

namespace fm::sim {

using namespace fm::literals;

std::unique_ptr<fm::agent::store> make_store(const plan& p, const std::string& name) {
  fm::agent::store_options o;
  o.memory_bytes = p.agent_memory;
  o.region_bytes = 64_KiB;
  o.trace_nice = 0;
  o.trace_references_max = p.references_max;
  o.trace_queue_slots = p.trace_queue;
  o.peer_schemes = {"sim"};
  o.peers_beyond_host = true;
  o.name = name;
  // The machine's load is not the same twice. The simulated one stays for a while, since several looks in a row must find it.
  o.hooks.busy = [](void*) { return 0.0; };
  if (p.changes != 0) {
    o.hooks.busy = [](void* self) {
      const auto time = static_cast<std::uint64_t>(now() / 1'000'000);
      return static_cast<double>((reinterpret_cast<std::uintptr_t>(self) + time) * 2654435761 >> 8 & 3);
    };
    o.hooks.context = reinterpret_cast<void*>(std::hash<std::string>{}(name));
  }
  return fm::agent::store::create(o);
}

void coming_and_going::run() try {
  name_thread("members");
  for (std::uint64_t i = 0; i < plan_.agents; ++i) there_.push_back(i);
  for (std::uint64_t n = 0; n < plan_.changes && !stop_; ++n) {
    sleep_until(now() + 1 + random() % 100'000);
    if (one_in(4))
      other_cache();
    else if (there_.size() <= replicas_ || one_in(3))
      come();
    else if (one_in(3))
      look_at_load();
    else if (one_in(4))
      other_replicas();
    else
      go();
  }
} catch (const std::exception& e) {
  failed_(e);
}

void coming_and_going::come() {
  const std::string host = "agent" + std::to_string(agents_.size());
  agents_.push_back({host, make_store(plan_, host)});
  network::get().add(host, *agents_.back().store);
  there_.push_back(agents_.size() - 1);
  for (heap* const h : heaps_) {
    for (bool added = false; !added;) try {  // a connection may break while it is made
        h->add_agent("sim://" + host);
        added = true;
      } catch (const error& e) {
        if (e.code() != errc::disconnected) throw;
      }
  }
}

void coming_and_going::go() {
  const std::size_t which = random() % there_.size();
  agent& a = agents_[there_[which]];
  there_.erase(there_.begin() + static_cast<std::ptrdiff_t>(which));
  for (heap* const h : heaps_) h->remove_agent("sim://" + a.host);
  network::get().remove(a.host);
  a.store.reset();
}

void coming_and_going::other_replicas() {
  replicas_ = 1 + random() % std::min<std::uint64_t>(there_.size(), 3);
  for (heap* const h : heaps_) h->set_replicas(static_cast<std::uint32_t>(replicas_));
}

/// What is pinned, and the largest object, fit into the smallest.
void coming_and_going::other_cache() {
  for (heap* const h : heaps_)
    h->resize_cache(plan_.cache + plan_.segment * (random() % (plan_.cache / plan_.segment + 1)));
}

void coming_and_going::look_at_load() {
  for (int looks = 0; looks < 12; ++looks) {
    for (heap* const h : heaps_) h->core().gc().look_at_members();
    sleep_until(now() + 20'000);
  }
}

}  // namespace fm::sim

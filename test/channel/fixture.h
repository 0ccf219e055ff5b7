// What the channel tests share: two small heaps with a channel between them over each transport, graphs, and what is checked
// when they have arrived.
#pragma once

#include <farmem/farmem.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <thread>

#include "support/served_store.h"

namespace channel_test {

using namespace fm::literals;

/// Sanitizers make everything slower; tests then do less of the same.
#if FM_TSAN || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

inline fm::heap_options small(std::uint64_t cache = 8_MiB) {
  return {.cache = cache,
          .local_memory = 256_MiB,
          .local_region = 4_MiB,
          .segment = 64_KiB,
          .access_within = std::chrono::seconds(60),
          .memory_within = std::chrono::seconds(60)};
}

/// An agent in a thread of this process, reached over TCP.
class agent final : public fm::test::served_store {
 public:
  agent() : served_store({.memory_bytes = 256_MiB, .region_bytes = 1_MiB}) { serve(); }
  ~agent() override { stop(); }
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;
};

/// An address of its own for every call.
inline std::string fresh_url(const std::string& transport) {
  static int number = 0;
  const std::string name = "fm-channel-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
  if (transport == "local") return "local:" + name;
  if (transport == "shm") return "shm:///tmp/" + name;
  return "tcp://127.0.0.1:0";
}

/// Two heaps with a channel between them: `tx` in `from` is the end that connected, `rx` in `to` the one that was accepted.
struct ends {
  explicit ends(const std::string& transport, const fm::channel_options& o = {},
                const fm::heap_options& at_sender = small(), const fm::heap_options& at_receiver = small())
      : from(at_sender),
        to(at_receiver),
        listener(to, fresh_url(transport), o),
        tx(fm::channel::connect(from, listener.url(), o)),
        rx(listener.accept()) {}
  fm::heap from, to;
  fm::channel_listener listener;
  fm::channel tx, rx;
};

/// Runs something beside the test, and keeps what it throws: checks belong to the main thread.
class beside {
 public:
  explicit beside(std::function<void()> f)
      : thread_([this, f = std::move(f)] {
          try {
            f();
          } catch (const fm::error& e) {
            code_ = e.code();
            text_ = e.what();
          } catch (const std::exception& e) {
            code_ = fm::errc::unsupported;
            text_ = e.what();
          }
        }) {}
  ~beside() {
    if (thread_.joinable()) thread_.join();
  }
  beside(const beside&) = delete;
  beside& operator=(const beside&) = delete;
  /// What it threw; ok when nothing.
  fm::errc join() {
    if (thread_.joinable()) thread_.join();
    return code_;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  fm::errc code_ = fm::errc::ok;
  std::string text_;
  std::thread thread_;
};

/// What `f` throws.
struct thrown {
  fm::errc code = fm::errc::ok;
  std::string text;
};
template <class F>
thrown thrown_by(F&& f) {
  try {
    f();
  } catch (const fm::error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

inline void require_ok(beside& b) {
  const fm::errc e = b.join();
  INFO(b.text());
  REQUIRE(e == fm::errc::ok);
}

inline void require_sound(fm::heap& h) {
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

/// Objects that are left after a collection.
inline std::uint64_t objects_left(fm::heap& h) {
  const auto r = h.collect("test");
  INFO(r.text());
  REQUIRE(r.ok());
  std::uint64_t n = 0;
  for (const auto& t : h.stats(fm::detail_level::types).types) n += t.objects;
  return n;
}

/// Collects and evicts in both heaps until it ends.
class disturbance {
 public:
  explicit disturbance(ends& e)
      : thread_([this, &e] {
          do {
            for (fm::heap* h : {&e.from, &e.to}) {
              ok_ = ok_ && h->collect("beside").ok();
              (void)h->evict_all();
            }
            ++rounds_;
          } while (!over_.load());
        }) {}
  ~disturbance() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  disturbance(const disturbance&) = delete;
  disturbance& operator=(const disturbance&) = delete;
  void require_over() {
    over_ = true;
    thread_.join();
    REQUIRE(ok_.load());
    REQUIRE(rounds_.load() > 0);
  }

 private:
  std::atomic<bool> over_{false}, ok_{true};
  std::atomic<int> rounds_{0};
  std::thread thread_;
};

template <class C>
void require_round_trip(ends& e, const C& c, const std::function<void(const C&)>& look) {
  beside sender([&] { e.tx.send(c); });
  const C there = e.rx.recv<C>();
  require_ok(sender);
  look(there);
}

// ---- graphs ----

struct node {
  std::uint64_t id = 0;
  fm::ref<node> next, other;
};

inline fm::ptr<node> make_list(fm::heap& h, std::uint64_t n) {
  fm::ptr<node> head;
  for (std::uint64_t i = 0; i < n; ++i) head = h.make<node>({.id = i, .next = head});
  return head;
}

inline void require_list(const fm::ptr<node>& head, std::uint64_t n) {
  std::uint64_t expected = n;
  for (const node& e : fm::walk(head, &node::next))
    if (e.id != --expected) FAIL("element " << e.id << " instead of " << expected);
  REQUIRE(expected == 0);
}

/// A vertex refers to any others, itself too, and may be reached in many ways.
struct vertex {
  std::uint32_t id = 0;
  std::array<fm::ref<vertex>, 2> some;
  std::pair<std::uint16_t, fm::ref<vertex>> one;
  fm::ref<fm::ref<vertex>[]> many;
  fm::ref<fm::string> name;
};

/// Numbers of who refers to whom, in the order of fields; -1 for null.
using edges = std::map<std::uint32_t, std::vector<std::int64_t>>;

inline fm::ptr<vertex> make_graph(fm::heap& h, std::uint32_t n, std::uint64_t seed, edges& out) {
  auto random = [&seed] {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
  };
  std::vector<fm::ptr<vertex>> all;
  for (std::uint32_t i = 0; i < n; ++i) all.push_back(h.make<vertex>({.id = i}));
  for (std::uint32_t i = 0; i < n; ++i) {
    const auto pick = [&](fm::ref<vertex>& field, bool must) {
      const std::uint64_t r = random();
      if (!must && r % 4 == 0) {
        out[i].push_back(-1);
        return;
      }
      const std::uint32_t to = must ? (i + 1) % n : static_cast<std::uint32_t>(r / 4 % n);
      field = all[to];
      out[i].push_back(to);
    };
    const std::uint64_t degree = random() % 5;
    const auto many = degree == 0 ? fm::ptr<fm::ref<vertex>[]>() : h.array<fm::ref<vertex>>(degree);
    const auto name = h.str("vertex " + std::to_string(i));
    const fm::write_pin v = all[i].write();
    pick(v->some[0], false);
    pick(v->some[1], true);  // so that all are reachable
    pick(v->one.second, false);
    v->one.first = static_cast<std::uint16_t>(i);
    v->many = many;
    if (i % 3 != 0) v->name = name;
    if (!many) continue;
    const fm::write_pin m = many.write();
    for (fm::ref<vertex>& r : *m) pick(r, false);
  }
  return all[0];
}

/// Walks all that is reachable, and compares.
inline void require_graph(const fm::ptr<vertex>& root, const edges& expected) {
  std::map<std::uint32_t, fm::ptr<vertex>> known{{root->id, root}};
  std::vector<std::uint32_t> todo{root->id};
  std::uint64_t wrong = 0;
  while (!todo.empty()) {
    const std::uint32_t id = todo.back();
    todo.pop_back();
    const fm::read_pin v = known[id].read();
    std::vector<std::int64_t> found;
    const auto look = [&](const fm::ref<vertex>& r) {
      const fm::ptr<vertex> p = r.root();
      if (!p) return found.push_back(-1);
      const std::uint32_t to = p->id;
      found.push_back(to);
      const auto [at, added] = known.emplace(to, p);
      if (added) todo.push_back(to);
      if (!(at->second == p)) ++wrong;  // the same vertex twice
    };
    look(v->some[0]);
    look(v->some[1]);
    look(v->one.second);
    if (v->one.first != static_cast<std::uint16_t>(id)) ++wrong;
    if (v->many) {
      const fm::read_pin m = v->many.root().read();
      for (const fm::ref<vertex>& r : *m) look(r);
    }
    if ((id % 3 != 0) != bool(v->name)) ++wrong;
    if (v->name && !(fm::string(v->name) == "vertex " + std::to_string(id))) ++wrong;
    if (const auto e = expected.find(id); e == expected.end() || e->second != found) ++wrong;
  }
  REQUIRE(known.size() == expected.size());
  REQUIRE(wrong == 0);
}

}  // namespace channel_test

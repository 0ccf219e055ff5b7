// Agents of pools with replicas in the test's own process, an arbiter in its hands, and threads that know what the pool has
// to have.
#pragma once

#include "pool/fixture.h"
#include "protocol/pool_replica_messages.h"
#include "support/await.h"
#include "support/busy_threads.h"
#include "support/effort.h"
#include "support/served_store.h"
#include "support/temporary_folder.h"

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <random>

namespace pool_test {

/// A register of the test's: it can be out of reach.
class test_arbiter final : public fm::agent::pool_arbiter {
 public:
  errc change(const std::string& name, const fm::agent::pair_record& before, const fm::agent::pair_record& next,
              fm::agent::pair_record& now) noexcept override {
    const std::lock_guard lock(mutex_);
    ++asked;
    if (!reachable) return errc::unreachable;
    fm::agent::pair_record& is = records_[name];
    if (is == before) is = next;
    now = is;
    return is == next ? errc::ok : errc::conflict;
  }
  void forget(const std::string& name, const fm::agent::pair_record& last) noexcept override {
    if (holds) {
      ++held;
      holds.wait(true);
    }
    const std::lock_guard lock(mutex_);
    if (const auto at = records_.find(name); at != records_.end() && at->second == last) records_.erase(at);
  }
  [[nodiscard]] std::size_t records() const {
    const std::lock_guard lock(mutex_);
    return records_.size();
  }
  std::atomic<bool> reachable{true};
  std::atomic<std::uint64_t> asked{0};
  /// It answers to nobody who wants it to forget something, until release(); so many wait.
  std::atomic<bool> holds{false};
  std::atomic<int> held{0};
  void release() {
    holds = false;
    holds.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, fm::agent::pair_record> records_;
};

class member final : public fm::test::served_store {
 public:
  member(const std::string& at, const fm::agent::store_options& o) : served_store(o) { serve(at); }
  ~member() override { stop(); }
  /// The next messages of other agents get no answers; their connections stay.
  std::atomic<bool> deaf{false};
  /// So many messages that tell it that it is a backup are lost.
  std::atomic<int> forgets{0};
  /// So many messages that tell it that its primary has left are lost, or the answers to them.
  std::atomic<int> misses_leave{0}, mutes_leave{0};
  /// So many answers to its primary's word that it is a backup no longer are lost.
  std::atomic<int> mutes_let_go{0};
  /// It loses that word itself once, and calls this first.
  std::atomic<bool> misses_let_go{false};
  std::function<void()> before_missing_let_go = [] {};
  /// It is deaf from when it is told that, before it has heard it, or after.
  std::atomic<bool> deafened_by_leave{false}, deafened_after_leave{false};
  std::atomic<std::uint64_t> asked{0};  ///< by clients that want to open a pool
  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    const auto type = static_cast<std::uint16_t>(type_of(payload));
    if (type_of(payload) == protocol::message_type::pool_open) ++asked;
    if (deaf && type >= protocol::backup_message_first && type <= protocol::backup_message_last)
      return lose(p, "the test loses what agents say");
    if (type == static_cast<std::uint16_t>(protocol::backup_message::backup_joined) && forgets > 0) {
      --forgets;
      return lose(p, "the test loses the news");
    }
    if (type == static_cast<std::uint16_t>(protocol::backup_message::leave_backup) && misses_let_go.exchange(false)) {
      before_missing_let_go();
      return lose(p, "the test loses that it is a backup no longer");
    }
    if (type == static_cast<std::uint16_t>(protocol::backup_message::leave_backup) && mutes_let_go > 0) {
      --mutes_let_go;
      (void)served_store::message(p, payload, out);
      return lose(p, "the test loses what it says to that");
    }
    if (type == static_cast<std::uint16_t>(protocol::backup_message::take_over)) {
      if (deafened_by_leave) deaf = true;
      if (deaf) return lose(p, "the test loses what agents say");
      if (misses_leave > 0) return --misses_leave, lose(p, "the test loses that its primary leaves");
      if (mutes_leave > 0) {
        --mutes_leave;
        (void)served_store::message(p, payload, out);
        if (deafened_after_leave) deaf = true;
        return lose(p, "the test loses what it says to that");
      }
    }
    return served_store::message(p, payload, out);
  }
};

/// Some agents, and options of a pool with two replicas over them.
class members {
 public:
  std::shared_ptr<test_arbiter> arbiter;
  std::vector<std::unique_ptr<member>> all;
  pool_options o;
  std::vector<std::string> zones;       ///< of agents that are started from now on
  std::atomic<duration::rep> ahead{0};  ///< of the agents' clocks, by which leases run out

  members(const std::string& scheme, std::size_t n, bool with_arbiter = true, std::uint32_t tenure_ms = 400)
      : scheme_(scheme), urls_(n) {
    if (with_arbiter) arbiter = std::make_shared<test_arbiter>();
    store_.memory_bytes = 64_MiB;
    store_.region_bytes = 1_MiB;
    store_.pool_tenure_ms = tenure_ms;
    store_.arbiter = arbiter;
    store_.hooks.context = this;
    store_.hooks.now = [](void* of) { return clock::now() + duration(static_cast<members*>(of)->ahead); };
    all.resize(n);
    for (std::size_t i = 0; i < n; ++i) start(i);
    o.agents = urls_;
    o.tenant = pool_tenant::random();
    o.name = "replicated";
    o.replicas = 2;
    o.access_within = o.memory_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::seconds(30);
  }
  /// A new agent with nothing, at the address that the one before had.
  void start(std::size_t i) {
    if (urls_[i].empty()) urls_[i] = scheme_ == "shm" ? folder_.url("shm", static_cast<int>(i)) : "tcp://127.0.0.1:0";
    store_.zone = i < zones.size() ? zones[i] : "";
    all[i] = std::make_unique<member>(urls_[i], store_);
    urls_[i] = all[i]->url();
  }
  void kill(std::size_t i) { all[i].reset(); }
  /// Waits until an agent that is drained has nothing of any pool.
  [[nodiscard]] bool is_left(std::size_t i) {
    return fm::test::await([&] { return all[i]->store().pools_left() == 0; });
  }
  /// What an agent is to the part of that instance.
  [[nodiscard]] bool is(std::size_t agent, std::uint32_t instance, const std::string& role) const {
    return all[agent]->store().survive(instance, 1'000'000).find(": " + role + ",") != std::string::npos;
  }
  [[nodiscard]] bool is_primary(std::size_t agent, std::uint32_t instance) const {
    return is(agent, instance, "primary") || is(agent, instance, "alone");
  }
  /// The instance of the part whose only primary that agent is, paired.
  [[nodiscard]] std::uint32_t part_of(pool& p, std::size_t agent) const {
    for (;;)
      if (const std::uint32_t n = p.alloc_bytes(pattern(10, 1)).instance(); is(agent, n, "primary")) return n;
  }
  /// Each part has a backup.
  static bool is_whole(const pool& p) {
    try {
      const pool_stats s = p.stats();
      return std::all_of(s.agents.begin(), s.agents.end(), [](const pool_agent_stats& a) { return !a.backup.empty(); });
    } catch (const error&) {  // it changes just now
      return false;
    }
  }
  /// The agent that is the backup of a part; as many as there are: none.
  [[nodiscard]] std::size_t backup_of(const pool& p, std::size_t part) const {
    const std::string url = p.stats().agents[part].backup;
    return static_cast<std::size_t>(std::find(urls_.begin(), urls_.end(), url) - urls_.begin());
  }
  /// The agent that is the primary of a part.
  [[nodiscard]] std::size_t primary_of(const pool& p, std::size_t part) const {
    const std::string url = p.stats().agents[part].url;
    return static_cast<std::size_t>(std::find(urls_.begin(), urls_.end(), url) - urls_.begin());
  }

 private:
  const std::string scheme_;
  fm::test::temporary_folder folder_;
  fm::agent::store_options store_;
  std::vector<std::string> urls_;
};

/// Threads with objects of their own, which find in each what they wrote last, and no object that they have freed.
class owners {
 public:
  static constexpr std::size_t threads = 3, each = 200;

  explicit owners(pool& p) : p_(p), objects_(threads * each) {
    for (std::size_t t = 0; t < threads; ++t) threads_.emplace_back([this, t] { use(t); });
  }
  owners(const owners&) = delete;
  owners& operator=(const owners&) = delete;
  ~owners() { stop(); }
  /// Waits until they have used so many objects more, or this build's part of them.
  void pass(std::uint64_t n) const {
    const std::uint64_t until = used_ + fm::test::effort(n);
    CHECK(fm::test::await([&] { return used_ >= until || failed_; }));
  }
  /// The same, but for so long at most: all of them may be waiting for what a test has stopped.
  void pass_within(std::uint64_t n, duration within) const {
    const std::uint64_t until = used_ + n;
    const time_point enough = clock::now() + within;
    (void)fm::test::await([&] { return used_ >= until || failed_ || clock::now() >= enough; });
  }
  void stop() {
    stop_ = true;
    for (auto& t : threads_) t.join();
    threads_.clear();
  }
  /// After stop().
  [[nodiscard]] std::string wrong() {
    for (object& x : objects_) look(x);
    return wrong_;
  }
  [[nodiscard]] std::uint64_t longest_ms() const { return longest_ms_; }

 private:
  struct object {
    pool_address at{}, freed{};
    std::vector<std::byte> bytes{};
    pool_version version{};
  };
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (wrong_.empty()) wrong_ = text;
    failed_ = true;
  }
  void look(object& x) {
    if (!x.at.is_null()) {
      std::vector<std::byte> now(x.bytes.size());
      const errc e = p_.read_into(x.at, now);
      if (e != errc::ok) return note(fmt::format("a read failed: {}", to_string(e)));
      if (now != x.bytes) note("an object has another value than what was written last");
    }
    if (!x.freed.is_null()) {
      std::vector<std::byte> now(16);
      pool_address at = x.freed;
      const errc e = p_.read_into(at, now);
      if (e != errc::not_found) note(fmt::format("an object that was freed: {}", to_string(e)));
    }
  }
  void use(std::size_t t) {
    std::mt19937_64 random(t + 1);
    for (; !stop_ && !failed_; ++used_) {
      object& x = objects_[t + random() % each * threads];
      const time_point begin = clock::now();
      try {
        step(x, random);
      } catch (const error& e) {
        note(e.what());
      }
      const auto ms = static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - begin).count());
      std::uint64_t longest = longest_ms_;
      while (ms > longest && !longest_ms_.compare_exchange_weak(longest, ms)) {
      }
    }
  }
  void step(object& x, std::mt19937_64& random) {
    switch (x.at.is_null() ? 0 : random() % 8) {
      case 0:
        if (!x.at.is_null()) return look(x);
        x.bytes = pattern(16 + random() % 3 * 100, random());
        x.at = p_.alloc_bytes(x.bytes);
        return;
      case 1: {
        p_.free(pool_ptr<char>(x.at));
        x.freed = x.at;
        x.at = {};
        return;
      }
      case 2:
      case 3: {
        const auto next = pattern(x.bytes.size(), random());
        p_.write_bytes(x.at, next);
        x.bytes = next;
        return;
      }
      case 4: {
        const auto next = pattern(x.bytes.size(), random());
        pool_version v{};
        std::vector<std::byte> now(x.bytes.size());
        if (const errc e = p_.read_versioned_into(x.at, now, v); e != errc::ok)
          return note(fmt::format("a versioned read failed: {}", to_string(e)));
        if (const auto w = p_.try_write_bytes_if(x.at, v, next); !w) return note(w.error().what());
        x.bytes = next;
        return;
      }
      case 5: {
        const pool_address before = x.at;
        if (const auto r = p_.try_release(x.at); !r) return note(r.error().what());
        if (!(before == x.at)) x.freed = before;
        return;
      }
      default: look(x);
    }
  }

  pool& p_;
  std::vector<object> objects_;
  std::atomic<bool> stop_{false}, failed_{false};
  std::atomic<std::uint64_t> used_{0}, longest_ms_{0};
  std::mutex mutex_;
  std::string wrong_;
  std::vector<std::thread> threads_;
};

}  // namespace pool_test

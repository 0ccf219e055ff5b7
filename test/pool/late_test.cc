// Changes of a pool that reach its agent late: after their client has given them up, and others have gone on.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "pool/fixture.h"
#include "support/served_store.h"

namespace {

using namespace pool_test;

/// An agent that keeps one change of a kind until it is told to go on with it.
class delaying_agent final : public fm::test::served_store {
 public:
  explicit delaying_agent(const fm::agent::store_options& o) : served_store(o) { serve(); }
  ~delaying_agent() override {
    go_on();
    stop();
  }
  delaying_agent(const delaying_agent&) = delete;
  delaying_agent& operator=(const delaying_agent&) = delete;

  void keep_next(protocol::message_type t) {
    const std::lock_guard lock(mutex_);
    kept_ = t;
    goes_on_ = handled_ = false;
  }
  /// Lets it through, and returns when the store has done with it, with what it answered.
  errc go_on() {
    std::unique_lock lock(mutex_);
    goes_on_ = true;
    changed_.notify_all();
    if (!held_) return errc::ok;
    REQUIRE(changed_.wait_for(lock, std::chrono::minutes(2), [this] { return handled_; }));
    held_ = false;
    return answered_;
  }
  [[nodiscard]] bool has_it() {
    const std::lock_guard lock(mutex_);
    return held_;
  }

  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    bool mine = false;
    {
      std::unique_lock lock(mutex_);
      mine = !goes_on_ && !held_ && type_of(payload) == kept_;
      if (mine) {
        held_ = true;
        changed_.notify_all();
        changed_.wait_for(lock, std::chrono::minutes(2), [this] { return goes_on_; });
      }
    }
    const errc e = served_store::message(p, payload, out);
    if (mine) {
      const std::lock_guard lock(mutex_);
      protocol::answer_head head{};
      if (out.payload.size() >= sizeof head) std::memcpy(&head, out.payload.data(), sizeof head);
      answered_ = e != errc::ok ? e : static_cast<errc>(head.code);
      handled_ = true;
      changed_.notify_all();
    }
    return e;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  protocol::message_type kept_ = protocol::message_type::renew;
  bool goes_on_ = true, held_ = false, handled_ = false;
  errc answered_ = errc::ok;
};

struct two_clients {
  static fm::agent::store_options store() {
    fm::agent::store_options o;
    o.memory_bytes = 16_MiB;
    o.region_bytes = 1_MiB;
    return o;
  }
  pool_options options(bool in_a_hurry) {
    pool_options o;
    o.agents = {in_a_hurry ? agent.url() : "local:"};
    o.in_process = &agent;
    o.tenant = tenant;
    o.compact_above = 0;
    o.access_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::seconds(60);
    if (in_a_hurry) o.access_within = std::chrono::milliseconds(200);
    return o;
  }
  const pool_tenant tenant = pool_tenant::random();
  delaying_agent agent{store()};
  pool patient{options(false)}, hurried{options(true)};
};

}  // namespace

TEST_CASE("a write that was given up is not made after the write of another client") {
  two_clients w;
  auto at = w.patient.alloc(std::uint64_t{1});
  w.agent.keep_next(protocol::message_type::pool_write);
  auto theirs = at;
  CHECK(code_of([&] { w.hurried.write(theirs, std::uint64_t{2}); }) == errc::timed_out);
  REQUIRE(w.agent.has_it());
  w.patient.write(at, std::uint64_t{3});
  CHECK(w.agent.go_on() == errc::timed_out);
  CHECK(w.patient.rpc_read(at) == 3);
  CHECK(w.patient.read(at) == 3);
  check_sound(w.patient);
}

TEST_CASE("an object that somebody gave up freeing or making stays as it is, and none is made") {
  two_clients w;
  auto at = w.patient.alloc(std::uint64_t{1});
  w.agent.keep_next(protocol::message_type::pool_free);
  CHECK(code_of([&] { w.hurried.free(at); }) == errc::timed_out);
  REQUIRE(w.agent.has_it());
  CHECK(w.patient.rpc_read(at) == 1);
  CHECK(w.agent.go_on() == errc::timed_out);
  CHECK(w.patient.rpc_read(at) == 1);
  w.agent.keep_next(protocol::message_type::pool_alloc);
  CHECK(w.hurried.try_alloc_bytes(pattern(8, 1)).error().code() == errc::timed_out);
  REQUIRE(w.agent.has_it());
  CHECK(w.agent.go_on() == errc::timed_out);
  CHECK(w.patient.verify().objects == 1);
  check_sound(w.patient);
}

// What bad luck does to a cycle: connections that break at every one of its messages, agents that hang and agents that die.
#include <farmem/farmem.h>

#include <array>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <mutex>

using namespace fm::literals;
using fm::store::message_type;

namespace {

// An agent in this process behind tcp://, whose messages a test can meddle with.
class meddled_agent final : public fm::fabric::service {
 public:
  meddled_agent()
      : store_(fm::store::store::create({.memory_bytes = 64ull << 20, .region_bytes = 1ull << 20})),
        listener_(fm::fabric::listen("tcp://127.0.0.1:0", {}, *this)) {}
  ~meddled_agent() override {
    let_go();
    listener_.reset();
  }

  [[nodiscard]] const std::string& url() const { return listener_->url(); }
  enum class meddling : std::uint8_t { none, lose_message, lose_answer, hang };
  /// The next message of this type is lost with its connection, or its answer is, or it waits for let_go.
  void meddle(message_type type, meddling how) {
    const std::lock_guard lock(mutex_);
    type_ = type;
    how_ = how;
    met_ = false;
  }
  /// Whether the message came; waits for it.
  bool met() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return met_; });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    how_ = meddling::none;
    changed_.notify_all();
  }
  void die() {
    let_go();
    listener_.reset();
  }

  fm::errc connected(fm::fabric::peer& p) noexcept override { return store_->connected(p); }
  void disconnected(fm::fabric::peer& p) noexcept override { store_->disconnected(p); }
  fm::errc message(fm::fabric::peer& p, std::span<const std::byte> payload, fm::fabric::answer& out) noexcept override {
    fm::store::message_head head{};
    if (payload.size() >= sizeof head) std::memcpy(&head, payload.data(), sizeof head);
    meddling how = meddling::none;
    {
      std::unique_lock lock(mutex_);
      if (static_cast<message_type>(head.type) == type_ && how_ != meddling::none && !met_) {
        met_ = true;
        how = how_;
        changed_.notify_all();
        if (how == meddling::hang)
          changed_.wait_for(lock, std::chrono::seconds(30), [this] { return how_ == meddling::none; });
      }
    }
    if (how == meddling::lose_message) {
      p.close(fm::errc::disconnected, "the test loses a message");
      return fm::errc::disconnected;
    }
    const fm::errc e = store_->message(p, payload, out);
    if (how == meddling::lose_answer) {
      p.close(fm::errc::disconnected, "the test loses an answer");
      return fm::errc::disconnected;
    }
    return e;
  }
  std::byte* memory(fm::fabric::peer& p, const fm::fabric::remote& where, std::uint64_t bytes,
                    fm::fabric::access how) noexcept override {
    return store_->memory(p, where, bytes, how);
  }
  void memory_done(fm::fabric::peer& p, std::uint32_t region) noexcept override { store_->memory_done(p, region); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  message_type type_ = message_type::renew;
  meddling how_ = meddling::none;
  bool met_ = false;
  std::unique_ptr<fm::store::store> store_;
  std::unique_ptr<fm::fabric::listener> listener_;
};
using meddling = meddled_agent::meddling;

struct fault_node {
  std::uint64_t id = 0;
  fm::ref<fault_node> next;
  std::array<std::uint64_t, 4> rest{};
};

fm::heap_options over(const std::vector<std::string>& agents) {
  return {.cache = 1_MiB,
          .agents = agents,
          .segment = 32_KiB,
          .collect = false,
          .access_within = std::chrono::seconds(20),
          .memory_within = std::chrono::seconds(20)};
}

fm::ptr<fault_node> make_list(fm::heap& h, std::uint64_t n) {
  fm::ptr<fault_node> head;
  for (std::uint64_t i = 0; i < n; ++i) head = h.make<fault_node>({.id = i, .next = head});
  return head;
}

std::uint64_t length(const fm::ptr<fault_node>& head) {
  std::uint64_t n = 0;
  for (const fault_node& e : fm::walk(head, &fault_node::next)) n += e.rest[0] == 0;
  return n;
}

}  // namespace

TEST_CASE("a connection that breaks at any message of a cycle costs nothing but time") {
  meddled_agent first, second;
  fm::heap h(over({first.url(), second.url()}));
  const auto kept = make_list(h, 5'000);
  for (const message_type type :
       {message_type::begin_cycle, message_type::add_newer, message_type::trace, message_type::read_marks,
        message_type::release_slots, message_type::end_cycle, message_type::evacuate}) {
    for (const meddling how : {meddling::lose_message, meddling::lose_answer}) {
      CAPTURE(static_cast<int>(type), static_cast<int>(how));
      { const auto dropped = make_list(h, 3'000); }
      REQUIRE(h.evict_all() == fm::errc::ok);
      kept.write()->rest[0] = 0;  // something newer than at home
      make_list(h, 10);
      second.meddle(type, how);
      const auto r = h.collect("meddled");
      INFO(r.text());
      REQUIRE(second.met());
      REQUIRE(r.ok());
      REQUIRE(r.marked == 5'000);
      REQUIRE(r.dead >= 3'000);
      REQUIRE(length(kept) == 5'000);
    }
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto last = h.collect("at the end");
  REQUIRE(last.ok());
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  INFO((v.messages.empty() ? "" : v.messages.front()));
  REQUIRE(v.ok());
  REQUIRE(v.agent_objects == 5'000);
}

TEST_CASE("an agent that hangs ends the cycle with an error, and the next one is clean") {
  for (const message_type type : {message_type::begin_cycle, message_type::trace, message_type::release_slots}) {
    meddled_agent first, second;
    auto o = over({first.url(), second.url()});
    o.access_within = std::chrono::seconds(2);
    fm::heap h(o);
    const auto kept = make_list(h, 3'000);
    { const auto dropped = make_list(h, 3'000); }
    REQUIRE(h.evict_all() == fm::errc::ok);
    second.meddle(type, meddling::hang);
    const auto r = h.collect("hanging");
    INFO(r.text());
    REQUIRE(r.status == fm::errc::timed_out);
    REQUIRE(r.failure.find(second.url()) != std::string::npos);
    REQUIRE(h.stats().collections_failed == 1);
    second.let_go();
    const auto fresh = make_list(h, 500);
    fm::cycle_report next = h.collect("clean");
    INFO(next.text());
    REQUIRE(next.ok());
    REQUIRE(next.marked == 3'500);
    REQUIRE(length(kept) == 3'000);
    REQUIRE(length(fresh) == 500);
    REQUIRE(h.evict_all() == fm::errc::ok);
    REQUIRE(h.collect("once more").ok());
    const auto v = h.verify();
    INFO((v.messages.empty() ? "" : v.messages.front()));
    REQUIRE(v.ok());
    REQUIRE(v.agent_objects == 3'500);
  }
}

TEST_CASE(
    "an agent that does not answer for its evacuation is in the report, and neither the cycle nor the heap suffers") {
  meddled_agent first, second;
  auto o = over({first.url(), second.url()});
  o.access_within = std::chrono::seconds(2);
  o.evacuation.order = fm::evacuation_order::depth_first;
  fm::heap h(o);
  const auto kept = make_list(h, 30'000);
  { const auto dropped = make_list(h, 30'000); }
  REQUIRE(h.evict_all() == fm::errc::ok);
  second.meddle(message_type::evacuate, meddling::hang);
  const auto r = h.collect("hanging", fm::evacuate::all);
  INFO(r.text());
  REQUIRE(r.ok());
  REQUIRE(r.dead == 30'000);
  REQUIRE(r.agents[0].evacuation == fm::errc::ok);
  REQUIRE(r.agents[0].evacuated_objects > 0);
  REQUIRE(r.agents[1].evacuation == fm::errc::timed_out);
  REQUIRE(r.text().find("not waited for") != std::string::npos);
  second.let_go();
  REQUIRE(length(kept) == 30'000);
  const auto next = h.collect("again", fm::evacuate::all);
  INFO(next.text());
  REQUIRE(next.ok());
  REQUIRE(next.agents[1].evacuation == fm::errc::ok);
  REQUIRE(next.agents[1].evacuated_objects > 0);
  REQUIRE(length(kept) == 30'000);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  INFO((v.messages.empty() ? "" : v.messages.front()));
  REQUIRE(v.ok());
}

TEST_CASE("an agent that dies in a cycle ends it, and cycles go on for the agents that are left") {
  meddled_agent first;
  auto second = std::make_unique<meddled_agent>();
  auto o = over({first.url(), second->url()});
  o.reconnect_within = std::chrono::milliseconds(300);
  fm::heap h(o);
  // Objects of the one agent only, so that they can be read afterwards.
  std::vector<fm::ptr<fault_node>> kept, all;
  for (std::uint64_t i = 0; i < 20'000; ++i) all.push_back(h.make<fault_node>({.id = i}));
  const auto agent_of = [](const fm::ptr<fault_node>& p) { return fm::detail::tablet_info_of(p.slot()).agent.load(); };
  for (const auto& p : all)
    if (agent_of(p) == 0 && p->id % 2 == 0) kept.push_back(p);
  all.clear();
  REQUIRE(h.evict_all() == fm::errc::ok);
  second->meddle(message_type::trace, meddling::hang);
  fm::cycle_report r;
  std::thread collecting([&] { r = h.collect("dying"); });
  REQUIRE(second->met());
  second->die();
  collecting.join();
  INFO(r.text());
  REQUIRE_FALSE(r.ok());
  REQUIRE(r.status == fm::errc::agent_lost);
  for (const auto& p : kept) REQUIRE(p->id % 2 == 0);
  const auto next = h.collect("without it");
  INFO(next.text());
  REQUIRE(next.ok());
  REQUIRE(next.agents.size() == 1);
  REQUIRE(next.marked >= kept.size());
  REQUIRE(next.agents[0].objects == kept.size());
  for (const auto& p : kept) REQUIRE(p->id % 2 == 0);
}

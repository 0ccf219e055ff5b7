// What the tests of agents that talk share: several agents in this process behind real transports, an owner that leads them through
// a cycle by hand, and other ends that behave as a test wants.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <memory>

#include "support/temporary_folder.h"
#include "trace_fixture.h"

namespace store_test {

constexpr std::uint32_t tablets_each = 3;

/// Agents with threads, tablets [3i, 3i + 3) on the ith. With scheme "owner" they do not talk.
class talking_agents {
 public:
  struct agent {
    std::unique_ptr<fm::agent::store> s;
    std::unique_ptr<fabric::listener> listener;
    std::unique_ptr<tracing_owner> o;
    tracing_owner::peer_entry entry;
    tracing_owner::trace_reply said;
    std::uint64_t through_owner = 0;  ///< remote references
  };

  talking_agents(
      std::size_t count, const std::string& scheme,
      const std::function<void(store_options&)>& change = [](store_options&) {})
      : talk_(scheme != "owner") {
    for (std::size_t i = 0; i < count; ++i) {
      store_options options = small(64);
      options.hooks.background = true;
      options.name = "agent" + std::to_string(i);
      options.peer_within = std::chrono::seconds(20);  // a busy machine must not look like a lost peer
      change(options);
      agent& a = all.emplace_back();
      a.s = fm::agent::store::create(options);
      if (talk_) {
        a.listener = fabric::listen(sockets_.url(scheme, i), {}, *a.s);
        a.entry.url = a.listener->url();
      }
      a.o = std::make_unique<tracing_owner>(*a.s, 100 + i);
      a.entry.heap_id[0] = 100 + i;
      a.entry.heap_id[1] = ~a.entry.heap_id[0];
      a.entry.tablets = {{static_cast<std::uint32_t>(i) * tablets_each, tablets_each}};
      REQUIRE(a.o->open().ok());
      REQUIRE(a.o->types().ok());
      REQUIRE(a.o->grant(static_cast<std::uint32_t>(i) * tablets_each, tablets_each).ok());
    }
  }
  ~talking_agents() {
    // As an agent's main does: first nobody is served any more, then owners and stores go.
    for (agent& a : all) a.listener.reset();
    for (agent& a : all) a.o.reset();
  }

  static std::size_t home_of(slot_t slot) { return slot / 65536 / tablets_each; }
  void write(const edges& graph) {
    for (const auto& [slot, refs] : graph) all[home_of(slot)].o->node(slot, refs);
    for (agent& a : all) a.o->flush();
  }

  /// Begins a cycle everywhere, and tells of the others as `bend` leaves them.
  void begin(
      std::uint64_t cycle, const std::function<void(std::vector<tracing_owner::peer_entry>&)>& bend = [](auto&) {}) {
    for (agent& a : all) {
      REQUIRE(a.o->begin(cycle).ok());
      a.entry.ticket = a.o->ticket;
      a.through_owner = 0;
    }
    if (!talk_) return;
    for (agent& a : all) {
      std::vector<tracing_owner::peer_entry> others;
      for (agent& b : all)
        if (&a != &b) others.push_back(b.entry);
      bend(others);
      REQUIRE(a.o->tell_peers(others).ok());
    }
  }

  /// One message to everybody; what they give for others is kept for the next. Whether all were idle and nothing came of it.
  bool termination_round() {
    bool quiet = true;
    for (agent& a : all) {
      std::vector<slot_t>& mine = pending_[static_cast<std::size_t>(&a - all.data())];
      const bool sent = !mine.empty();
      const trace_counts before = a.said.counts;
      a.said = a.o->trace(std::exchange(mine, {}));
      a.through_owner += a.said.remote_references.size();
      for (const slot_t g : a.said.remote_references) add(g);
      quiet &= !sent && a.said.answer.idle == 1 && a.said.remote_references.empty() &&
               std::memcmp(&before, &a.said.counts, sizeof before) == 0;
    }
    return quiet;
  }
  void add(slot_t slot) { pending_[home_of(slot)].push_back(slot); }
  /// Marks until two termination rounds in a row were quiet.
  void mark(const std::vector<slot_t>& roots) {
    for (const slot_t r : roots) add(r);
    const time_point give_up = clock::now() + std::chrono::minutes(10);
    for (int quiet = 0; quiet < 2; quiet = termination_round() ? quiet + 1 : 0) REQUIRE(clock::now() < give_up);
  }
  std::set<slot_t> marks() {
    std::set<slot_t> found;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::uint32_t t = 0; t < tablets_each; ++t)
        found.merge(all[i].o->marks(static_cast<std::uint32_t>(i) * tablets_each + t));
    return found;
  }
  void end(std::uint64_t cycle) {
    for (agent& a : all) REQUIRE(a.o->end(cycle).ok());
  }
  [[nodiscard]] trace_counts counts() const {
    trace_counts c{};
    for (const agent& a : all) {
      c.references_sent += a.said.counts.references_sent;
      c.references_received += a.said.counts.references_received;
      c.references_returned += a.said.counts.references_returned;
      c.peers_lost += a.said.counts.peers_lost;
    }
    return c;
  }
  [[nodiscard]] std::uint64_t through_owner() const {
    std::uint64_t n = 0;
    for (const agent& a : all) n += a.through_owner;
    return n;
  }

  std::vector<agent> all;

 private:
  const bool talk_;
  fm::test::temporary_folder sockets_;
  std::map<std::size_t, std::vector<slot_t>> pending_;
};

/// Says that it is an agent, keeps what it is sent, and answers remote references when and as it is told.
class other_agent final : public fabric::service {
 public:
  /// Remote references wait for their answer until this is set; then they get `code`, or break the connection when that
  /// is not answered.
  void answer(errc code) {
    const std::lock_guard lock(mutex_);
    code_ = code;
    answering_ = true;
    changed_.notify_all();
  }
  /// Waits for the nth message with remote references, from 1, as it came.
  std::vector<std::byte> message_number(std::size_t n) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::minutes(10), [&] { return came_.size() >= n; }));
    return came_[n - 1];
  }

  errc connected(fabric::peer&) noexcept override { return errc::ok; }
  void disconnected(fabric::peer&) noexcept override {}
  errc message(fabric::peer&, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    message_head head;
    std::memcpy(&head, payload.data(), sizeof head);
    answer_head a{head.type, 0, 0};
    std::unique_lock lock(mutex_);
    if (static_cast<message_type>(head.type) == message_type::open_peer) {
      opened.assign(payload.begin(), payload.end());
    } else {
      came_.emplace_back(payload.begin(), payload.end());
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::minutes(10), [&] { return answering_; });
      if (code_ == errc::disconnected) return errc::bad_frame;
      a.code = static_cast<std::uint16_t>(code_);
    }
    const auto* b = reinterpret_cast<const std::byte*>(&a);
    out.payload.assign(b, b + sizeof a);
    return errc::ok;
  }
  std::byte* memory(fabric::peer&, const fabric::remote&, std::uint64_t, fabric::access) noexcept override {
    return nullptr;
  }
  void memory_done(fabric::peer&, std::uint32_t) noexcept override {}

  std::vector<std::byte> opened;  ///< the message by which the session was opened; after the first references

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> came_;
  bool answering_ = false;
  errc code_ = errc::ok;
};

}  // namespace store_test

// What the tests of tracing share: an owner that writes a graph of objects, leads a cycle by hand, and a simple tracer of
// its own to compare with.
#pragma once

#include <algorithm>
#include <set>

#include "fixture.h"

namespace store_test {

/// Objects and what they refer to, as the owner knows them.
using edges = std::map<slot_t, std::vector<slot_t>>;

/// The objects reachable from the roots, by the book.
inline std::set<slot_t> reachable(const edges& graph, const std::vector<slot_t>& roots) {
  std::set<slot_t> seen;
  std::vector<slot_t> todo = roots;
  while (!todo.empty()) {
    const slot_t s = todo.back();
    todo.pop_back();
    if (s == 0 || !seen.insert(s).second) continue;
    if (const auto at = graph.find(s); at != graph.end()) todo.insert(todo.end(), at->second.begin(), at->second.end());
  }
  return seen;
}

class tracing_owner : public owner {
 public:
  explicit tracing_owner(fm::agent::store& s, std::uint64_t id = 1) : owner(s, id), s_(s) {}

  // ---- writing a graph ----

  /// One reference: an object of one word; otherwise an array of references. Written with the batch that flush() ends.
  void node(slot_t slot, const std::vector<slot_t>& refs) {
    const std::uint64_t bytes = 16 + refs.size() * 8;
    if (batch_.bytes.size() + bytes > 60_KiB) flush();
    if (refs.size() == 1) {
      batch_.object(type_word, slot, 1, refs[0]);
      return;
    }
    batch_.begin(type_refs, slot);
    const std::uint64_t length = refs.size();
    batch_.put(&length, 8);
    batch_.put(refs.data(), refs.size() * 8);
  }
  void flush() {
    if (batch_.count == 0) return;
    if (region_.generation == 0 || at_ + batch_.bytes.size() > region_.bytes) next_region();
    REQUIRE(append(batch_, region_, at_).ok());
    at_ += batch_.bytes.size();
    batch_ = {};
  }
  void next_region() {
    if (region_.generation != 0) REQUIRE(seal(region_).ok());
    region_ = open_region();
    at_ = 0;
  }
  void write(const edges& graph) {
    for (const auto& [slot, refs] : graph) node(slot, refs);
    flush();
  }
  /// slot first -> first + 1 -> ... -> first + count - 1.
  void list(slot_t first, std::uint64_t count) {
    for (slot_t s = first; s < first + count; ++s) node(s, {s + 1 < first + count ? s + 1 : 0});
    flush();
  }

  // ---- leading a cycle ----

  reply begin(std::uint64_t cycle) {
    reply r = send(message_type::begin_cycle, cycle_name{cycle});
    if (r.ok()) {
      cycle_ = cycle;
      number_ = 0;
      counted_ = false;
      ticket = r.body.empty() ? begin_cycle_answer{} : r.as<begin_cycle_answer>();
    }
    return r;
  }
  /// Another agent, as a message tells of it.
  struct peer_entry {
    std::string url;
    std::uint64_t heap_id[2] = {0, 0};
    begin_cycle_answer ticket{};
    std::vector<tablet_range> tablets;
  };
  [[nodiscard]] static std::vector<std::byte> peers_message(std::uint64_t cycle, const std::vector<peer_entry>& all) {
    std::vector<std::byte> m;
    add(m, peers_body{cycle, static_cast<std::uint32_t>(all.size()), 0});
    for (const peer_entry& p : all) {
      add(m, peer_record{{p.heap_id[0], p.heap_id[1]},
                         {p.ticket.ticket[0], p.ticket.ticket[1]},
                         static_cast<std::uint32_t>(p.tablets.size()),
                         static_cast<std::uint32_t>(p.url.size())});
      for (const tablet_range& t : p.tablets) add(m, t);
      for (const char c : p.url) add(m, c);
      while (m.size() % 8 != 0) m.push_back(std::byte{0});
    }
    return m;
  }
  reply tell_peers(const std::vector<peer_entry>& all) {
    const auto m = peers_message(cycle_, all);
    reply r = send(message_type::trace_peers, m.data(), m.size());
    if (r.ok()) counted_ = true;
    return r;
  }
  /// Tells that these slots are dirty here.
  reply dirty(const std::set<slot_t>& slots) { return send_pages(message_type::add_dirty, slots, dirty_body{}); }
  struct trace_reply {
    reply raw;
    trace_answer answer;
    std::vector<slot_t> remote_references;
    trace_counts counts{};
  };
  trace_reply trace_as(std::uint32_t number, const std::vector<slot_t>& slots, std::uint32_t references_max = 1 << 16) {
    std::vector<std::byte> m;
    add(m, trace_body{cycle_, number, static_cast<std::uint32_t>(slots.size()), references_max, 0});
    for (const slot_t s : slots) add(m, s);
    trace_reply r{send(message_type::trace, m.data(), m.size()), {}, {}};
    if (!r.raw.ok()) return r;
    r.answer = r.raw.as<trace_answer>();
    std::size_t at = sizeof r.answer;
    if (counted_) {
      r.counts = r.raw.as<trace_counts>(at);
      at += sizeof r.counts;
    }
    REQUIRE(r.raw.body.size() == at + r.answer.remote_references * 8);
    r.remote_references.resize(r.answer.remote_references);
    if (!r.remote_references.empty())
      std::memcpy(r.remote_references.data(), r.raw.body.data() + at, r.remote_references.size() * 8);
    return r;
  }
  /// The next trace message of the cycle; it must be accepted.
  trace_reply trace(const std::vector<slot_t>& slots = {}, std::uint32_t references_max = 1 << 16) {
    trace_reply r = trace_as(number_ + 1, slots, references_max);
    REQUIRE(r.raw.ok());
    ++number_;
    return r;
  }
  /// Traces from these roots until the agent is idle, with the store's own threads or without; returns the references
  /// that the owner gets.
  std::set<slot_t> trace_all(const std::vector<slot_t>& roots) {
    const time_point give_up = clock::now() + std::chrono::minutes(10);
    trace_reply r = trace(roots);
    std::set<slot_t> remote_references(r.remote_references.begin(), r.remote_references.end());
    while (r.answer.idle == 0) {
      REQUIRE(clock::now() < give_up);
      s_.maintain();
      r = trace();
      remote_references.insert(r.remote_references.begin(), r.remote_references.end());
    }
    return remote_references;
  }
  [[nodiscard]] std::uint32_t number() const { return number_; }

  bool marked(slot_t slot) { return marks_of({slot})[0]; }
  std::vector<bool> marks_of(const std::vector<slot_t>& slots) {
    std::map<std::uint32_t, std::set<slot_t>> tablets;
    std::vector<bool> all;
    for (const slot_t s : slots) {
      const auto tablet = static_cast<std::uint32_t>(s / 65536);
      if (!tablets.contains(tablet)) tablets[tablet] = marks(tablet);
      all.push_back(tablets[tablet].contains(s));
    }
    return all;
  }
  /// The marked slots of a tablet, by the bitmap.
  std::set<slot_t> marks(std::uint32_t tablet) {
    const reply r = send(message_type::read_marks, read_marks_body{cycle_, tablet, 1});
    REQUIRE(r.ok());
    REQUIRE(r.body.size() == marks_bytes);
    std::set<slot_t> all;
    for (slot_t i = 0; i < 65536; ++i)
      if ((std::to_integer<unsigned>(r.body[i / 8]) >> (i % 8) & 1) != 0) all.insert(slot_t{tablet} * 65536 + i);
    return all;
  }
  reply release(const std::set<slot_t>& slots) {
    return send_pages(message_type::release_slots, slots, release_body{});
  }
  reply end(std::uint64_t cycle) { return send(message_type::end_cycle, cycle_name{cycle}); }

  begin_cycle_answer ticket{};  ///< of the cycle that was begun last

  template <class T>
  static void add(std::vector<std::byte>& to, const T& value) {
    const auto* b = reinterpret_cast<const std::byte*>(&value);
    to.insert(to.end(), b, b + sizeof value);
  }

 private:
  template <class Body>
  reply send_pages(message_type type, const std::set<slot_t>& slots, Body body) {
    std::map<slot_t, slot_bits> pages;
    for (const slot_t s : slots) {
      slot_bits& p = pages[s / 512 * 512];
      p.first_slot = s / 512 * 512;
      p.bits[s % 512 / 64] |= std::uint64_t{1} << (s % 64);
    }
    body.cycle = cycle_;
    body.count = static_cast<std::uint32_t>(pages.size());
    std::vector<std::byte> m;
    add(m, body);
    for (const auto& [first, p] : pages) add(m, p);
    return send(type, m.data(), m.size());
  }

  fm::agent::store& s_;
  batch_builder batch_;
  region_answer region_{};
  std::uint64_t at_ = 0;
  std::uint64_t cycle_ = 0;
  std::uint32_t number_ = 0;
  bool counted_ = false;  ///< it was told of peers, so its answers have counts
};

}  // namespace store_test

// What the store's tests share: a peer without a transport, an owner that speaks the store protocol to it by hand, and
// a clock that moves only when it is told to.
#pragma once

#include "agent/service/service.h"
#include "protocol/heap_messages.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace store_test {

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using detail::home_address;
using detail::slot_t;
using detail::word_t;

class fake_peer final : public fabric::peer {
 public:
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  bool notify(std::span<const std::byte> payload) noexcept override {
    std::lock_guard lock(mutex_);
    if (!accepting_) return false;
    try {
      notices_.emplace_back(payload.begin(), payload.end());
    } catch (const std::bad_alloc&) {
      return false;  // as a full queue
    }
    return true;
  }
  void close(errc why, std::string_view) noexcept override {
    std::lock_guard lock(mutex_);
    closed_ = why;
  }
  void accept(bool yes) {
    std::lock_guard lock(mutex_);
    accepting_ = yes;
  }
  errc closed() {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  /// The regions named by retirement notices since the last call.
  std::vector<region_name> retirements() { return notices_of<region_name>(message_type::retire_region); }
  /// The cycles named by notices of tracing since the last call.
  std::vector<cycle_name> traced() { return notices_of<cycle_name>(message_type::traced); }

 private:
  /// Takes out the notices of one type; every notice is of one of the two types that a store sends.
  template <class T>
  std::vector<T> notices_of(message_type wanted) {
    std::lock_guard lock(mutex_);
    std::vector<T> all;
    std::deque<std::vector<std::byte>> others;
    for (auto& n : notices_) {
      message_head head;
      REQUIRE(n.size() == sizeof head + 8);
      std::memcpy(&head, n.data(), sizeof head);
      const auto type = static_cast<message_type>(head.type);
      REQUIRE((type == message_type::retire_region || type == message_type::traced));
      if (type != wanted) {
        others.push_back(std::move(n));
        continue;
      }
      T t;
      static_assert(sizeof t == 8);
      std::memcpy(&t, n.data() + sizeof head, sizeof t);
      all.push_back(t);
    }
    notices_ = std::move(others);
    return all;
  }

  std::string name_ = "fake";
  std::mutex mutex_;
  std::deque<std::vector<std::byte>> notices_;
  bool accepting_ = true;
  errc closed_ = errc::ok;
};

/// An answer taken apart.
struct reply {
  errc returned = errc::ok;  ///< what service::message returned
  errc code = errc::ok;      ///< of the answer
  std::vector<std::byte> body;
  std::shared_ptr<os::descriptor> memory;  ///< that came along
  int fd = -1;                             ///< the same
  template <class T>
  [[nodiscard]] T as(std::size_t at = 0) const {
    REQUIRE(body.size() >= at + sizeof(T));
    T t;
    std::memcpy(&t, body.data() + at, sizeof t);
    return t;
  }
  [[nodiscard]] std::string text() const { return {reinterpret_cast<const char*>(body.data()), body.size()}; }
  [[nodiscard]] bool ok() const { return returned == errc::ok && code == errc::ok; }
};

/// A batch as an owner builds it.
struct batch_builder {
  std::vector<std::byte> bytes = std::vector<std::byte>(sizeof(batch_header));
  std::uint32_t count = 0;
  std::map<slot_t, std::uint32_t> offsets;  ///< in the batch

  void put(const void* p, std::size_t n) {
    const auto* b = static_cast<const std::byte*>(p);
    bytes.insert(bytes.end(), b, b + n);
  }
  void begin(std::uint32_t type, slot_t slot) {
    const std::uint64_t h = detail::header::pack(type, slot);
    offsets[slot] = static_cast<std::uint32_t>(bytes.size());
    put(&h, 8);
    ++count;
  }
  /// An object whose payload words are all `fill`.
  batch_builder& object(std::uint32_t type, slot_t slot, std::size_t payload_words, std::uint64_t fill = 7) {
    begin(type, slot);
    for (std::size_t i = 0; i < payload_words; ++i) put(&fill, 8);
    return *this;
  }
  batch_builder& array(std::uint32_t type, slot_t slot, std::uint64_t length, std::size_t payload_words) {
    begin(type, slot);
    put(&length, 8);
    const std::uint64_t fill = 9;
    for (std::size_t i = 0; i < payload_words; ++i) put(&fill, 8);
    return *this;
  }
  index_body finish(std::uint64_t incarnation, std::uint64_t seq, const region_answer& r, std::uint64_t offset) {
    batch_header h{batch_magic, 0, seq, static_cast<std::uint32_t>(bytes.size()), count};
    std::memcpy(bytes.data(), &h, sizeof h);
    h.crc = detail::crc32c(bytes.data(), bytes.size());
    std::memcpy(bytes.data(), &h, sizeof h);
    return {incarnation, seq, r.region, r.generation, offset, h.length, h.crc, h.count, 0};
  }
};

constexpr std::uint32_t type_word = 1;   ///< object of 8 bytes, a reference
constexpr std::uint32_t type_line = 2;   ///< object of 64 bytes
constexpr std::uint32_t type_bytes = 3;  ///< array of 1-byte elements
constexpr std::uint32_t type_refs = 4;   ///< array of references

/// Builds a register_types message body.
struct type_list {
  std::vector<std::byte> bytes = std::vector<std::byte>(sizeof(register_types_body));
  std::uint32_t count = 0;
  type_list& add(type_record t, std::vector<std::uint32_t> refs, const std::string& name) {
    t.ref_count = static_cast<std::uint32_t>(refs.size());
    t.name_bytes = static_cast<std::uint32_t>(name.size());
    put(&t, sizeof t);
    put(refs.data(), refs.size() * 4);
    put(name.data(), name.size());
    while (bytes.size() % 8 != 0) bytes.push_back(std::byte{0});
    const register_types_body head{++count, 0};
    std::memcpy(bytes.data(), &head, sizeof head);
    return *this;
  }
  void put(const void* p, std::size_t n) {
    const auto* b = static_cast<const std::byte*>(p);
    if (n) bytes.insert(bytes.end(), b, b + n);
  }
};

class owner {
 public:
  explicit owner(fm::agent::store& s, std::uint64_t id = 1) : s_(s), id_(id) { connect(); }
  owner(const owner&) = delete;
  owner& operator=(const owner&) = delete;
  ~owner() { disconnect(); }

  void connect() {
    peer = std::make_unique<fake_peer>();
    REQUIRE(s_.connected(*peer) == errc::ok);
  }
  void disconnect() {
    if (peer) s_.disconnected(*peer);
    peer.reset();
  }

  reply send(message_type type, const void* body = nullptr, std::size_t bytes = 0) {
    std::vector<std::byte> m(sizeof(message_head) + bytes);
    const message_head head{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(bytes)};
    std::memcpy(m.data(), &head, sizeof head);
    if (bytes) std::memcpy(m.data() + sizeof head, body, bytes);
    return send_raw(m);
  }
  template <class T>
  reply send(message_type type, const T& body) {
    return send(type, &body, sizeof body);
  }
  reply send_raw(std::span<const std::byte> m) {
    fabric::answer a;
    reply r;
    r.returned = s_.message(*peer, m, a);
    if (r.returned != errc::ok) return r;
    answer_head head;
    REQUIRE(a.payload.size() >= sizeof head);
    std::memcpy(&head, a.payload.data(), sizeof head);
    REQUIRE(head.body_bytes == a.payload.size() - sizeof head);
    r.code = static_cast<errc>(head.code);
    r.body.assign(a.payload.begin() + sizeof head, a.payload.end());
    r.memory = std::make_shared<os::descriptor>(std::move(a.memory));
    r.fd = r.memory->get();
    return r;
  }

  [[nodiscard]] open_heap_body open_body(std::uint64_t quota, bool resume, std::uint32_t lease_ms) const {
    open_heap_body b{protocol_major, protocol_minor, 0, {id_, ~id_}, incarnation, quota, lease_ms, resume, {}};
    std::snprintf(b.name, sizeof b.name, "heap-%llu", static_cast<unsigned long long>(id_));
    return b;
  }
  reply open(std::uint64_t quota = 0, bool resume = false, std::uint32_t lease_ms = 0) {
    return send(message_type::open_heap, open_body(quota, resume, lease_ms));
  }
  /// Opens with the four types of the tests and `tablets` tablets.
  void open_ready(std::uint64_t quota = 0, std::uint32_t tablets = 1) {
    REQUIRE(open(quota).ok());
    REQUIRE(types().ok());
    REQUIRE(grant(0, tablets).ok());
  }
  reply types() {
    type_list t;
    t.add({type_word, 0, 11, 8}, {0}, "word").add({type_line, 0, 12, 64}, {}, "line");
    t.add({type_bytes, 1, 13, 1}, {}, "bytes").add({type_refs, 1, 14, 8}, {0}, "refs");
    return send(message_type::register_types, t.bytes.data(), t.bytes.size());
  }
  reply grant(std::uint32_t first, std::uint32_t count) {
    return send(message_type::grant_tablets, grant_tablets_body{first, count});
  }
  region_answer open_region() {
    const reply r = send(message_type::open_region);
    REQUIRE(r.ok());
    REQUIRE(r.fd >= 0);
    return r.as<region_answer>();
  }
  reply seal(const region_answer& r) { return send(message_type::seal_region, region_name{r.region, r.generation}); }
  reply info(std::uint32_t region, std::uint32_t generation = 0) {
    return send(message_type::region_info, region_name{region, generation});
  }
  reply agree(const region_name& r) { return send(message_type::retired_region, r); }

  bool write(const region_answer& r, std::uint64_t offset, std::span<const std::byte> bytes) {
    std::byte* to = s_.memory(*peer, {r.region, r.generation, offset}, bytes.size(), fabric::access::write);
    if (to == nullptr) return false;
    std::memcpy(to, bytes.data(), bytes.size());
    s_.memory_done(*peer, r.region);
    return true;
  }
  /// Writes the batch at `offset` and returns the answer to its index message. Takes the next number.
  reply append(batch_builder& b, const region_answer& r, std::uint64_t offset) {
    const index_body m = b.finish(incarnation, seq, r, offset);
    REQUIRE(write(r, offset, b.bytes));
    const reply a = send(message_type::index, m);
    if (a.ok()) {
      REQUIRE(a.as<index_answer>().applied_seq == seq);
      ++seq;
    }
    return a;
  }
  reply fetch(slot_t slot, bool page = false, std::uint32_t max = 1 << 16) {
    return send(message_type::fetch_slot, fetch_slot_body{slot, page, max});
  }
  word_t entry(slot_t slot) { return fetch(slot).as<fetch_slot_answer>().entry; }
  /// The first payload word of a slot's home copy.
  std::uint64_t value(slot_t slot) { return fetch(slot).as<std::uint64_t>(sizeof(fetch_slot_answer) + 8); }
  /// Audits; every contradiction fails the test with its text.
  audit_answer audit() {
    const reply r = send(message_type::audit);
    REQUIRE(r.ok());
    const auto a = r.as<audit_answer>();
    INFO(r.text().substr(sizeof a));
    CHECK(a.faults == 0);
    return a;
  }

  std::unique_ptr<fake_peer> peer;
  std::uint64_t incarnation = 77;
  std::uint64_t seq = 1;

 private:
  fm::agent::store& s_;
  std::uint64_t id_;
};

/// Time that stands still until it is moved.
struct manual_clock {
  std::atomic<std::int64_t> ns{1'000'000'000};
  static time_point read(void* self) {
    return time_point(std::chrono::nanoseconds(static_cast<manual_clock*>(self)->ns.load()));
  }
  void advance(duration d) { ns += std::chrono::duration_cast<std::chrono::nanoseconds>(d).count(); }
};

/// A small store whose background work is done by the test.
inline store_options small(std::uint64_t regions = 16) {
  store_options o;
  o.region_bytes = 64_KiB;
  o.memory_bytes = regions * 64_KiB;
  o.hooks.background = false;
  return o;
}

inline void settle(fm::agent::store& s) {
  for (int i = 0; s.maintain(); ++i) REQUIRE(i < 100000);
}

// ---- regions that get sparse ----

constexpr std::uint64_t per_region = 800;  ///< objects of 72 bytes that one batch puts into a region of 64 KiB

/// Fills a region with objects slot first, first + 1, ... and seals it.
inline region_answer fill(owner& o, slot_t first, std::uint64_t value) {
  const region_answer r = o.open_region();
  batch_builder b;
  for (slot_t i = 0; i < per_region; ++i) b.object(type_line, first + i, 8, value);
  REQUIRE(o.append(b, r, 0).ok());
  REQUIRE(o.seal(r).ok());
  return r;
}

/// Writes every object of [first, first + per_region) again, as a small one, except each `keep`th.
inline void supersede(owner& o, const region_answer& to, std::uint64_t& at, slot_t first, slot_t keep,
                      std::uint64_t value) {
  batch_builder b;
  for (slot_t i = 0; i < per_region; ++i)
    if (i % keep != 0) b.object(type_word, first + i, 1, value);
  REQUIRE(o.append(b, to, at).ok());
  at += b.bytes.size();
}

}  // namespace store_test

// Agents that talk to each other: the messages, what is checked of them, and when an agent is idle.
#include "peers_fixture.h"

using namespace store_test;

namespace {

/// Two agents of which the second is what a test wants, and one object on the first that refers to 100 slots of the other.
struct half_pair {
  std::shared_ptr<other_agent> other = std::make_shared<other_agent>();
  std::unique_ptr<fabric::listener> listener;
  std::unique_ptr<fm::agent::store> s;
  std::unique_ptr<tracing_owner> o;
  std::vector<slot_t> refs;

  explicit half_pair(const std::function<void(store_options&)>& change = [](store_options&) {}) {
    store_options options = small();
    options.hooks.background = true;
    options.name = "half";
    options.peer_within = std::chrono::seconds(20);
    change(options);
    listener = fabric::listen("tcp://127.0.0.1:0", {}, *other);
    s = fm::agent::store::create(options);
    o = std::make_unique<tracing_owner>(*s);
    o->open_ready();
    for (slot_t i = 0; i < 100; ++i) refs.push_back(65536 + 7 * i);
    o->write({{1, refs}, {2, {65536 + 7}}});
    REQUIRE(o->begin(1).ok());
  }
  ~half_pair() {
    other->answer(errc::ok);
    listener.reset();
    o.reset();
  }
  [[nodiscard]] tracing_owner::peer_entry entry() const { return entry_at(listener->url()); }
  [[nodiscard]] static tracing_owner::peer_entry entry_at(const std::string& url) {
    return {url, {0x1111, 0x2222}, {{0x3333, 0x4444}}, {{1, 1}}};
  }
  /// Traces until `done`.
  template <class Done>
  tracing_owner::trace_reply until(Done done, std::vector<slot_t>& remote_references) {
    const time_point give_up = clock::now() + std::chrono::minutes(10);
    for (;;) {
      auto r = o->trace();
      remote_references.insert(remote_references.end(), r.remote_references.begin(), r.remote_references.end());
      if (done(r)) return r;
      REQUIRE(clock::now() < give_up);
      std::this_thread::yield();
    }
  }
};

std::set<slot_t> set_of(const std::vector<slot_t>& v) { return {v.begin(), v.end()}; }

/// A session of another agent, without a transport.
class peer_session {
 public:
  explicit peer_session(fm::agent::store& s) : s_(s) { REQUIRE(s_.connected(peer_) == errc::ok); }
  peer_session(const peer_session&) = delete;
  peer_session& operator=(const peer_session&) = delete;
  ~peer_session() { s_.disconnected(peer_); }

  reply send(message_type type, const std::vector<std::byte>& body) {
    std::vector<std::byte> m;
    tracing_owner::add(m, message_head{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(body.size())});
    m.insert(m.end(), body.begin(), body.end());
    fabric::answer a;
    reply r;
    r.returned = s_.message(peer_, m, a);
    if (r.returned != errc::ok) return r;
    answer_head head;
    REQUIRE(a.payload.size() >= sizeof head);
    std::memcpy(&head, a.payload.data(), sizeof head);
    r.code = static_cast<errc>(head.code);
    return r;
  }
  reply open(std::uint16_t major = protocol_major, std::uint32_t zero = 0) {
    std::vector<std::byte> m;
    tracing_owner::add(m, open_peer_body{major, protocol_minor, zero, "other"});
    return send(message_type::open_peer, m);
  }
  reply remote_references(const remote_references_body& head, const std::vector<slot_t>& slots) {
    std::vector<std::byte> m;
    tracing_owner::add(m, head);
    for (const slot_t s : slots) tracing_owner::add(m, s);
    return send(message_type::remote_references, m);
  }

 private:
  fm::agent::store& s_;
  fake_peer peer_;
};

}  // namespace

TEST_CASE("remote references go to the agent that has their tablet, and an agent is idle when they are acknowledged",
          "[store][peers]") {
  half_pair x;
  REQUIRE(x.o->tell_peers({x.entry()}).ok());
  std::vector<slot_t> remote_references;
  x.o->trace({1});
  const std::vector<std::byte> message = x.other->message_number(1);
  auto r =
      x.until([](const auto& a) { return a.counts.references_sent == 100 && a.answer.queued == 0; }, remote_references);
  for (int i = 0; i < 20; ++i) {
    CHECK(r.answer.idle == 0);  // the other one has not answered
    r = x.o->trace();
  }
  x.other->answer(errc::ok);
  r = x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
  CHECK(remote_references.empty());
  CHECK(r.counts.references_sent == 100);
  CHECK(r.counts.references_returned == 0);
  CHECK(r.counts.references_received == 0);
  CHECK(r.counts.peers_lost == 0);
  // Each of them was sent once: the second object refers to one that was sent already.
  x.o->trace({2});
  r = x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
  CHECK(r.counts.references_sent == 100);
  CHECK(remote_references.empty());
}

TEST_CASE("what agents say to each other, byte by byte", "[store][peers]") {
  half_pair x;
  REQUIRE(x.o->tell_peers({x.entry()}).ok());
  x.o->trace({2});
  const auto bytes_of = [](std::initializer_list<unsigned> b) {
    std::vector<std::byte> v;
    for (const unsigned n : b) v.push_back(static_cast<std::byte>(n));
    return v;
  };
  CHECK(x.other->message_number(1) == bytes_of({27,   0,    0, 0, 56, 0, 0, 0,     // remote references, of 56 bytes
                                                0x11, 0x11, 0, 0, 0,  0, 0, 0,     // the heap
                                                0x22, 0x22, 0, 0, 0,  0, 0, 0,     //
                                                0x33, 0x33, 0, 0, 0,  0, 0, 0,     // the ticket
                                                0x44, 0x44, 0, 0, 0,  0, 0, 0,     //
                                                1,    0,    0, 0, 0,  0, 0, 0,     // the cycle
                                                1,    0,    0, 0, 0,  0, 0, 0,     // one slot
                                                7,    0,    1, 0, 0,  0, 0, 0}));  // 65543
  std::vector<std::byte> hello = bytes_of({26, 0, 0, 0, 56, 0, 0, 0, 2, 0, 7, 0, 0, 0, 0, 0, 'h', 'a', 'l', 'f'});
  hello.resize(8 + 56);
  CHECK(x.other->opened == hello);
  CHECK(tracing_owner::peers_message(3, {{"tcp://a:1", {1, 2}, {{3, 4}}, {{5, 6}}}}) ==
        bytes_of(
            {3,   0,   0,   0,   0,   0,   0,   0,   1,   0, 0, 0, 0, 0, 0, 0,  // the cycle, one peer
             1,   0,   0,   0,   0,   0,   0,   0,   2,   0, 0, 0, 0, 0, 0, 0,  // its heap
             3,   0,   0,   0,   0,   0,   0,   0,   4,   0, 0, 0, 0, 0, 0, 0,  // its ticket
             1,   0,   0,   0,   9,   0,   0,   0,   5,   0, 0, 0, 6, 0, 0, 0,  // one range of tablets, nine characters
             't', 'c', 'p', ':', '/', '/', 'a', ':', '1', 0, 0, 0, 0, 0, 0, 0}));
}

TEST_CASE("remote references for an agent that cannot be reached go to the owner, and so does all that follows",
          "[store][peers]") {
  SECTION("nobody is there") {
    half_pair x;
    x.listener.reset();
    const std::string url = GENERATE("tcp://127.0.0.1:1", "shm:///nowhere/at/all");
    REQUIRE(x.o->tell_peers({half_pair::entry_at(url)}).ok());
    std::vector<slot_t> remote_references;
    x.o->trace({1});
    const auto r = x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
    CHECK(set_of(remote_references) == set_of(x.refs));
    CHECK(r.counts.peers_lost == 1);
    CHECK(r.counts.references_returned >= 1);
    CHECK(r.counts.references_returned == r.counts.references_sent);
  }
  SECTION("the settings do not allow to connect there") {
    half_pair x([](store_options& o) { o.peer_schemes = {"shm"}; });
    const std::string url = GENERATE(as<std::string>{}, "", "tcp://10.1.2.3:4", "verbs://127.0.0.1:4",
                                     "local:", "tcp://localhost.example.com:1", "what:ever");
    REQUIRE(x.o->tell_peers({url.empty() ? x.entry() : half_pair::entry_at(url)}).ok());
    std::vector<slot_t> remote_references;
    x.o->trace({1});
    const auto r = x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
    CHECK(set_of(remote_references) == set_of(x.refs));
    CHECK(r.counts.peers_lost == 1);
    CHECK(x.s->statistics().find(R"("peers":{"sessions":0,"messages_sent":0,)") != std::string::npos);
  }
  SECTION("an address beyond this host") {
    half_pair x;
    REQUIRE(x.o->tell_peers({half_pair::entry_at("tcp://192.0.2.1:7070")}).ok());
    std::vector<slot_t> remote_references;
    x.o->trace({1});
    x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
    CHECK(set_of(remote_references) == set_of(x.refs));
  }
  SECTION("it refuses them") {
    half_pair x;
    x.other->answer(GENERATE(errc::stale, errc::access_denied, errc::not_found, errc::disconnected));
    REQUIRE(x.o->tell_peers({x.entry()}).ok());
    std::vector<slot_t> remote_references;
    x.o->trace({1});
    auto r = x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
    CHECK(set_of(remote_references) == set_of(x.refs));
    CHECK(r.counts.peers_lost == 1);
    // In the next cycle it is tried again.
    REQUIRE(x.o->end(1).ok());
    REQUIRE(x.o->begin(2).ok());
    REQUIRE(x.o->tell_peers({x.entry()}).ok());
    x.other->answer(errc::ok);
    r = x.o->trace({1});
    CHECK(r.counts.references_sent == 0);
    CHECK(r.counts.peers_lost == 0);
    remote_references.clear();
    r = x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
    CHECK(r.counts.references_sent >= 1);
  }
  SECTION("it says nothing") {
    half_pair x([](store_options& o) { o.peer_within = std::chrono::milliseconds(50); });
    REQUIRE(x.o->tell_peers({x.entry()}).ok());
    std::vector<slot_t> remote_references;
    x.o->trace({1});
    const auto r = x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
    CHECK(set_of(remote_references) == set_of(x.refs));
    CHECK(r.counts.peers_lost == 1);
    CHECK(r.counts.references_returned == r.counts.references_sent);
    x.other->answer(errc::ok);  // too late, which changes nothing
    const auto later = x.o->trace({2});
    CHECK(later.counts.peers_lost == 1);
    x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
    CHECK(set_of(remote_references) == set_of(x.refs));
  }
  SECTION("and it may end in the middle of it") {
    half_pair x;
    REQUIRE(x.o->tell_peers({x.entry()}).ok());
    x.o->trace({1});
    x.other->message_number(1);
    SECTION("with the cycle") { REQUIRE(x.o->end(1).ok()); }
    SECTION("with the heap") { REQUIRE(x.o->send(message_type::close_heap).ok()); }
    SECTION("with the next cycle") {
      REQUIRE(x.o->begin(2).ok());
      REQUIRE(x.o->tell_peers({}).ok());
      CHECK(x.o->trace_all({1}) == set_of(x.refs));
    }
  }
}

TEST_CASE("tracing waits while another agent does not answer, and its outbox is full", "[store][peers]") {
  half_pair x([](store_options& o) { o.trace_references_max = 64; });
  std::vector<slot_t> wide;
  for (slot_t i = 1; i <= 5000; ++i) wide.push_back(65536 + i);
  wide.push_back(20);
  x.o->write({{10, wide}, {20, {0}}});
  REQUIRE(x.o->tell_peers({x.entry()}).ok());
  x.o->trace({10});
  x.other->message_number(1);
  std::vector<slot_t> remote_references;
  // One message under way, one outbox, and what a worker has in its hands.
  x.until([](const auto& a) { return a.counts.references_sent >= 128; }, remote_references);
  CHECK(x.o->trace().counts.references_sent <= 64 + 8192);
  CHECK_FALSE(x.o->marked(20));  // behind the references that found no room
  CHECK(x.o->trace().answer.idle == 0);
  x.other->answer(errc::ok);
  const auto r = x.until([](const auto& a) { return a.answer.idle == 1; }, remote_references);
  CHECK(remote_references.empty());
  CHECK(r.counts.references_sent == 5000);
  CHECK(x.o->marked(20));
}

TEST_CASE("what an agent takes from another one: the right ticket, cycle and slots", "[store][peers]") {
  store_options options = small();
  auto s = fm::agent::store::create(options);
  tracing_owner o(*s, 5);
  o.open_ready();
  o.list(1, 3000);
  o.list(4000, 10);
  peer_session p(*s);
  remote_references_body good{{5, ~std::uint64_t{5}}, {0, 0}, 1, 1, 0};
  CHECK(p.remote_references(good, {1}).returned == errc::bad_frame);  // it has not said what it is
  CHECK(p.open(protocol_major + 1).code == errc::version_mismatch);
  CHECK(p.open(protocol_major, 1).returned == errc::bad_frame);
  REQUIRE(p.open().ok());
  CHECK(p.open().returned == errc::bad_frame);
  CHECK(p.remote_references(good, {1}).code == errc::stale);  // no cycle runs
  REQUIRE(o.begin(1).ok());
  good.ticket[0] = o.ticket.ticket[0];
  good.ticket[1] = o.ticket.ticket[1];
  CHECK(good.ticket[0] != good.ticket[1]);
  const auto bent = [&](auto change) {
    remote_references_body b = good;
    change(b);
    return b;
  };
  CHECK(p.remote_references(bent([](auto& b) { b.cycle = 2; }), {1}).code == errc::stale);
  CHECK(p.remote_references(bent([](auto& b) { b.heap_id[0] = 6; }), {1}).code == errc::not_found);
  CHECK(p.remote_references(bent([](auto& b) { b.ticket[0] ^= 1; }), {1}).code == errc::access_denied);
  CHECK(p.remote_references(bent([](auto& b) { b.ticket[1] ^= std::uint64_t{1} << 63; }), {1}).code ==
        errc::access_denied);
  CHECK(p.remote_references(bent([](auto& b) { b.zero = 1; }), {1}).returned == errc::bad_frame);
  CHECK(p.remote_references(bent([](auto& b) { b.count = 2; }), {1}).returned == errc::bad_frame);
  CHECK(p.remote_references(bent([](auto& b) { b.count = 0; }), {}).returned == errc::bad_frame);
  CHECK(p.remote_references(bent([](auto& b) { b.count = remote_references_max + 1; }),
                            std::vector<slot_t>(remote_references_max + 1, 1))
            .returned == errc::bad_frame);
  CHECK(p.remote_references(good, {0}).returned == errc::bad_frame);
  CHECK(p.remote_references(good, {detail::slot_limit}).returned == errc::bad_frame);
  CHECK(p.remote_references(good, {1 | scan_at_home}).returned == errc::bad_frame);
  CHECK(p.send(message_type::remote_references, {}).returned == errc::bad_frame);
  std::vector<std::byte> other_message;
  tracing_owner::add(other_message, cycle_name{1});
  CHECK(p.send(message_type::end_cycle, other_message).returned == errc::bad_frame);
  CHECK(p.send(message_type::open_heap, other_message).returned == errc::bad_frame);
  settle(*s);
  CHECK(o.marks(0).empty());

  // What is right is marked and traced, and counted; slots of tablets that are not here are passed over.
  REQUIRE(o.tell_peers({}).ok());
  REQUIRE(p.remote_references(bent([](auto& b) { b.count = 3; }), {2001, 4005, 70 * 65536}).ok());
  CHECK(o.marked(2001));
  auto r = o.trace();
  CHECK(r.answer.idle == 0);
  CHECK(r.counts.references_received == 3);
  settle(*s);
  r = o.trace();
  CHECK(r.answer.idle == 1);
  CHECK(r.answer.marked == 1000 + 5);
  CHECK(r.counts.references_received == 3);
  REQUIRE(p.remote_references(good, {2001}).ok());  // again
  CHECK(o.trace().counts.references_received == 4);
  CHECK(o.trace().answer.idle == 1);

  // Who goes on guessing is refused and nothing more: the session may carry other heaps' references, whose owners have
  // done nothing.
  for (int guesses = 0; guesses < 20; ++guesses) {
    const auto guess = p.remote_references(bent([](auto& b) { b.ticket[0] ^= 2; }), {1});
    CHECK(guess.returned == errc::ok);
    CHECK(guess.code == errc::access_denied);
  }
  REQUIRE(p.remote_references(good, {2001}).ok());
  REQUIRE(o.end(1).ok());
  peer_session late(*s);
  REQUIRE(late.open().ok());
  CHECK(late.remote_references(good, {1}).code == errc::stale);
  REQUIRE(o.begin(2).ok());
  CHECK(late.remote_references(good, {1}).code == errc::stale);
  CHECK(late.remote_references(bent([](auto& b) { b.cycle = 2; }), {1}).code ==
        errc::access_denied);  // a new cycle, a new ticket
  settle(*s);
  CHECK(o.marks(0).empty());
  o.audit();
}

TEST_CASE("what an owner says of other agents is checked", "[store][peers]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready(0, 4);
  REQUIRE(o.begin(3).ok());
  using entry = tracing_owner::peer_entry;
  const entry good{"tcp://127.0.0.1:9", {1, 2}, {{3, 4}}, {{10, 5}, {20, 1}}};
  const auto told = [&](auto change) {
    entry e = good;
    change(e);
    return o.tell_peers({e}).returned;
  };
  CHECK(told([](entry&) {}) == errc::ok);
  CHECK(told([](entry& e) { e.tablets = {{3, 1}}; }) == errc::bad_frame);  // the agent's own
  CHECK(told([](entry& e) { e.tablets = {{4, 1}, {0, 1}}; }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.tablets = {{10, 5}, {14, 2}}; }) == errc::bad_frame);  // one twice
  CHECK(told([](entry& e) { e.tablets = {{10, 0}}; }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.tablets = {{1u << 24, 1}}; }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.tablets = {{(1u << 24) - 1, 2}}; }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.tablets = {{0xffffffff, 0xffffffff}}; }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.tablets = {{5, 0xffffffff}}; }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.url.clear(); }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.url = std::string(1025, 'x'); }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.url = "tcp://a b:1"; }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.url[3] = '\0'; }) == errc::bad_frame);
  CHECK(told([](entry& e) { e.url[3] = '\x80'; }) == errc::bad_frame);
  CHECK(o.tell_peers({good, good}).returned == errc::bad_frame);
  std::vector<entry> many(trace_peers_max + 1, good);
  for (std::uint32_t i = 0; i < many.size(); ++i) many[i].tablets = {{100 + i, 1}};
  CHECK(o.tell_peers(many).returned == errc::bad_frame);
  many.pop_back();
  CHECK(o.tell_peers(many).ok());
  const auto raw = [&](std::vector<std::byte> m) { return o.send(message_type::trace_peers, m.data(), m.size()); };
  std::vector<std::byte> m = tracing_owner::peers_message(3, {good});
  for (std::size_t n = 0; n < m.size(); ++n)
    CHECK(raw({m.begin(), m.begin() + static_cast<std::ptrdiff_t>(n)}).returned == errc::bad_frame);
  m.resize(m.size() + 8);
  CHECK(raw(m).returned == errc::bad_frame);
  m = tracing_owner::peers_message(3, {good});
  const peer_record huge{{1, 2}, {3, 4}, 0xffffffff, 17};
  std::memcpy(m.data() + sizeof(peers_body), &huge, sizeof huge);
  CHECK(raw(m).returned == errc::bad_frame);
  CHECK(raw(tracing_owner::peers_message(2, {good})).code == errc::stale);
  // The last that was right counts, and nothing more once tracing has begun.
  CHECK(o.trace().counts.references_sent == 0);
  CHECK(o.tell_peers({good}).code == errc::stale);
  REQUIRE(o.end(3).ok());
  CHECK(o.tell_peers({good}).code == errc::stale);
}

TEST_CASE("an agent that does not want to talk, does not", "[store][peers]") {
  store_options options = small();
  options.peers = false;
  auto s = fm::agent::store::create(options);
  tracing_owner o(*s, 5);
  o.open_ready();
  const reply begun = o.begin(1);
  REQUIRE(begun.ok());
  CHECK(begun.body.empty());
  CHECK(o.tell_peers({}).code == errc::refused);
  peer_session p(*s);
  CHECK(p.open().code == errc::refused);
  const auto r = o.trace_as(1, {1});
  REQUIRE(r.raw.ok());
  CHECK(r.raw.body.size() == sizeof(trace_answer));
}

TEST_CASE("every cycle has a ticket of its own, and keeps it", "[store][peers]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready();
  std::set<std::uint64_t> words;
  for (std::uint64_t cycle = 1; cycle <= 20; ++cycle) {
    REQUIRE(o.begin(cycle).ok());
    const begin_cycle_answer first = o.ticket;
    REQUIRE(o.begin(cycle).ok());  // the answer was lost
    CHECK(std::memcmp(&first, &o.ticket, sizeof first) == 0);
    words.insert({first.ticket[0], first.ticket[1]});
  }
  CHECK(words.size() == 40);
}

// Two hostile owners against one store. The input is read as a series of steps: messages of any content, well-formed
// ones with fields bent, one-sided writes, batches, cycles, reconnects, time passing. Whatever they do, no sanitizer may object
// and the store's own audit must find no contradiction in either heap.
#include "agent/service/service.h"
#include "protocol/heap_messages.h"
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <spdlog/spdlog.h>
#include <vector>

#include "hostile.h"

namespace {

using namespace fm;
using namespace fm::fuzz;
using namespace fm::agent;
using namespace fm::protocol;

class hostile_owner {
 public:
  hostile_owner(fm::agent::store& s, std::uint64_t id) : s_(s), id_(id) { connect(); }
  hostile_owner(const hostile_owner&) = delete;
  hostile_owner& operator=(const hostile_owner&) = delete;
  ~hostile_owner() {
    s_.disconnected(*peer_);
    if (other_ != nullptr) s_.disconnected(*other_);
  }

  void reconnect() {
    s_.disconnected(*peer_);
    connect();
  }

  // Sends a message and, like a transport, drops the connection if the service calls it a violation.
  std::vector<std::byte> send(message_type type, const std::vector<std::byte>& body) {
    std::vector<std::byte> m;
    append(m, message_head{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(body.size())});
    m.insert(m.end(), body.begin(), body.end());
    return send_raw(m);
  }
  template <class T>
  std::vector<std::byte> send(message_type type, const T& body) {
    std::vector<std::byte> b;
    append(b, body);
    return send(type, b);
  }
  std::vector<std::byte> send_raw(const std::vector<std::byte>& m) {
    fabric::answer a;
    if (s_.message(*peer_, m, a) != errc::ok || peer_->closed) {
      reconnect();
      return {};
    }
    answer_head head{};
    FM_CHECK(a.payload.size() >= sizeof head, "an answer without a head");
    std::memcpy(&head, a.payload.data(), sizeof head);
    FM_CHECK(head.body_bytes == a.payload.size() - sizeof head, "an answer whose length is wrong");
    if (head.code != 0) return {};
    return {a.payload.begin() + sizeof head, a.payload.end()};
  }

  void open(input& in) {
    open_heap_body b{protocol_major, protocol_minor, 0, {id_, ~id_}, 77, 0, 0, in.below(2), "fuzz"};
    if (in.below(8) == 0) b.heap_id[0] = in.below(4);
    if (in.below(8) == 0) b.incarnation = in.name();
    if (in.below(8) == 0) b.quota_bytes = in.word();
    if (in.below(8) == 0) b.lease_ms = in.name();
    if (in.below(16) == 0) std::memset(b.name, 'x', sizeof b.name);
    const auto a = send(message_type::open_heap, b);
    if (a.size() < sizeof(open_heap_answer)) return;
    open_heap_answer answer{};
    std::memcpy(&answer, a.data(), sizeof answer);
    seq_ = answer.applied_seq + 1;
  }

  // One of three names and two secrets, most often to go on as this owner.
  void attach(input& in) {
    attach_heap_body b{protocol_major, protocol_minor, in.below(3) == 0 ? 0u : 1u, {}, {}, 77, "fuzz"};
    b.name[0] = static_cast<char>('a' + in.below(3));
    b.secret[0] = static_cast<char>('s' + in.below(2));
    if (in.below(8) == 0) b.incarnation = in.name();
    if (in.below(16) == 0) std::memset(b.name, 'x', sizeof b.name);
    if (in.below(2) == 0) reconnect();  // a session opens one heap
    const auto a = send(message_type::attach_heap, b);
    attach_heap_answer answer{};
    if (a.size() < sizeof answer) return;
    std::memcpy(&answer, a.data(), sizeof answer);
    FM_CHECK(a.size() == sizeof answer + answer.record_bytes, "an attach answer of a wrong length");
    if (b.take == 1) seq_ = answer.opened.applied_seq + 1;
  }
  void detach(input& in) {
    std::vector<std::byte> m;
    const std::uint32_t bytes = in.below(16) == 0 ? in.name() : 1 + in.below(40);
    detach_heap_body b{{}, {}, {in.below(2), 0}, in.word(), bytes, 0};
    b.name[0] = static_cast<char>('a' + in.below(3));
    b.secret[0] = static_cast<char>('s' + in.below(2));
    append(m, b);
    m.resize(m.size() + std::min(bytes, 4096u));
    send(message_type::detach_heap, m);
  }

  // An object of one reference, one of eight words, an array of bytes; bent or any number of others now and then.
  void types(input& in) {
    std::vector<std::byte> b;
    append(b, register_types_body{in.below(8) == 0 ? in.name() : 3, 0});
    constexpr std::array<std::uint32_t, 3> sizes{8, 64, 1};
    for (std::uint32_t i = 0; i < 3; ++i) {
      type_record t{i + 1, i == 2 ? 1u : 0u, i + 11, sizes[i], i == 0 ? 1u : 0u, 4, 0};
      if (in.below(16) == 0) t.bytes = in.name();
      if (in.below(16) == 0) t.ref_count = in.name();
      if (in.below(16) == 0) t.id = in.name();
      append(b, t);
      if (i == 0) append(b, in.below(16) == 0 ? in.name() : 0u);
      append(b, std::array<char, 4>{'n', 'a', 'm', 'e'});
      if (i != 0) append(b, 0u);
    }
    send(message_type::register_types, b);
  }

  // A batch that would be accepted, but for what the input bends.
  void batch(input& in) {
    std::vector<std::byte> bytes(sizeof(batch_header));
    std::uint32_t count = 0;
    for (std::uint32_t n = in.below(12); n > 0; --n, ++count) {
      const std::uint32_t type = 1 + in.below(3);
      const detail::slot_t slot = in.below(32) == 0 ? in.word() % detail::slot_limit : in.byte();
      append(bytes, detail::header::pack(in.below(32) == 0 ? in.name() & 0xffffff : type, slot));
      const std::uint64_t length = in.below(40);
      if (type == 3) append(bytes, in.below(32) == 0 ? in.word() : length);
      const std::uint64_t words = type == 1 ? 1 : type == 2 ? 8 : (length + 7) / 8;
      for (std::uint64_t i = 0; i < words; ++i) append(bytes, std::uint64_t{in.byte()});
    }
    batch_header h{batch_magic, 0, seq_, static_cast<std::uint32_t>(bytes.size()), count};
    if (in.below(32) == 0) h.length = in.name() * 8;
    if (in.below(32) == 0) h.count = in.name();
    std::memcpy(bytes.data(), &h, sizeof h);
    h.crc = detail::crc32c(bytes.data(), bytes.size());
    if (in.below(32) == 0) h.crc ^= 1;
    std::memcpy(bytes.data(), &h, sizeof h);

    const std::uint32_t region = in.below(16) == 0 ? in.name() : region_.region;
    const std::uint32_t generation = in.below(16) == 0 ? in.name() : region_.generation;
    std::uint64_t offset = end_;
    if (in.below(8) == 0) offset = std::uint64_t{in.byte()} * 64;
    write(region, generation, offset, bytes);
    index_body m{77, seq_, region, generation, offset, static_cast<std::uint32_t>(bytes.size()), h.crc, h.count, 0};
    if (in.below(16) == 0) m.seq = in.name();
    if (in.below(16) == 0) m.incarnation = in.name();
    if (in.below(16) == 0) m.length = in.name() * 8;
    if (in.below(16) == 0) m.flags = in.name();
    if (in.below(16) == 0) m.count = in.name();
    const auto a = send(message_type::index, m);
    if (a.size() < sizeof(index_answer)) return;
    index_answer answer{};
    std::memcpy(&answer, a.data(), sizeof answer);
    if (answer.applied_seq >= seq_) end_ = offset + bytes.size();
    seq_ = answer.applied_seq + 1;
  }

  void write(std::uint32_t region, std::uint32_t generation, std::uint64_t offset,
             const std::vector<std::byte>& bytes) {
    std::byte* to = s_.memory(*peer_, {region, generation, offset}, bytes.size(), fabric::access::write);
    if (to == nullptr) return;
    std::copy(bytes.begin(), bytes.end(), to);
    s_.memory_done(*peer_, region);
  }

  void open_region() {
    const auto a = send(message_type::open_region, std::vector<std::byte>{});
    if (a.size() < sizeof region_) return;
    std::memcpy(&region_, a.data(), sizeof region_);
    end_ = 0;
  }

  // One message of a collection cycle, most often the next of a cycle that runs.
  void cycle(input& in) {
    std::vector<std::byte> b;
    const std::uint64_t named = in.below(16) == 0 ? in.name() : cycle_;
    const std::uint32_t count = in.below(32) == 0 ? in.name() : in.below(6);
    switch (in.below(9)) {
      case 0: {
        if (in.below(4) != 0) ++cycle_;
        number_ = 0;
        const auto a = send(message_type::begin_cycle, cycle_name{in.below(16) == 0 ? in.word() : cycle_});
        if (a.size() == sizeof ticket_) std::memcpy(&ticket_, a.data(), sizeof ticket_);
        return;
      }
      case 1:
        append(b, dirty_body{named, count, 0});
        pages(in, count, b);
        send(message_type::add_dirty, b);
        return;
      case 2: send(message_type::read_marks, read_marks_body{named, in.name(), in.name()}); return;
      case 3:
        append(b, release_body{named, count, 0});
        pages(in, count, b);
        send(message_type::release_slots, b);
        return;
      case 4:
        if (in.below(4) == 0) send(message_type::end_cycle, cycle_name{named});
        return;
      case 5: peers(in, named); return;
      case 6: remote_references(in, named); return;
      default: {
        if (in.below(8) != 0) ++number_;
        append(b, trace_body{named, in.below(16) == 0 ? in.name() : number_, count, in.name(), 0});
        for (std::uint32_t i = std::min(count, 6u); i > 0; --i) append(b, slot(in));
        const auto a = send(message_type::trace, b);
        trace_answer answer{};
        if (a.size() < sizeof answer) return;
        std::memcpy(&answer, a.data(), sizeof answer);
        const std::uint64_t without_counts = sizeof answer + answer.remote_references * std::uint64_t{8};
        FM_CHECK(a.size() == without_counts || a.size() == without_counts + sizeof(trace_counts),
                 "a trace answer of a wrong length");
      }
    }
  }

  // Other agents, of which none can be reached, with tablets that may be anybody's.
  void peers(input& in, std::uint64_t named) {
    std::vector<std::byte> b;
    const std::uint32_t count = in.below(3);
    append(b, peers_body{named, in.below(32) == 0 ? in.name() : count, 0});
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t ranges = in.below(3);
      append(b, peer_record{{in.word(), in.word()},
                            {in.word(), in.word()},
                            in.below(32) == 0 ? in.name() : ranges,
                            in.below(32) == 0 ? in.name() : 8});
      for (std::uint32_t r = 0; r < ranges; ++r)
        append(b, tablet_range{in.below(16) == 0 ? in.name() : in.below(256),
                               in.below(16) == 0 ? in.name() : in.below(8)});
      append(b, std::array<char, 8>{'f', 'u', 'z', 'z', ':', in.below(32) == 0 ? static_cast<char>(in.byte()) : '/',
                                    '/', 'x'});
    }
    send(message_type::trace_peers, b);
  }

  // What another agent would send, most often with the right ticket.
  void remote_references(input& in, std::uint64_t named) {
    if (other_ == nullptr || in.below(8) == 0) {
      if (other_ != nullptr) s_.disconnected(*other_);
      other_ = std::make_unique<silent_peer>();
      FM_CHECK(s_.connected(*other_) == errc::ok, "a peer was refused");
      std::vector<std::byte> hello;
      append(hello, message_head{static_cast<std::uint16_t>(message_type::open_peer), 0, sizeof(open_peer_body)});
      append(hello, open_peer_body{in.below(32) == 0 ? std::uint16_t{9} : protocol_major, 0, 0, "fuzz"});
      fabric::answer ignored;
      (void)s_.message(*other_, hello, ignored);
    }
    const std::uint32_t count = 1 + in.below(6);
    remote_references_body g{{id_, ~id_}, {ticket_.ticket[0], ticket_.ticket[1]}, named, count, 0};
    if (in.below(16) == 0) g.ticket[in.below(2)] ^= in.word();
    if (in.below(16) == 0) g.heap_id[0] = in.below(4);
    if (in.below(16) == 0) g.count = in.name();
    std::vector<std::byte> b, m;
    append(b, g);
    for (std::uint32_t i = 0; i < count; ++i) append(b, slot(in));
    append(m, message_head{
                  static_cast<std::uint16_t>(in.below(32) == 0 ? message_type::trace : message_type::remote_references),
                  0, static_cast<std::uint32_t>(b.size())});
    m.insert(m.end(), b.begin(), b.end());
    fabric::answer a;
    if (s_.message(*other_, m, a) == errc::ok && !other_->closed) return;
    s_.disconnected(*other_);
    other_.reset();
  }

  // Asks for an evacuation, most often of everything, or how far the last one is.
  void evacuate(input& in) {
    if (in.below(2) == 0) ++evacuation_;
    if (in.below(2) == 0) order_ = in.below(3);
    const std::uint32_t below = in.below(8) == 0 ? in.name() * 8192 : evacuation_whole;
    const auto a = send(message_type::evacuate, evacuate_body{in.below(16) == 0 ? in.name() : evacuation_,
                                                              in.below(32) == 0 ? in.name() : order_, below});
    if (a.empty()) return;
    evacuate_answer answer{};
    FM_CHECK(a.size() == sizeof answer, "an evacuate answer of a wrong length");
    std::memcpy(&answer, a.data(), sizeof answer);
    FM_CHECK(answer.emptied <= answer.regions && answer.done <= 1, "an evacuate answer that cannot be");
  }

  region_name region(input& in) const {
    return in.below(2) == 0 ? region_name{region_.region, region_.generation} : region_name{in.name(), in.name()};
  }

  void audit() {
    const auto a = send(message_type::audit, std::vector<std::byte>{});
    if (a.size() < sizeof(audit_answer)) return;
    audit_answer answer{};
    std::memcpy(&answer, a.data(), sizeof answer);
    if (answer.faults == 0) return;
    std::fprintf(stderr, "%.*s\n", static_cast<int>(a.size() - sizeof answer),
                 reinterpret_cast<const char*>(a.data()) + sizeof answer);
    FM_CHECK(answer.faults == 0, "the audit of a heap found contradictions");
  }

 private:
  void connect() {
    peer_ = std::make_unique<silent_peer>();
    FM_CHECK(s_.connected(*peer_) == errc::ok, "a peer was refused");
  }

  static detail::slot_t slot(input& in) {
    const detail::slot_t s = in.below(32) == 0 ? in.word() : in.byte();
    return in.below(8) == 0 ? s | scan_at_home : s;
  }
  static void pages(input& in, std::uint32_t count, std::vector<std::byte>& to) {
    for (std::uint32_t i = std::min(count, 6u); i > 0; --i) {
      slot_bits p{in.below(32) == 0 ? in.word() : 0, {}};
      p.bits[in.below(8)] = in.word();
      append(to, p);
    }
  }

  fm::agent::store& s_;
  std::uint64_t id_;
  std::unique_ptr<silent_peer> peer_;
  region_answer region_{};
  std::uint64_t end_ = 0, seq_ = 1;
  std::uint64_t cycle_ = 0;
  std::uint32_t number_ = 0;
  begin_cycle_answer ticket_{};
  std::unique_ptr<silent_peer> other_;  ///< another agent's session, as it says
  std::uint64_t evacuation_ = 0;
  std::uint32_t order_ = 0;
};

void step(input& in, hostile_owner& owner, fm::agent::store& s, std::int64_t& now_ns) {
  switch (in.below(25)) {
    case 0: owner.send_raw(in.bytes(in.below(64))); break;
    case 1: owner.send(static_cast<message_type>(in.below(36)), in.bytes(in.below(100))); break;
    case 2: owner.open(in); break;
    case 3: owner.types(in); break;
    case 4: owner.send(message_type::grant_tablets, grant_tablets_body{in.name(), in.name()}); break;
    case 5: owner.open_region(); break;
    case 6: owner.write(in.name(), in.name(), std::uint64_t{in.byte()} * 8, in.bytes(in.below(64))); break;
    case 7: owner.send(message_type::seal_region, owner.region(in)); break;
    case 8: owner.send(message_type::retired_region, owner.region(in)); break;
    case 9: owner.send(message_type::region_info, owner.region(in)); break;
    case 10: owner.send(message_type::fetch_slot, fetch_slot_body{in.byte(), in.name(), in.name()}); break;
    case 11: {
      now_ns += std::int64_t{in.byte()} * 250'000'000;
      for (std::uint32_t i = in.below(64); i > 0 && s.maintain(); --i) {
      }
      break;
    }
    case 12: owner.reconnect(); break;
    case 13:
      owner.send(message_type::read_entries, read_entries_body{in.byte(), in.name(), 0});
      owner.send(message_type::census, census_body{std::uint64_t{in.byte()} * 512, in.name() * 512, 0});
      break;
    case 14:
    case 15:
    case 16: owner.batch(in); break;
    case 17:
    case 18: owner.evacuate(in); break;
    case 19: owner.detach(in); break;
    case 20: owner.attach(in); break;
    default: owner.cycle(in);
  }
}

}  // namespace

// The store logs every violation, and there is nothing else here.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  input in(data, bytes);
  std::int64_t now_ns = 1'000'000'000;
  store_options options;
  options.region_bytes = 64u << 10;
  options.memory_bytes = 6 * options.region_bytes;
  options.trace_queue_slots = options.trace_references_max = 64;
  options.hooks.background = false;
  options.hooks.context = &now_ns;
  options.hooks.now = [](void* ns) { return time_point(std::chrono::nanoseconds(*static_cast<std::int64_t*>(ns))); };
  const auto s = fm::agent::store::create(options);
  hostile_owner first(*s, 1), second(*s, 2);

  // The way to the code behind the first checks is long; half of all inputs start there.
  if (in.below(2) == 0) {
    // 2 bends nothing: it is a multiple of the odds of none of the choices but the first, which asks for no resume.
    const std::vector<std::uint8_t> plain(64, 2);
    for (hostile_owner* owner : {&first, &second}) {
      input usual(plain.data(), plain.size());
      owner->open(usual);
      owner->types(usual);
      owner->send(message_type::grant_tablets, grant_tablets_body{0, 1});
      owner->open_region();
    }
  }
  while (!in.empty()) step(in, in.below(4) == 0 ? second : first, *s, now_ns);
  first.audit();
  second.audit();
  (void)s->statistics();
  return 0;
}

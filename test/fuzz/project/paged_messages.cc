// Two hostile owners of paged ranges against one store. The input is read as a series of steps: messages of any content,
// well-formed ones with fields bent, one-sided writes, reconnects, time passing. Whatever they do, no sanitizer may object, the
// audit of a space must find no contradiction, and neither reaches the other's memory.
#include "protocol/paged_messages.h"
#include "agent/service/service.h"
#include "protocol/heap_messages.h"
#include <algorithm>
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
  hostile_owner(fm::agent::store& s, std::uint8_t id) : s_(s), id_(id) { connect(); }
  hostile_owner(const hostile_owner&) = delete;
  hostile_owner& operator=(const hostile_owner&) = delete;
  ~hostile_owner() { s_.disconnected(*peer_); }

  void reconnect() {
    s_.disconnected(*peer_);
    connect();
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
  std::vector<std::byte> send(paged_message type, const void* body, std::size_t bytes) {
    const message_head head{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(bytes)};
    std::vector<std::byte> m(sizeof head + bytes);
    std::memcpy(m.data(), &head, sizeof head);
    if (bytes != 0) std::memcpy(m.data() + sizeof head, body, bytes);
    return send_raw(m);
  }
  template <class T>
  std::vector<std::byte> send(paged_message type, const T& body) {
    return send(type, &body, sizeof body);
  }

  void open(input& in) {
    open_space_body b{paged_protocol_major, paged_protocol_minor, 0, {id_, 9}, 77u + id_, 0, 0, in.below(2), "fuzz"};
    if (in.below(8) == 0) b.space_id[0] = in.below(4);
    if (in.below(8) == 0) b.incarnation = in.name();
    if (in.below(16) == 0) b.zero_bytes = in.word();
    if (in.below(8) == 0) b.lease_ms = in.name();
    if (in.below(16) == 0) b.major = static_cast<std::uint16_t>(in.name());
    if (in.below(16) == 0) b.zero = in.name();
    if (in.below(16) == 0) std::memset(b.name, 'x', sizeof b.name);
    send(paged_message::open_space, b);
    if (in.below(4) != 0) send(paged_message::resize_space, resize_space_body{256u << 10});
  }
  void resize(input& in) {
    const std::uint64_t bytes = in.below(4) == 0 ? in.word() : std::uint64_t{in.below(12)} * (16u << 10);
    const auto a = send(paged_message::resize_space, resize_space_body{bytes});
    if (a.empty()) return;
    resize_space_answer answer{};
    FM_CHECK(a.size() == sizeof answer, "a resize_space answer of a wrong length");
    std::memcpy(&answer, a.data(), sizeof answer);
    FM_CHECK(answer.promised_bytes == bytes && answer.promised_bytes + answer.room_bytes <= 9u * (64u << 10),
             "more is promised than there is");
  }
  void region(input& in) {
    const auto a = send(paged_message::space_region, space_region_body{in.name(), in.below(4) == 0 ? in.name() : 0});
    if (a.empty()) return;
    FM_CHECK(a.size() == sizeof region_, "a space_region answer of a wrong length");
    std::memcpy(&region_, a.data(), sizeof region_);
  }
  void release(input& in) { send(paged_message::release_region, space_region_body{in.name(), in.below(3)}); }
  void audit() {
    const auto a = send(paged_message::audit_space, nullptr, 0);
    if (a.empty()) return;
    audit_space_answer answer{};
    FM_CHECK(a.size() == sizeof answer, "an audit_space answer of a wrong length");
    std::memcpy(&answer, a.data(), sizeof answer);
    FM_CHECK(answer.faults == 0, "the audit of a space found contradictions");
  }
  // Writes its own mark somewhere, where nobody else's may be.
  void write(input& in) {
    fabric::remote where{region_.region, region_.generation, std::uint64_t{in.byte()} * 8};
    if (in.below(4) == 0) where.region = in.name();
    if (in.below(4) == 0) where.generation = in.name();
    if (in.below(8) == 0) where.offset = in.word();
    const std::uint64_t bytes = in.below(16) == 0 ? in.word() : in.byte();
    std::byte* const to = s_.memory(*peer_, where, bytes, fabric::access::write);
    if (to == nullptr) return;
    FM_CHECK(std::all_of(to, to + bytes, [&](std::byte b) { return b == std::byte{0} || b == std::byte{id_}; }),
             "an owner reaches another one's memory");
    std::fill_n(to, bytes, std::byte{id_});
    s_.memory_done(*peer_, where.region);
  }

 private:
  void connect() {
    peer_ = std::make_unique<silent_peer>();
    FM_CHECK(s_.connected(*peer_) == errc::ok, "a peer was refused");
  }
  fm::agent::store& s_;
  const std::uint8_t id_;
  std::unique_ptr<silent_peer> peer_;
  space_region_answer region_{};
};

void step(input& in, hostile_owner& owner, fm::agent::store& s, std::int64_t& now_ns) {
  switch (in.below(14)) {
    case 0: {
      std::vector<std::byte> any(in.below(64));
      for (auto& b : any) b = std::byte{in.byte()};
      owner.send_raw(any);
      break;
    }
    case 1: {
      std::vector<std::byte> any(in.below(100));
      for (auto& b : any) b = std::byte{in.byte()};
      owner.send(static_cast<paged_message>(in.below(2) == 0 ? 63 + in.below(8) : in.below(27)), any.data(),
                 any.size());
      break;
    }
    case 2:
    case 3: owner.open(in); break;
    case 4:
    case 5: owner.region(in); break;
    case 6: owner.release(in); break;
    case 7: owner.audit(); break;
    case 8:
      now_ns += std::int64_t{in.byte()} * 250'000'000;
      for (std::uint32_t i = in.below(8); i > 0 && s.maintain(); --i) {
      }
      break;
    case 9: owner.reconnect(); break;
    case 10: owner.resize(in); break;
    case 11: s.drain(in.below(3) == 0); break;
    case 12:
      if (in.below(4) == 0) owner.send(paged_message::close_space, nullptr, 0);
      break;
    default: owner.write(in);
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
  options.memory_bytes = 8 * options.region_bytes;
  options.heaps_max = 3;
  options.hooks.background = false;
  options.hooks.context = &now_ns;
  options.hooks.now = [](void* context) {
    return time_point(std::chrono::nanoseconds(*static_cast<std::int64_t*>(context)));
  };
  const auto s = fm::agent::store::create(options);
  {
    hostile_owner one(*s, 1), two(*s, 2);
    while (!in.empty()) step(in, in.below(2) == 0 ? one : two, *s, now_ns);
    one.audit();
    two.audit();
    FM_CHECK(!s->statistics().empty(), "no statistics");
  }
  return 0;
}

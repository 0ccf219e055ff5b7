// Two hostile clients of one pool, and one of another, against one store. The input is read as a series of steps: messages of any
// content, well-formed ones with fields bent, pointers made up, bytes changed in frames that a client could have mapped,
// reconnects, time passing. Whatever they do, no sanitizer may object, no answer may be malformed, and the audit of a pool whose
// bytes nobody has changed must find no contradiction.
#include "protocol/pool_messages.h"
#include "agent/service/service.h"
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

class busy_peer final : public silent_peer {
 public:
  bool notify(std::span<const std::byte>) noexcept override { return ++notices_ % 3 != 0; }

 private:
  int notices_ = 0;
};

class hostile_client {
 public:
  hostile_client(fm::agent::store& s, std::uint64_t id, std::uint64_t tenant) : s_(s), id_(id), tenant_(tenant) {
    connect();
  }
  hostile_client(const hostile_client&) = delete;
  hostile_client& operator=(const hostile_client&) = delete;
  ~hostile_client() { s_.disconnected(*peer_); }

  void reconnect() {
    s_.disconnected(*peer_);
    connect();
  }
  std::vector<std::byte> send(message_type type, const std::vector<std::byte>& body) {
    std::vector<std::byte> m;
    append(m, message_head{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(body.size())});
    m.insert(m.end(), body.begin(), body.end());
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
  template <class T>
  std::vector<std::byte> send(message_type type, const T& body) {
    std::vector<std::byte> b;
    append(b, body);
    return send(type, b);
  }

  void open(input& in) {
    pool_open_body b{};
    b.major = pool_protocol_major;
    b.minor = static_cast<std::uint16_t>(in.below(3));
    b.tenant[0] = tenant_;
    b.client[0] = id_;
    b.lease_ms = 1000;
    b.settings = {4096u << in.below(3),
                  in.below(2) * 300,
                  1 + in.below(3),
                  20000,
                  in.below(2) * 1000,
                  static_cast<std::uint8_t>(in.below(4) == 0 ? 8 : 0),
                  static_cast<std::uint8_t>(in.below(2)),
                  0};
    std::strcpy(b.name, "fuzz");
    if (in.below(8) == 0) {
      b.resume = 1;
      b.instance = in.below(2) == 0 ? instance_ : in.name();
    }
    if (in.below(16) == 0) b.settings.arenas = in.name();
    if (in.below(16) == 0) b.settings.block_bytes = static_cast<std::uint32_t>(in.word());
    if (in.below(16) == 0) b.quota_bytes = in.word();
    if (in.below(16) == 0) std::memset(b.name, 'x', sizeof b.name);
    const auto a = send(message_type::pool_open, b);
    if (a.empty()) return;
    pool_open_answer o{};
    FM_CHECK(a.size() == sizeof o + (b.minor == 0 ? 0 : sizeof(pool_open_more)),
             "an answer to pool_open of a wrong length");
    std::memcpy(&o, a.data(), sizeof o);
    FM_CHECK(o.instance != 0, "a pool without an instance");
    instance_ = o.instance;
  }

  pool_object object(input& in) {
    if (objects_.empty() || in.below(16) == 0)
      return {in.name(), in.name(), std::uint16_t(in.name()), std::uint16_t(in.name()), 0};
    pool_object o = objects_[in.byte() % objects_.size()];
    if (in.below(16) == 0) o.slot = std::uint16_t(in.word());
    if (in.below(32) == 0) ++o.generation;
    if (in.below(64) == 0) o.zero = 1;
    return o;
  }
  pool_change change(input& in) {
    const std::uint32_t stream = in.below(4);
    if (in.below(8) != 0) ++numbers_[stream];
    return {in.below(64) == 0 ? in.name() : numbers_[stream], in.below(64) == 0 ? in.name() : stream, 0,
            in.below(16) == 0 ? std::uint64_t{in.below(2)} : std::uint64_t{INT64_MAX}};
  }

  void allocate(input& in) {
    std::vector<std::byte> b;
    std::uint32_t bytes = 1 + in.below(60);
    if (in.below(8) == 0) bytes = 1 + in.below(250) * 40;
    const bool expires = in.below(3) == 0;
    const std::uint32_t told = in.below(64) == 0 ? in.name() : bytes;
    if (expires)
      append(b, pool_alloc_expiring_body{change(in), told, in.name(), expiry(in)});
    else
      append(b, pool_alloc_body{change(in), told, in.name()});
    b.resize(b.size() + bytes, std::byte{in.byte()});
    const auto a = send(expires ? message_type::pool_alloc_expiring : message_type::pool_alloc, b);
    if (a.empty()) return;
    pool_alloc_answer got{};
    if (a.size() != sizeof got) return;  // the answer to another change of the same number
    std::memcpy(&got, a.data(), sizeof got);
    if (got.wait == 0) objects_.push_back(got.at.object);
    if (objects_.size() > 200) objects_.erase(objects_.begin());
  }
  /// About as long as a step lets pass.
  std::uint64_t expiry(input& in) { return in.below(32) == 0 ? in.word() : in.below(4096); }
  void expire(input& in) { send(message_type::pool_expire, pool_expire_body{change(in), object(in), expiry(in)}); }
  void expiries() {
    const auto a = send(message_type::pool_expiries, std::vector<std::byte>{});
    FM_CHECK(a.empty() || a.size() == sizeof(pool_expiries_answer), "an answer to pool_expiries of a wrong length");
  }
  void write(input& in) {
    std::vector<std::byte> b;
    const std::uint32_t bytes = 1 + in.below(60);
    append(b, pool_write_body{change(in), object(in), bytes, 0});
    b.resize(b.size() + bytes, std::byte{in.byte()});
    send(message_type::pool_write, b);
  }
  void read(input& in) {
    const auto a =
        send(message_type::pool_read, pool_read_body{object(in), in.below(8) == 0 ? in.name() : 1u << 20, 0});
    if (a.empty()) return;
    pool_read_answer got{};
    FM_CHECK(a.size() >= sizeof got, "an answer to pool_read without its head");
    std::memcpy(&got, a.data(), sizeof got);
    FM_CHECK(a.size() == sizeof got + got.bytes, "an answer to pool_read of a wrong length");
  }
  void read_version(input& in) {
    const auto a = send(message_type::pool_read_version, pool_read_body{object(in), 1u << 20, 0});
    if (a.empty()) return;
    pool_read_version_answer got{};
    FM_CHECK(a.size() >= sizeof got, "an answer to pool_read_version without its head");
    std::memcpy(&got, a.data(), sizeof got);
    FM_CHECK(a.size() == sizeof got + got.bytes, "an answer to pool_read_version of a wrong length");
    version_ = got.version;
  }
  void write_if(input& in) {
    std::vector<std::byte> b;
    const std::uint32_t bytes = 1 + in.below(60);
    append(b, pool_write_if_body{change(in), object(in), in.below(32) == 0 ? in.name() : bytes, 0,
                                 in.below(4) == 0 ? in.word() : version_});
    b.resize(b.size() + bytes, std::byte{in.byte()});
    const auto a = send(message_type::pool_write_if, b);
    FM_CHECK(a.empty() || a.size() == sizeof(pool_write_if_answer), "an answer to pool_write_if of a wrong length");
  }
  void name(input& in) {
    std::vector<std::byte> name(1 + in.below(in.below(8) == 0 ? 64 : 3),
                                std::byte{static_cast<unsigned char>('a' + in.below(4))});
    if (in.below(32) == 0) name.clear();
    const auto bytes = in.below(32) == 0 ? in.name() : static_cast<std::uint32_t>(name.size());
    std::vector<std::byte> b;
    const std::uint32_t what = in.below(4);
    if (what == 0) {
      append(b, pool_unbind_body{change(in), bytes, in.below(32) == 0 ? 1u : 0u});
    } else if (what < 3) {
      append(b, pool_bind_body{change(in), in.below(4), in.below(4), in.below(3), bytes});
    }
    b.insert(b.end(), name.begin(), name.end());
    const auto a = send(what == 0  ? message_type::pool_unbind
                        : what < 3 ? message_type::pool_bind
                                   : message_type::pool_lookup,
                        b);
    FM_CHECK(what != 3 || a.empty() || a.size() == sizeof(pool_lookup_answer),
             "an answer to pool_lookup of a wrong length");
  }
  void list(input& in) {
    pool_list_body at{0, 0, 1 + in.below(40), 0};
    if (in.below(4) == 0) at = {in.name(), in.name(), in.name(), 0};
    for (;;) {
      const auto a = send(message_type::pool_list, at);
      if (a.empty()) return;
      pool_list_answer got{};
      FM_CHECK(a.size() >= sizeof got, "an answer to pool_list without its head");
      std::memcpy(&got, a.data(), sizeof got);
      FM_CHECK(got.count <= at.most && a.size() == sizeof got + got.count * sizeof(pool_listed),
               "an answer to pool_list of a wrong length");
      if (got.done != 0) return;
      FM_CHECK(got.vblock > at.vblock || (got.vblock == at.vblock && got.index > at.index), "a list that goes nowhere");
      at.vblock = got.vblock;
      at.index = got.index;
    }
  }
  void tune(input& in) {
    pool_tune_body t{};
    for (auto& share : t.compact_above) share = in.below(8) == 0 ? in.name() : in.below(65537);
    send(message_type::pool_tune, t);
  }
  // What somebody who has a region mapped could do.
  void scribble(input& in) {
    const auto a = send(message_type::pool_region, pool_region_body{in.below(2), 0});
    region_answer r{};
    if (a.size() != sizeof r) return;
    std::memcpy(&r, a.data(), sizeof r);
    const fabric::remote at{r.region, r.generation, std::uint64_t{in.byte()} * 64 + in.below(64)};
    FM_CHECK(s_.memory(*peer_, at, 1, fabric::access::write) == nullptr, "a client may write to a region");
    std::byte* const p = s_.memory(*peer_, at, 1, fabric::access::read);
    if (p == nullptr) return;
    *p = std::byte{in.byte()};
    s_.memory_done(*peer_, r.region);
    scribbled = true;
  }
  void audit() {
    const auto a = send(message_type::pool_audit, std::vector<std::byte>{});
    audit_answer answer{};
    if (a.size() < sizeof answer) return;
    std::memcpy(&answer, a.data(), sizeof answer);
    if (answer.faults == 0) return;
    std::fprintf(stderr, "%.*s\n", static_cast<int>(a.size() - sizeof answer),
                 reinterpret_cast<const char*>(a.data()) + sizeof answer);
    FM_CHECK(answer.faults == 0, "the audit of a pool found contradictions");
  }

  void step(input& in, std::int64_t& now_ns) {
    switch (in.below(29)) {
      case 0: {
        std::vector<std::byte> b(in.below(64));
        for (auto& x : b) x = std::byte{in.byte()};
        send(static_cast<message_type>(62 + in.below(29)), b);
        break;
      }
      case 1: open(in); break;
      case 2: reconnect(); break;
      case 3: now_ns += std::int64_t{in.byte()} * 10'000'000; break;
      case 4: send(message_type::pool_pass, pool_pass_body{in.word() % 64, in.below(3)}); break;
      case 5: send(message_type::pool_table, pool_table_body{in.name(), 0}); break;
      case 6: send(message_type::pool_compact, pool_compact_body{in.below(2), in.below(3)}); break;
      case 7:
        for (std::uint32_t i = in.below(32); i > 0 && s_.maintain(); --i) {
        }
        break;
      case 8: send(message_type::pool_statistics, std::vector<std::byte>{}); break;
      case 9: send(message_type::pool_release, pool_object_body{change(in), object(in)}); break;
      case 10:
      case 11:
      case 12: send(message_type::pool_free, pool_object_body{change(in), object(in)}); break;
      case 13: write(in); break;
      case 14: read(in); break;
      case 15:
        if (in.below(4) == 0) scribble(in);
        break;
      case 16: read_version(in); break;
      case 17: write_if(in); break;
      case 18: name(in); break;
      case 19: list(in); break;
      case 20: tune(in); break;
      case 21:
      case 22: expire(in); break;
      case 23: expiries(); break;
      default:
        for (std::uint32_t i = 1 + in.below(16); i > 0; --i) allocate(in);
    }
  }
  bool scribbled = false;

 private:
  void connect() {
    peer_ = std::make_unique<busy_peer>();
    FM_CHECK(s_.connected(*peer_) == errc::ok, "a peer was refused");
  }

  fm::agent::store& s_;
  std::uint64_t id_, tenant_;
  std::unique_ptr<busy_peer> peer_;
  std::uint32_t instance_ = 0;
  std::uint64_t numbers_[4] = {};
  std::vector<pool_object> objects_;
  std::uint64_t version_ = 0;
};

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
  options.pools_max = 3;
  options.pool_clients_max = 3;
  options.hooks.background = false;
  options.hooks.context = &now_ns;
  options.hooks.pool_first_generation = in.below(2) == 0 ? 1 : 0xffffffffu - 20;
  options.hooks.now = [](void* ns) { return time_point(std::chrono::nanoseconds(*static_cast<std::int64_t*>(ns))); };
  const auto s = fm::agent::store::create(options);
  hostile_client first(*s, 1, 1), second(*s, 2, 1), stranger(*s, 3, 2);

  // The way to the code behind the first checks is long; most inputs start there.
  if (in.below(4) != 0) {
    const std::vector<std::uint8_t> plain(64, 1);
    for (hostile_client* c : {&first, &second, &stranger}) {
      input usual(plain.data(), plain.size());
      c->open(usual);
    }
  }
  while (!in.empty()) {
    hostile_client& who = in.below(4) == 0 ? stranger : in.below(3) == 0 ? second : first;
    who.step(in, now_ns);
  }
  if (!first.scribbled && !second.scribbled) {
    first.audit();
    second.audit();
  }
  if (!stranger.scribbled) stranger.audit();
  (void)s->statistics();
  return 0;
}

// An owner whose agent is hostile: a heap, and a store whose answers, notices and home copies are changed on their way. The input is
// a list of changes, each of the n-th answer of a kind of message or of the n-th read, and then what the owner does: objects made,
// read, linked, prefetched, sent home, collected, verified. Whatever comes: no sanitizer may object, no check may end the program,
// what fails is a typed error, and the heap closes. All objects have one type, because an owner does not notice when an agent gives
// an object another type of the program.
#include "agent/service/service.h"
#include "fabric/server/server.h"
#include "heap/heap_core.h"
#include "protocol/heap_messages.h"
#include <farmem/farmem.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "hostile.h"

namespace {

using namespace fm;
using namespace fm::fuzz;
using namespace fm::protocol;
using fm::literals::operator""_KiB;
using fm::literals::operator""_MiB;

struct thing {
  std::uint64_t id = 0;
  ref<thing> left, right;
  std::array<std::uint64_t, 3> rest{};
};

enum class change : std::uint8_t { word, half_word, flip, cut, lengthen, code, lose, again, notice, hint };
constexpr std::uint32_t changes = 10;
constexpr std::uint32_t reads = 31;  // in place of a type of messages: one-sided reads

struct rule {
  std::uint32_t type = 0, nth = 0;
  change what = change::word;
  std::uint32_t at = 0;
  std::uint64_t value = 0;
};

// What an agent would have to think of itself.
std::uint64_t value_of(input& in) {
  switch (in.below(8)) {
    case 0: return in.number();
    case 1: return detail::tablet_slots + in.byte();  // a slot that may be there
    case 2: return std::uint64_t{1} << in.below(64);
    case 3: return detail::header::pack(in.byte() % 4, detail::tablet_slots + in.byte());
    case 4:
      return detail::home_address{
          .region = in.byte() % 8u,
          .generation = in.byte() % 4u,
          .offset = static_cast<std::uint32_t>(in.number() % detail::home_address::offset_limit) & ~7u,
          .size_class = in.byte()}
          .pack();
    case 5: return ~std::uint64_t{0} - in.byte();
    case 6: return detail::word::free;
    default: return in.word();
  }
}

class hostile_agent final : public fabric::service {
 public:
  /// `is_mapped`: owners read the regions themselves; otherwise what they read passes through here.
  hostile_agent(std::vector<rule> rules, bool is_mapped)
      : rules_(std::move(rules)), store_(agent::store::create({.memory_bytes = 4_MiB, .region_bytes = 64_KiB})) {
    static std::uint64_t serial = 0;
    const std::string path = "/tmp/fm-fuzz-agent-" + std::to_string(::getpid()) + "-" + std::to_string(serial++);
    listener_ = fabric::listen(is_mapped ? "shm://" + path : "tcp://127.0.0.1:0", {}, *this);
  }
  ~hostile_agent() override { listener_.reset(); }
  hostile_agent(const hostile_agent&) = delete;
  hostile_agent& operator=(const hostile_agent&) = delete;
  [[nodiscard]] const std::string& url() const { return listener_->url(); }

  errc connected(fabric::peer& p) noexcept override { return store_->connected(p); }
  void disconnected(fabric::peer& p) noexcept override { store_->disconnected(p); }
  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    const errc e = store_->message(p, payload, out);
    message_head head{};
    if (e != errc::ok || payload.size() < sizeof head) return e;
    std::memcpy(&head, payload.data(), sizeof head);
    const std::lock_guard lock(mutex_);
    return alter(p, head.type, out.payload);
  }
  // A copy is handed out, and what the store has stays as it is.
  std::byte* memory(fabric::peer& p, const fabric::remote& where, std::uint64_t bytes,
                    fabric::access how) noexcept override {
    std::byte* const at = store_->memory(p, where, bytes, how);
    if (at == nullptr || how != fabric::access::read) return at;
    const std::lock_guard lock(mutex_);
    std::vector<std::byte>& copy = copies_[next_copy_++ % copies_.size()];
    copy.assign(at, at + bytes);
    const bool refused = alter(p, reads, copy) != errc::ok;
    copy.resize(bytes);
    if (refused) store_->memory_done(p, where.region);
    return refused ? nullptr : copy.data();
  }
  void memory_done(fabric::peer& p, std::uint32_t region) noexcept override { store_->memory_done(p, region); }

 private:
  errc alter(fabric::peer& p, std::uint32_t type, std::vector<std::byte>& bytes) {
    if (type >= counts_.size()) return errc::ok;
    const std::uint32_t nth = counts_[type]++;
    errc e = errc::ok;
    for (const rule& r : rules_)
      if (r.type == type && (r.nth == nth || r.nth == every))
        e = apply(p, r, type, bytes) == errc::ok ? e : errc::bad_frame;
    if (type != reads) last_[type] = bytes;
    return e;
  }
  errc apply(fabric::peer& p, const rule& r, std::uint32_t type, std::vector<std::byte>& bytes) {
    const std::size_t head = type == reads ? 0 : sizeof(answer_head);
    const auto put = [&](std::size_t n) {
      if (bytes.size() >= head + n)
        std::memcpy(bytes.data() + head + r.at % (bytes.size() - head - n + 1), &r.value, n);
    };
    switch (r.what) {
      case change::word:
        // At a word's place: most fields are there.
        if (bytes.size() >= head + 8)
          std::memcpy(bytes.data() + head + r.at % ((bytes.size() - head) / 8) * 8, &r.value, 8);
        break;
      case change::half_word: put(4); break;
      case change::flip:
        if (!bytes.empty()) bytes[r.at % bytes.size()] ^= std::byte{static_cast<unsigned char>(r.value | 1)};
        break;
      case change::cut:
        if (!bytes.empty()) bytes.resize(r.at % bytes.size());
        agree(type, bytes);
        break;
      case change::lengthen:
        bytes.resize(bytes.size() + 1 + r.at % 64, std::byte{static_cast<unsigned char>(r.value)});
        agree(type, bytes);
        break;
      case change::code:
        if (type != reads && bytes.size() >= sizeof(answer_head)) {
          const auto code = static_cast<std::uint16_t>(r.value % 32);
          std::memcpy(bytes.data() + offsetof(answer_head, code), &code, sizeof code);
        }
        break;
      case change::lose: return errc::bad_frame;
      case change::again:
        if (type != reads && !last_[type].empty()) bytes = last_[type];
        break;
      case change::notice: {
        std::vector<std::byte> n;
        append(n, message_head{
                      static_cast<std::uint16_t>(r.value % 3 != 0 ? message_type::retire_region : message_type::traced),
                      0, 8});
        append(n, region_name{.region = r.at % 16, .generation = static_cast<std::uint32_t>(r.value / 3 % 4)});
        p.notify(n);
        break;
      }
      case change::hint:  // of every home address in it, one part
        for (std::size_t i = head; i + 8 <= bytes.size(); i += 8) {
          std::uint64_t w = 0;
          std::memcpy(&w, bytes.data() + i, 8);
          if (!detail::word::is_remote(w) || w >> 32 == 0) continue;
          w ^= (r.value & 0xff) << (r.at % 4 == 0 ? 2 : r.at % 4 == 1 ? 10 : r.at % 4 == 2 ? 32 : 50);
          std::memcpy(bytes.data() + i, &w, 8);
        }
        break;
    }
    return errc::ok;
  }
  // The head says how long the body is: what is cut or longer is then well-formed as far as that.
  static void agree(std::uint32_t type, std::vector<std::byte>& bytes) {
    if (type == reads || bytes.size() < sizeof(answer_head)) return;
    const auto n = static_cast<std::uint32_t>(bytes.size() - sizeof(answer_head));
    std::memcpy(bytes.data() + offsetof(answer_head, body_bytes), &n, sizeof n);
  }

 public:
  static constexpr std::uint32_t every = ~0u;

 private:
  std::mutex mutex_;
  const std::vector<rule> rules_;
  std::array<std::uint32_t, 32> counts_{};
  std::array<std::vector<std::byte>, 32> last_;
  std::array<std::vector<std::byte>, 64> copies_;
  std::size_t next_copy_ = 0;
  std::unique_ptr<agent::store> store_;
  std::unique_ptr<fabric::listener> listener_;
};

// What owners ask for, as often as it matters.
constexpr std::array<std::uint8_t, 32> asked = {1,  4,  5,  6,  7,  8,  8,  8,  9,  9,  9,  9,  11, 12, 13, 14,
                                                15, 16, 17, 18, 18, 19, 19, 20, 21, 23, 24, 31, 31, 31, 31, 31};

std::vector<rule> rules_of(input& in) {
  std::vector<rule> rules(1 + in.below(7));
  for (rule& r : rules) {
    r.type = asked[in.below(asked.size())];
    const std::uint32_t nth = in.below(8);
    r.nth = nth < 6 ? nth : nth == 6 ? in.below(64) : hostile_agent::every;
    r.what = static_cast<change>(in.below(changes));
    r.at = static_cast<std::uint32_t>(in.number());
    r.value = value_of(in);
  }
  return rules;
}

void act(heap& h, std::vector<ptr<thing>>& all, input& in) {
  const auto one = [&]() -> ptr<thing>& { return all[in.byte() % all.size()]; };
  switch (in.below(12)) {
    case 0:
      for (std::uint32_t n = in.below(64); n != 0; --n) one() = h.make<thing>({.id = n, .left = one(), .right = one()});
      break;
    case 1: (void)h.evict_all(std::chrono::milliseconds(200)); break;
    case 2:
      if (const auto& p = one()) {
        std::uint64_t sum = 0;
        const scope s;
        const thing* t = p.get(s);
        for (int depth = 0; t != nullptr && depth < 16; ++depth) {
          sum += t->id + t->rest[2];
          t = depth % 2 == 0 ? t->left.get(s) : t->right.get(s);
        }
        volatile std::uint64_t used = sum;
        (void)used;
      }
      break;
    case 3:
      if (const auto& p = one()) p.write()->left = one();
      break;
    case 4: (void)prefetch(all); break;
    case 5: (void)h.collect("fuzz"); break;
    case 6: (void)h.verify(); break;
    case 7: one() = nullptr; break;
    case 8: (void)h.stats(detail_level::types); break;
    case 9: {  // what is known of the slots is forgotten, as when pages of the table are given back
      if (h.evict_all(std::chrono::milliseconds(200)) != errc::ok) break;
      const detail::section in_section;
      for (const auto& p : all) {
        if (!p) continue;
        detail::word_t w = detail::word_at(p.slot()).load();
        if (detail::word::is_remote(w)) detail::word_at(p.slot()).compare_exchange_strong(w, detail::word::unknown);
      }
      break;
    }
    case 10: (void)h.collect("fuzz", evacuate::all); break;
    default:
      for (const auto& p : all)
        if (p) (void)p->id;
  }
}

void run(const std::uint8_t* data, std::size_t bytes) {
  input in(data, bytes);
  const bool is_mapped = in.below(4) == 0;
  hostile_agent agent(rules_of(in), is_mapped);
  heap_options options{.cache = 1_MiB,
                       .agents = {agent.url()},
                       .segment = 16_KiB,
                       .collect = false,
                       .background_evictor = false,
                       .access_within = std::chrono::milliseconds(100),
                       .memory_within = std::chrono::milliseconds(50),
                       .reconnect_within = std::chrono::milliseconds(100),
                       .connect_within = std::chrono::milliseconds(500)};
  try {
    heap h(options);
    std::vector<ptr<thing>> all(64);
    for (auto& p : all) p = h.make<thing>();
    for (int steps = 0; !in.empty() && steps < 24; ++steps) {
      try {
        act(h, all, in);
      } catch (const error&) {  // the agent's doing
      }
    }
  } catch (const error&) {  // a heap that does not open
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  run(data, bytes);
  return 0;
}

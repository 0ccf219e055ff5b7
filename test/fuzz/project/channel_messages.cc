// One end of a channel whose other end is hostile. The input is read as a series of steps: messages of any content, well-formed
// ones with fields bent, parts of words made up, honest graphs with words changed and cut anywhere, answers that nobody asked
// for; and receives, of the type that was sent or of another, and sends into it. Whatever comes: no sanitizer may object, errors are
// typed, a graph that is taken is the one that was sent (it is written again, and compared word by word), and after every input
// the heap verifies clean and has no root more than before. When garbage is collected, nothing is left.
#include "channel/path/channel_messages.h"
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "channel_world.h"
#include "hostile.h"

namespace {

using namespace fm;
using namespace fm::fuzz;
using namespace fm::detail;
using namespace fm::detail::channel_wire;
class hostile_end;

// What the end under test says goes to the hostile one, which may answer at once.
class hostile_transport final : public channel_transport {
 public:
  explicit hostile_transport(hostile_end& other) : other_(other) {}
  std::span<std::byte> room(std::size_t bytes) override {
    buffer_.resize(std::max(buffer_.size(), bytes));
    return {buffer_.data(), bytes};
  }
  errc send(std::size_t bytes, time_point) noexcept override { return tell({buffer_.data(), bytes}); }
  errc tell(std::span<const std::byte> message) noexcept override;
  void drain(time_point) noexcept override {}
  void drop() noexcept override {}
  void close() noexcept override {}

 private:
  hostile_end& other_;
  std::vector<std::byte> buffer_;
};

class hostile_end {
 public:
  explicit hostile_end(input& in) : in_(in) {
    options_.window = 32u << 10;
    options_.window_parts = 16;
    options_.part = 2u << 10;
    options_.objects_max = 2000;
    options_.bytes_max = 128u << 10;
    options_.linger = duration{};
    connect();
  }

  ~hostile_end() { core_.reset(); }  // it says that it goes, and is heard
  hostile_end(const hostile_end&) = delete;
  hostile_end& operator=(const hostile_end&) = delete;

  void step() {
    switch (in_.below(16)) {
      case 0: {
        honest_ = false;
        words any(in_.below(12));
        for (auto& w : any) w = in_.word();
        deliver(std::as_bytes(std::span(any)));
        break;
      }
      case 1: bent(); break;
      case 2:
      case 3: part(); break;
      case 4: receive(); break;
      case 5: send(); break;
      case 6: {
        const graph_schema& schema = *pick().schema;
        must_answer_ = true;  // it would be waited for
        guarded([&] { core_->next_is(schema, duration{}); });
        must_answer_ = false;
        break;
      }
      case 7:
        if (in_.below(4) == 0) connect();
        break;
      default: graph();
    }
  }

  // Something that the end has said; now and then it is answered, rightly or wrongly.
  errc heard(std::span<const std::byte> message) {
    head h{};
    std::span<const std::byte> payload;
    FM_CHECK(decode(message, h, payload) == errc::ok, "it says what it would not take itself");
    if (answering_) return errc::ok;
    answering_ = true;
    const std::uint8_t how = in_.byte();
    switch (static_cast<kind>(h.kind)) {
      case kind::ask: {
        if (how % 4 == 0 && !must_answer_) break;
        head answer = make(kind::describe);
        answer.a = how == 9 && !must_answer_ ? in_.number() : h.a;
        std::string text = pick().schema->description;
        for (std::uint32_t i = in_.below(4); i > 0 && !text.empty(); --i)
          text[in_.byte() % text.size()] = char(in_.byte());
        say(answer, std::as_bytes(std::span(text)));
        break;
      }
      case kind::part:
        sent_bytes_ += message.size();
        ++sent_parts_;
        if (how % 4 == 0) break;
        if ((h.flags & flag_last) != 0 || how % 8 == 1) {
          head verdict = make(kind::verdict, how == 9 ? in_.number() : h.number);
          verdict.status = how < 64 ? in_.byte() % 40 : 0;
          verdict.a = sent_bytes_;
          verdict.b = sent_parts_;
          const std::string text(how % 16, '\x1b');
          say(verdict, std::as_bytes(std::span(text)));
        } else {
          head credit = make(kind::credit);
          credit.a = how == 10 ? in_.number() : sent_bytes_;
          credit.b = how == 11 ? in_.number() : sent_parts_;
          say(credit);
        }
        break;
      default: break;
    }
    answering_ = false;
    return how == 255 ? errc::disconnected : errc::ok;
  }

 private:
  void connect() {
    core_.reset();
    end_ = std::make_shared<endpoint>(channel_terms::of(options_), "fuzz");
    end_->set_transport(std::make_unique<hostile_transport>(*this));
    core_ = std::make_unique<channel_core>(world::get().h.core().cache(), options_, nullptr, end_);
    sequence_ = graph_ = sent_bytes_ = sent_parts_ = 0;
    deaf_ = false;
    honest_ = true;
  }
  const sample& pick() {
    const auto& all = world::get().samples;
    return all[in_.byte() % all.size()];
  }

  void deliver(std::span<const std::byte> message) {
    // As the listener and the session do: whoever breaks the rules is not heard again.
    if (deaf_) return;
    const errc e = end_->arrived(message);
    if (e == errc::ok) return;
    end_->broken(e, "the other end broke the rules");
    deaf_ = true;
  }
  void say(head h, std::span<const std::byte> payload = {}) {
    h.bytes = static_cast<std::uint32_t>(payload.size());
    std::vector<std::byte> message(sizeof h + payload.size());
    std::memcpy(message.data(), &h, sizeof h);
    if (!payload.empty()) std::memcpy(message.data() + sizeof h, payload.data(), payload.size());
    deliver(message);
  }
  void say_part(std::uint16_t flags, const words& all, std::uint64_t objects) {
    head h = make(kind::part, graph_);
    h.flags = flags;
    h.a = sequence_++;
    h.b = objects;
    if (in_.rarely()) bend(h);
    say(h, std::as_bytes(std::span(all)));
  }
  void bend(head& h) {
    honest_ = false;
    switch (in_.below(5)) {
      case 0: h.a = in_.number(); break;
      case 1: h.a += in_.below(5) - 2; break;
      case 2: h.number = in_.number(); break;
      case 3: h.flags ^= static_cast<std::uint16_t>(1u << in_.below(6)); break;
      default: h.status = in_.byte();
    }
  }

  void bent() {
    honest_ = false;
    head h = make(static_cast<kind>(in_.below(9)), in_.number());
    h.flags = static_cast<std::uint16_t>(in_.number());
    h.status = static_cast<std::uint16_t>(in_.number());
    h.a = in_.number();
    h.b = in_.number();
    words any(in_.below(6));
    for (auto& w : any) w = in_.number();
    say(h, std::as_bytes(std::span(any)));
  }
  // A part of words made up, of a graph that begins with it, or of the one before.
  void part() {
    honest_ = false;
    const std::uint8_t how = in_.byte();
    std::uint16_t flags = 0;
    words all;
    if (how % 2 == 0) {
      ++graph_;
      flags |= flag_first;
      const sample& s = pick();
      all.push_back(s.schema->hash);
      if (s.each != (how % 32 == 2)) flags |= flag_each;
      if (how % 8 == 4) flags |= flag_acyclic;
    }
    if (how % 16 < 10) flags |= flag_last;
    for (std::uint32_t n = in_.below(40); n > 0; --n) all.push_back(in_.number());
    say_part(flags, all, in_.number());
  }
  // An honest graph, or one with words changed, cut into parts anywhere, and received.
  void graph() {
    if (!honest_ && in_.below(4) == 0) connect();
    const sample& s = pick();
    stream g = s.honest;
    const std::uint8_t how = in_.byte();
    for (std::uint32_t changes = how % 4; changes > 0; --changes) change(g);
    ++graph_;
    const std::uint16_t of_graph =
        static_cast<std::uint16_t>((s.each ? flag_each : 0) | (how % 8 == 7 ? flag_acyclic : 0));
    for (std::size_t at = 0, sent = 0; sent == 0 || at < g.all.size();) {
      const std::size_t step = std::min<std::size_t>(g.all.size() - at, how < 128 ? 240 : in_.byte());
      words piece(g.all.begin() + static_cast<std::ptrdiff_t>(at),
                  g.all.begin() + static_cast<std::ptrdiff_t>(at + step));
      at += step;
      std::uint16_t flags = of_graph;
      if (sent == 0) {
        flags |= flag_first;
        piece.insert(piece.begin(), s.schema->hash);
      }
      if (at == g.all.size()) flags |= flag_last;
      say_part(flags, piece, (flags & flag_last) != 0 ? g.objects : 0);
      if (++sent == 12) break;
    }
    if (how % 16 == 15) {  // somebody else receives it, or nobody
      honest_ = false;
      return;
    }
    const auto roots = receive(s);
    if (roots.empty() || !honest_) return;
    if (s.containers && g.all != s.honest.all)
      (void)written(*s.schema, roots, s.each, false);  // it can be walked
    else
      require_same(s, roots, (of_graph & flag_acyclic) != 0, g);
  }
  void change(stream& g) {
    if (g.all.empty()) g.all.push_back(0);
    const std::size_t at = in_.byte() % g.all.size();
    switch (in_.below(7)) {
      case 0: g.all[at] = in_.number(); break;
      case 1: g.all[at] += in_.below(2) == 0 ? 1 : ~std::uint64_t{0}; break;
      case 2: g.all[at] ^= std::uint64_t{1} << in_.byte() % 64; break;
      case 3: g.all.erase(g.all.begin() + static_cast<std::ptrdiff_t>(at)); break;
      case 4: g.all.insert(g.all.begin() + static_cast<std::ptrdiff_t>(at), in_.number()); break;
      case 5: g.objects += in_.below(3) - 1; break;
      default: g.all.resize(at);
    }
  }

  // Errors are what is expected; they have to be typed, and those that speak of this heap do not come.
  template <class F>
  bool guarded(F&& f) {
    try {
      f();
      return true;
    } catch (const error& e) {
      switch (e.code()) {
        case errc::cache_full:
        case errc::agent_full:
        case errc::agent_lost:
        case errc::corrupt:
        case errc::not_found:
          std::fprintf(stderr, "%s\n", e.what());
          FM_CHECK(std::strstr(e.what(), "channel with fuzz") != nullptr,
                   "an error of this heap, and not what the other end says");
          break;
        default: break;
      }
      return false;
    }
  }
  std::vector<slot_t> receive(const sample& s) {
    std::vector<slot_t> slots;
    guarded([&] {
      received_.clear();
      if (s.each)
        received_ = core_->recv_each(*s.schema, {.within = duration{}});
      else
        received_.push_back(core_->recv(*s.schema, {.within = duration{}}));
      for (const auto& p : received_) slots.push_back(p.slot());
    });
    return slots;
  }
  void receive() {
    const sample& s = pick();
    const auto roots = receive(s);
    if (!roots.empty()) (void)written(*s.schema, roots, s.each, false);  // it can be walked
  }
  void require_same(const sample& s, std::span<const slot_t> roots, bool acyclic, const stream& g) {
    if (in_.below(8) == 0) FM_CHECK(world::get().h.evict_all() == errc::ok, "not all of it could be evicted");
    const stream again = written(*s.schema, roots, s.each, acyclic);
    FM_CHECK(again.objects == g.objects, "another number of objects than was sent");
    FM_CHECK(again.all == g.all, "another graph than was sent");
  }
  void send() {
    heap& h = world::get().h;
    const send_options o{.until = in_.below(2) == 0 ? delivery::sent : delivery::accepted, .within = duration{}};
    if (in_.below(2) == 0) {
      const auto p = h.array<char>(in_.byte() * 64u);
      guarded([&] { core_->send(p.slot(), schema_of<char[]>(), o); });
    } else {
      const auto p = h.make<leaf>({.value = 1});
      guarded([&] { core_->send(p.slot(), schema_of<leaf>(), o); });
    }
    guarded([&] { core_->flush(duration{}); });
  }

  input& in_;
  channel_options options_;
  std::shared_ptr<endpoint> end_;
  std::unique_ptr<channel_core> core_;
  std::vector<ptr<char[]>> received_;
  std::uint64_t sequence_ = 0, graph_ = 0, sent_bytes_ = 0, sent_parts_ = 0;
  bool answering_ = false;
  bool deaf_ = false;
  bool must_answer_ = false;
  bool honest_ = true;  ///< every message so far was the next part of a graph, whatever is in it
};

errc hostile_transport::tell(std::span<const std::byte> message) noexcept { return other_.heard(message); }

}  // namespace

// The heap logs what goes wrong with peers, and there is nothing else here.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  world& w = world::get();
  {
    input in(data, bytes);
    hostile_end other(in);
    while (!in.empty()) other.step();
  }
  w.look();
  return 0;
}

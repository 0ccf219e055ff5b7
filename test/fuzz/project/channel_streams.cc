// One end of a channel that receives over a connection or a ring of its own, as over tcp:// and shm://. Recorded streams of honest
// graphs, part after part with their heads, are changed anywhere: bytes, bits, lengths, pieces left out, doubled, put elsewhere. They
// come in pieces of any size between receives, with rests that go aside, goodbyes and the other messages of the session. Whatever
// comes: no sanitizer may object, errors are typed, a graph that nobody has changed is taken as it was sent, and the heap verifies
// clean after every input.
#include "channel/path/channel_messages.h"
#include <channel/path/ring.h>
#include <channel/path/stream.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "channel_world.h"
#include "hostile.h"

namespace {

using namespace fm;
using namespace fm::fuzz;
using namespace fm::detail;
using namespace fm::detail::channel_wire;
using bytes_t = std::vector<std::byte>;

/// The session says nothing back, and takes all.
class deaf_transport final : public channel_transport {
 public:
  std::span<std::byte> room(std::size_t bytes) override {
    buffer_.resize(std::max(buffer_.size(), bytes));
    return {buffer_.data(), bytes};
  }
  errc send(std::size_t, time_point) noexcept override { return errc::ok; }
  errc tell(std::span<const std::byte>) noexcept override { return errc::ok; }
  void drain(time_point) noexcept override {}
  void drop() noexcept override {}
  void close() noexcept override {}

 private:
  bytes_t buffer_;
};

/// The bytes of one graph on a connection: its parts, of at most so many words.
bytes_t recorded(const sample& s, std::uint64_t graph, std::uint64_t& sequence, std::size_t most) {
  bytes_t out;
  for (std::size_t at = 0, n = 0; n == 0 || at < s.honest.all.size(); ++n) {
    const std::size_t step = std::min(s.honest.all.size() - at, most - (n == 0 ? 1 : 0));
    head h = make(kind::part, graph);
    h.a = sequence++;
    h.flags = s.each ? flag_each : 0;
    if (n == 0) h.flags |= flag_first;
    if (at + step == s.honest.all.size()) {
      h.flags |= flag_last;
      h.b = s.honest.objects;
    }
    h.bytes = static_cast<std::uint32_t>((step + (n == 0 ? 1 : 0)) * 8);
    append(out, h);
    if (n == 0) append(out, s.schema->hash);
    const auto* const from = reinterpret_cast<const std::byte*>(s.honest.all.data() + at);
    out.insert(out.end(), from, from + step * 8);
    at += step;
  }
  return out;
}

class receiving_end {
 public:
  explicit receiving_end(input& in) : in_(in) {
    options_.window = 32u << 10;
    options_.window_parts = 16;
    options_.part = 2u << 10;
    options_.objects_max = 2000;
    options_.bytes_max = 128u << 10;
    options_.linger = duration{};
    const channel_terms terms = channel_terms::of(options_);
    end_ = std::make_shared<endpoint>(terms, "fuzz");
    end_->set_transport(std::make_unique<deaf_transport>());
    if (in_.below(3) == 0) {
      auto mine = std::make_unique<ring_pair>(terms.ring_bytes());
      const int fd = ::dup(mine->fd());
      theirs_ = std::make_unique<ring_pair>(ring_pair::mapped(fd, terms.ring_bytes()), terms.ring_bytes());
      end_->set_byte_path(std::move(mine));
    } else {
      int to[2], from[2];
      FM_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, to) == 0, "sockets");
      FM_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, from) == 0, "sockets");
      to_ = os::descriptor(to[0]);
      from_ = os::descriptor(from[0]);
      end_->set_byte_path(std::make_unique<stream_pair>(os::descriptor(from[1]), os::descriptor(to[1])));
    }
    core_ = std::make_unique<channel_core>(world::get().h.core().cache(), options_, nullptr, end_);
  }

  void step() {
    switch (in_.below(8)) {
      case 0: session_message(); break;
      case 1: receive(pick()); break;
      case 2: bring(in_.byte()); break;
      default: graph();
    }
  }

 private:
  const sample& pick() {
    const auto& all = world::get().samples;
    return all[in_.byte() % all.size()];
  }

  void graph() {
    const sample& s = pick();
    const std::size_t most = 2 + in_.below(250);
    bytes_t b = recorded(s, ++graph_, sequence_, most);
    const std::uint8_t how = in_.byte();
    for (std::uint32_t n = how % 4; n > 0; --n) change(b);
    coming_.insert(coming_.end(), b.begin(), b.end());
    bring(how < 200 ? coming_.size() : in_.number() * 8);
    honest_ = honest_ && coming_.empty() && how % 16 != 15;
    if (how % 16 == 15) return;  // nobody receives it now
    const auto roots = receive(s);
    if (!honest_) return;
    FM_CHECK(!roots.empty(), "an honest graph was not taken");
    const stream again = written(*s.schema, roots, s.each, false);
    FM_CHECK(again.objects == s.honest.objects && again.all == s.honest.all, "another graph than was sent");
  }

  void change(bytes_t& b) {
    honest_ = false;
    if (b.empty()) return;
    const std::size_t at = static_cast<std::size_t>(in_.word() % b.size());
    const auto from = b.begin() + static_cast<std::ptrdiff_t>(at);
    const auto n = static_cast<std::ptrdiff_t>(std::min<std::size_t>(b.size() - at, 1 + in_.byte()));
    switch (in_.below(7)) {
      case 0: b[at] = std::byte{in_.byte()}; break;
      case 1: b[at] ^= std::byte{1} << in_.below(8); break;
      case 2: b.erase(from, from + n); break;
      case 3: {
        const bytes_t twice(from, from + n);
        b.insert(from, twice.begin(), twice.end());
        break;
      }
      case 4: {
        const bytes_t any = in_.bytes(in_.below(48));
        b.insert(from, any.begin(), any.end());
        break;
      }
      case 5: {  // a word of the head or of the payload
        const std::uint64_t w = in_.number();
        std::memcpy(b.data() + at / 8 * 8, &w, std::min<std::size_t>(8, b.size() - at / 8 * 8));
        break;
      }
      default: b.resize(at);
    }
  }

  /// So much of what is under way comes. Over the ring it comes as messages, which is what a writer makes of it.
  void bring(std::size_t n) {
    n = std::min(n, coming_.size());
    if (theirs_ == nullptr) {
      const ssize_t sent = ::send(to_.get(), coming_.data(), n, MSG_DONTWAIT | MSG_NOSIGNAL);
      n = sent > 0 ? static_cast<std::size_t>(sent) : 0;
      place_ += n;
      coming_.erase(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(n));
      return;
    }
    for (std::size_t whole = sizeof(head); n >= whole && coming_.size() >= sizeof(head); whole = sizeof(head)) {
      head h;
      std::memcpy(&h, coming_.data(), sizeof h);
      whole = std::min<std::size_t>(sizeof h + h.bytes, coming_.size());
      const std::span<std::byte> room = theirs_->out.room(whole, 0);
      if (room.empty()) break;
      std::memcpy(room.data(), coming_.data(), whole);
      theirs_->out.publish(whole);
      coming_.erase(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(whole));
      n -= std::min(n, whole);
    }
  }

  /// What may come by the session beside the parts.
  void session_message() {
    honest_ = false;
    head h = make(static_cast<kind>(in_.below(10)), in_.number());
    bytes_t payload;
    switch (in_.below(4)) {
      case 0: {  // what is under way goes aside
        h = make(kind::aside);
        h.a = in_.rarely() ? in_.word() : place_ + in_.below(3);
        const std::size_t n = std::min<std::size_t>(coming_.size(), in_.byte() * 8u);
        payload.assign(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(n));
        coming_.erase(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(n));
        break;
      }
      case 1: h = make(kind::want), h.a = in_.number(), h.b = in_.number(); break;
      case 2:
        h.a = in_.number();
        h.b = in_.number();
        h.status = in_.byte() % 40;
        payload = in_.bytes(in_.below(64));
        break;
      default: payload = in_.bytes(in_.below(32));
    }
    h.bytes = static_cast<std::uint32_t>(payload.size());
    bytes_t message;
    append(message, h);
    message.insert(message.end(), payload.begin(), payload.end());
    if (deaf_) return;
    const errc e = end_->arrived(message);
    if (e == errc::ok) return;
    end_->broken(e, "the other end broke the rules");
    deaf_ = true;
  }

  std::vector<slot_t> receive(const sample& s) {
    std::vector<slot_t> slots;
    try {
      received_.clear();
      if (s.each)
        received_ = core_->recv_each(*s.schema, {.within = duration{}});
      else
        received_.push_back(core_->recv(*s.schema, {.within = duration{}}));
      for (const auto& p : received_) slots.push_back(p.slot());
    } catch (const error& e) {
      const errc c = e.code();
      const bool of_this_heap = c == errc::cache_full || c == errc::agent_full || c == errc::agent_lost ||
                                c == errc::corrupt || c == errc::not_found;
      FM_CHECK(!of_this_heap, "an error of this heap, and not of what came");
    }
    return slots;
  }

  input& in_;
  channel_options options_;
  os::descriptor to_, from_;
  std::unique_ptr<ring_pair> theirs_;
  std::shared_ptr<endpoint> end_;
  std::unique_ptr<channel_core> core_;
  std::vector<ptr<char[]>> received_;
  bytes_t coming_;  ///< recorded, and not here yet
  std::uint64_t place_ = 0, sequence_ = 0, graph_ = 0;
  bool deaf_ = false;
  bool honest_ = true;  ///< all that came is what was recorded, in order
};

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
    receiving_end end(in);
    while (!in.empty()) end.step();
  }
  w.look();
  return 0;
}

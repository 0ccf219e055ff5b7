// What the other end of a channel leaves where its parts are read: any bytes on a connection, any words in shared memory, between
// whatever else is done with them. Nothing that is shown may lie elsewhere than in what came, or be more than came.
#include <channel/path/ring.h>
#include <channel/path/stream.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <vector>

#include "hostile.h"

namespace {

using namespace fm;
using namespace fm::detail;
using found = byte_path_reader::found;

constexpr std::uint64_t most = sizeof(channel_wire::head) + channel_wire::text_bytes_max;

/// A connection's reader and writer, and who has the other ends.
class connections {
 public:
  connections() {
    int in[2], out[2];
    FM_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, in) == 0, "sockets");
    FM_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, out) == 0, "sockets");
    to_in_ = os::descriptor(in[0]);
    from_out_ = os::descriptor(out[0]);
    pair_ = std::make_unique<stream_pair>(os::descriptor(out[1]), os::descriptor(in[1]));
  }

  void run(fuzz::input& in) {
    byte_path_reader& r = pair_->reader();
    byte_path_writer& w = pair_->writer();
    std::uint64_t rest = 0;
    bool found_one = false;
    while (!in.empty()) {
      switch (in.below(9)) {
        case 0: {  // mostly a part
          auto h = channel_wire::make(channel_wire::kind::part, 1);
          h.bytes = static_cast<std::uint32_t>(in.rarely() ? in.word() : in.number() * 8);
          feed(&h, sizeof h);
          break;
        }
        case 1: {
          const auto any = in.bytes(in.below(64));
          feed(any.data(), any.size());
          break;
        }
        case 2: {
          const std::vector<std::byte> many(in.below(255) * 300);
          feed(many.data(), many.size());
          break;
        }
        case 3: {
          if (found_one) break;
          std::span<const std::byte> m;
          const found f = r.next(most, m, rest);
          if (f == found::broken) return;
          found_one = f == found::message;
          if (found_one) {
            FM_CHECK(!m.empty() && m.size() + rest <= most, "a message over its bound");
            shown(m);
          }
          break;
        }
        case 4: {
          const auto m = r.more();
          FM_CHECK(m.size() <= rest && m.size() % 8 == 0, "more than the rest");
          rest -= m.size();
          shown(m);
          break;
        }
        case 5: {
          std::vector<std::byte> to(in.below(255) * 64);
          const std::uint64_t n = r.more_into(to);
          FM_CHECK(n <= to.size() && n <= rest, "more than the rest");
          rest -= n;
          shown(std::span(to).first(n));
          break;
        }
        case 6:
          r.release();
          rest = 0;
          found_one = false;
          break;
        case 7: {
          const std::uint64_t place = in.rarely() ? in.word() : fed_ + in.below(16);
          auto bytes = in.bytes(in.below(64));
          const std::uint64_t n = bytes.size();
          if (r.take_aside(place, std::move(bytes))) aside_ += n;
          break;
        }
        default: {
          const auto any = in.bytes(in.below(80));
          [[maybe_unused]] const auto n = ::send(from_out_.get(), any.data(), any.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
          (void)w.answers();
        }
      }
    }
  }

 private:
  void feed(const void* from, std::size_t bytes) {
    const ssize_t n = ::send(to_in_.get(), from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) fed_ += static_cast<std::uint64_t>(n);
  }
  void shown(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) sum_ += static_cast<unsigned>(b);  // where the sanitizers see it
    shown_ += bytes.size();
    FM_CHECK(shown_ <= fed_ + aside_, "more was shown than has come");
  }

  os::descriptor to_in_, from_out_;
  std::unique_ptr<stream_pair> pair_;
  std::uint64_t fed_ = 0, aside_ = 0, shown_ = 0;
  volatile unsigned sum_ = 0;
};

/// Shared memory with another process that keeps to nothing.
void run_ring(fuzz::input& in) {
  constexpr std::uint64_t bytes = 4096;
  auto shared = std::make_unique<ring_shared>();
  std::vector<std::uint64_t> data(bytes / 8);
  auto* const base = reinterpret_cast<std::byte*>(data.data());
  ring_writer w({shared.get(), base, bytes});
  ring_reader r({shared.get(), base, bytes});
  const auto inside = [&](std::span<const std::byte> s) {
    return s.data() >= base && s.data() + s.size() <= base + bytes;
  };
  while (!in.empty()) {
    switch (in.below(6)) {
      case 0: shared->written.store(in.rarely() ? in.word() : in.number() * 64); break;
      case 1: shared->taken.store(in.rarely() ? in.word() : in.number() * 64); break;
      case 2: shared->again.store(in.rarely() ? in.word() : in.number() * 64); break;
      case 3: data[in.word() % data.size()] = in.rarely() ? ~std::uint64_t{0} : in.number(); break;
      case 4: {
        std::span<const std::byte> m;
        const found f = r.next(1 + in.number(), m);
        if (f == found::broken) return;
        if (f == found::message) {
          FM_CHECK(inside(m), "a message outside of the ring");
          r.release();
        }
        break;
      }
      default: {
        if (w.broken()) return;
        const std::uint64_t n = 1 + in.number() % bytes;
        const auto room = w.room(n, in.below(2) * 64);
        if (room.empty()) break;
        FM_CHECK(room.size() == n && inside(room), "room outside of the ring");
        std::memset(room.data(), 1, room.size());
        w.publish(n);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  fuzz::input in(data, bytes);
  if ((in.byte() & 1) != 0) {
    run_ring(in);
  } else {
    connections c;
    c.run(in);
  }
  return 0;
}

// Channels over shm://, whose parts go through memory of both processes: what is refused there, another end that writes into that
// memory what it likes, and one that sends descriptors.
#include <poll.h>

#include <filesystem>
#include <iterator>

#include "channel/impostor.h"
#include "channel/path/terms.h"
#include "fabric/socket/socket.h"
#include "fabric/wire/wire.h"

using namespace channel_test;
using fm::errc;
using namespace fm::detail::channel_wire;

namespace {

struct shared {
  fm::heap to{small()};
  fm::channel_listener listener{to, fresh_url("shm"), narrow};
  impostor other{listener.url(), flag_ring};
  fm::channel rx{listener.accept()};

  void require_ended() {
    REQUIRE(thrown_by([&] { rx.recv<node>(); }).code == errc::bad_frame);
    REQUIRE(other.is_left());
    REQUIRE(thrown_by([&] { rx.recv<node>(); }).code == errc::bad_frame);
    REQUIRE(objects_left(to) == 0);
    require_sound(to);
  }
};

}  // namespace

TEST_CASE("what is written into shared memory is checked, and ends the channel at both ends") {
  shared s;
  SECTION("a good graph, and then what is none") {
    s.other.part(0, flag_first | flag_last, {7, 0, 0}, 1);
    REQUIRE(s.rx.recv<node>()->id == 7);
    s.other.part(1, flag_first | flag_last, {1, 9, 0}, 1, 2);
    s.require_ended();
  }
  SECTION("a reference to what is not there") {
    s.other.part(0, flag_first | flag_last, {1, 9, 0}, 1);
    s.require_ended();
  }
  SECTION("a part out of its turn") {
    s.other.part(1, flag_first | flag_last, {1, 0, 0}, 1);
    s.require_ended();
  }
  SECTION("a part that is larger than was agreed") {
    s.other.part(0, flag_first, std::vector<std::uint64_t>(narrow.part / 8 + 1), 0);
    s.require_ended();
  }
  SECTION("what is no part") {
    s.other.say(make(kind::credit));
    s.require_ended();
  }
  SECTION("half a head") {
    REQUIRE(!s.other.ring->out.room(20, 0).empty());
    s.other.ring->out.publish(20);
    s.require_ended();
  }
}

TEST_CASE("a receiver that answers what cannot be ends the channel") {
  for (const fm::detail::part_answers lie :
       {fm::detail::part_answers{1 << 20, 1, 0, 0}, {40, 9, 0, 0}, {40, 1, 2, 0}, {0, 0, ~std::uint64_t{0}, 0}}) {
    shared s;
    beside sender([&] { s.rx.send(s.to.make<node>({.id = 1})); });
    std::span<const std::byte> message;
    auto& in = s.other.ring->in;
    for (const fm::time_point until = fm::clock::now() + std::chrono::minutes(10);;) {
      const std::uint32_t seen = in.watch();
      if (in.next(1 << 20, message) == fm::detail::ring_reader::found::message) break;
      REQUIRE(fm::clock::now() < until);
      in.wait(seen, until);
    }
    in.release();
    in.answer(lie);
    REQUIRE(sender.join() == errc::bad_frame);
    REQUIRE(s.other.is_left());
  }
}

TEST_CASE("refusals among many graphs that nobody waits for are all heard, and of those graphs") {
  for (const bool listener_receives : {true, false}) {
    ends e("shm");
    fm::channel& tx = listener_receives ? e.tx : e.rx;
    fm::channel& rx = listener_receives ? e.rx : e.tx;
    fm::heap& h = listener_receives ? e.from : e.to;
    const std::uint64_t count = sanitized ? 2'000 : 20'000;
    const auto is_wrong = [](std::uint64_t i) { return i % 50 == 3 || i % 50 == 4; };
    std::uint64_t heard = 0;
    beside sender([&] {
      const auto one = h.make<node>({.id = 1});
      const auto other = h.make<double>(1.0);
      const auto until_heard = [&](auto&& f) {  // what is thrown is a refusal of an earlier graph
        for (;;) {
          try {
            return f();
          } catch (const fm::error& error) {
            if (error.code() != errc::layout_mismatch) throw;
            ++heard;
          }
        }
      };
      for (std::uint64_t i = 0; i < count; ++i)
        until_heard([&] {
          if (is_wrong(i))
            tx.send(other, {.until = fm::delivery::sent});
          else
            tx.send(one, {.until = fm::delivery::sent});
        });
      until_heard([&] { tx.flush(); });
    });
    std::uint64_t right = 0, wrong = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const thrown t = thrown_by([&] { right += rx.recv<node>()->id; });
      wrong += t.code == errc::layout_mismatch && is_wrong(i);
    }
    require_ok(sender);
    REQUIRE(right + wrong == count);
    REQUIRE(wrong == count / 25);
    REQUIRE(heard == wrong);
  }
}

TEST_CASE("a window of shared memory is as large as it says") {
  // Both ends send most of a window before either receives.
  const fm::channel_options o{.window = 1_MiB, .window_parts = 64, .part = 32_KiB};
  ends e("shm", o, small(16_MiB), small(16_MiB));
  constexpr std::size_t numbers = 7 * 128 * 1024 / 8;
  for (int round = 0; round < 3; ++round) {
    e.tx.send(e.from.array<double>(numbers), {.until = fm::delivery::sent, .within = std::chrono::seconds(60)});
    e.rx.send(e.to.array<double>(numbers), {.until = fm::delivery::sent, .within = std::chrono::seconds(60)});
    REQUIRE(e.rx.recv<double[]>()->size() == numbers);
    REQUIRE(e.tx.recv<double[]>()->size() == numbers);
  }
  REQUIRE(e.tx.stats().waits_for_credit == 0);
}

namespace {

namespace wire = fm::fabric::wire;

/// Somebody who listens, agrees to what a connector asks for, and then asks for descriptions: each answer to one brings a
/// descriptor.
class sends_descriptors {
 public:
  explicit sends_descriptors(int asks)
      : url_(fresh_url("shm")),
        listening_(fm::fabric::listen_socket(fm::value_or_throw(fm::fabric::parse_url(url_)), url_, false, url_)),
        ring_(terms_.ring_bytes()),
        thread_([this, asks] {
          try {
            serve(asks);
          } catch (const fm::error&) {  // the connector has left
          }
        }) {}
  ~sends_descriptors() {
    if (thread_.joinable()) answers();
    ::unlink(url_.c_str() + std::strlen("shm://"));
  }
  sends_descriptors(const sends_descriptors&) = delete;
  sends_descriptors& operator=(const sends_descriptors&) = delete;
  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  /// Lets it begin to ask, and waits until it has sent its last answer; how many there were.
  int answers() noexcept {
    begin_ = true;
    begin_.notify_all();
    thread_.join();
    return answers_;
  }

 private:
  void receive(void* to, std::size_t bytes) {
    const fm::errc e = fm::fabric::receive_all(socket_.get(), {static_cast<std::byte*>(to), bytes},
                                               fm::clock::now() + std::chrono::minutes(1));
    if (e != fm::errc::ok) throw fm::error(e, "the connector");
  }
  void send(const void* from, std::size_t bytes) {
    const fm::errc e = fm::fabric::send_all(socket_.get(), {static_cast<const std::byte*>(from), bytes},
                                            fm::clock::now() + std::chrono::minutes(1));
    if (e != fm::errc::ok) throw fm::error(e, "the connector");
  }
  void answer(const wire::frame_header& to, std::span<const std::byte> payload) {
    auto h = wire::make_header(wire::frame_type::answer, std::uint32_t(payload.size()));
    h.op = to.op;
    h.offset = 1;
    h.flags = wire::flag_key | wire::flag_fd;
    const iovec first{&h, 1};
    if (fm::fabric::send_some(socket_.get(), {&first, 1}, ring_.fd()).outcome != fm::fabric::io_result::progress)
      throw fm::error(errc::disconnected, "the connector");
    send(reinterpret_cast<const std::byte*>(&h) + 1, sizeof h - 1);
    send(payload.data(), payload.size());
  }
  void ask() {
    const auto h = wire::make_header(wire::frame_type::notice, sizeof(head));
    const head what = make(kind::ask);
    send(&h, sizeof h);
    send(&what, sizeof what);
  }
  void serve(int asks) {
    if (!fm::fabric::wait_socket(listening_.get(), POLLIN, fm::clock::now() + std::chrono::minutes(1))) return;
    std::string name;
    socket_ = fm::fabric::accept_socket(listening_.get(), true, name);
    wire::frame_header h{};
    wire::hello_body hello{};
    receive(&h, sizeof h);
    receive(&hello, sizeof hello);
    const auto welcome = wire::make_header(wire::frame_type::welcome, sizeof(wire::welcome_body));
    const wire::welcome_body body{{1, 2}, 0, 3, 1u << 20, 4096};
    send(&welcome, sizeof welcome);
    send(&body, sizeof body);
    for (std::vector<std::byte> payload; answers_ < asks;) {
      receive(&h, sizeof h);
      payload.resize(h.length);
      receive(payload.data(), payload.size());
      if (h.type != std::uint8_t(wire::frame_type::message)) continue;
      head message{};
      std::memcpy(&message, payload.data(), sizeof message);
      if (message.kind == std::uint8_t(kind::hello)) {
        head agreed = terms_.hello();
        agreed.flags = flag_ring;
        answer(h, std::as_bytes(std::span(&agreed, 1)));
        begin_.wait(false);
      } else {
        answer(h, {});
        ++answers_;
      }
      if (answers_ < asks) ask();
    }
  }

  const fm::detail::channel_terms terms_ = fm::detail::channel_terms::of(narrow);
  std::string url_;
  fm::os::descriptor listening_, socket_;
  fm::detail::ring_pair ring_;
  std::atomic<bool> begin_{false};
  int answers_ = 0;
  std::thread thread_;
};

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("descriptors that nobody asked for do not stay open") {
  constexpr int asks = 200;
  fm::heap from(small());
  sends_descriptors other(asks);
  const fm::channel tx = fm::channel::connect(from, other.url(), narrow);
  const std::ptrdiff_t before = open_descriptors();
  REQUIRE(other.answers() == asks);
  // The last ones may be on their way.
  const auto give_up = fm::clock::now() + std::chrono::seconds(30);
  while (open_descriptors() > before + asks / 2 && fm::clock::now() < give_up) std::this_thread::yield();
  CHECK(open_descriptors() <= before + asks / 2);
}

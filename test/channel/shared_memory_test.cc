// Channels over shm://, whose parts go through memory of both processes: what is refused there, and another end that writes into that
// memory what it likes.
#include "channel/ring.h"
#include "impostor.h"

using namespace channel_test;
using fm::errc;
using fm::detail::ring_pair;
using namespace fm::detail::channel_wire;

namespace {

/// Somebody who connects, maps the memory, and then does as he likes.
class insider final : public fm::fabric::session_events {
 public:
  explicit insider(const std::string& url) {
    fm::fabric::session_options o;
    o.reconnect_for = fm::duration{};
    session_ = fm::fabric::connect(url, o, *this);
    head h = make(kind::hello);
    h.flags = flag_ring;
    h.a = narrow.window;
    h.b = std::uint64_t{narrow.part} << 32 | narrow.window_parts;
    fm::fabric::request r;
    r.kind = fm::fabric::op_kind::message;
    r.on = fm::fabric::lane::control;
    r.sg[0] = {&h, sizeof h};
    r.sg_count = 1;
    session_->post(r);
    session_->wait(r);
    REQUIRE(r.status == errc::ok);
    REQUIRE(r.reply_key.fd >= 0);
    const auto bytes = ring_pair::bytes_for(narrow.window, narrow.window_parts, narrow.part);
    ring = std::make_unique<ring_pair>(ring_pair::mapped(r.reply_key.fd, bytes), bytes);
  }
  ~insider() override { session_->close(); }
  insider(const insider&) = delete;
  insider& operator=(const insider&) = delete;

  void publish(head h, std::vector<std::uint64_t> words) {
    if ((h.flags & flag_first) != 0) words.insert(words.begin(), fm::detail::schema_of<node>().hash);
    h.bytes = static_cast<std::uint32_t>(words.size() * 8);
    const std::span<std::byte> room = ring->out.room(sizeof h + h.bytes, 0);
    REQUIRE(!room.empty());
    std::memcpy(room.data(), &h, sizeof h);
    if (h.bytes != 0) std::memcpy(room.data() + sizeof h, words.data(), h.bytes);
    ring->out.publish(sizeof h + h.bytes);
  }
  void part(std::uint64_t sequence, std::uint16_t flags, std::vector<std::uint64_t> words, std::uint64_t objects) {
    head h = make(kind::part, 1);
    h.flags = flags;
    h.a = sequence;
    h.b = objects;
    publish(h, std::move(words));
  }
  /// Whether the other end has said goodbye, or ended the connection, within a minute.
  bool is_left() {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, fm::clock::now() + std::chrono::seconds(60), [&] { return left_; });
  }

  std::unique_ptr<ring_pair> ring;

 private:
  errc connected(fm::fabric::session&, std::uint32_t) override { return errc::ok; }
  void disconnected(fm::fabric::session&, std::uint32_t, errc) noexcept override { leave(); }
  void lost(fm::fabric::session&, errc) noexcept override { leave(); }
  void notice(fm::fabric::session&, std::span<const std::byte> message) noexcept override {
    head h{};
    std::span<const std::byte> text;
    if (decode(message, h, text) == errc::ok && h.kind == static_cast<std::uint8_t>(kind::bye)) leave();
  }
  void leave() noexcept {
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool left_ = false;
  std::unique_ptr<fm::fabric::session> session_;
};

struct shared {
  fm::heap to{small()};
  fm::channel_listener listener{to, fresh_url("shm"), narrow};
  insider other{listener.url()};
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
    head h = make(kind::part, 2);
    h.flags = flag_first | flag_last;
    h.a = 1;
    h.b = 1;
    s.other.publish(h, {1, 9, 0});
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
    s.other.publish(make(kind::credit), {});
    s.require_ended();
  }
  SECTION("half a head") {
    REQUIRE(!s.other.ring->out.room(20, 0).empty());
    s.other.ring->out.publish(20);
    s.require_ended();
  }
}

TEST_CASE("a receiver that answers what cannot be ends the channel") {
  for (const fm::detail::ring_answers lie :
       {fm::detail::ring_answers{1 << 20, 1, 0}, {100, 9, 0}, {100, 1, 2}, {0, 0, ~std::uint64_t{0}}}) {
    shared s;
    beside sender([&] { s.rx.send(s.to.make<node>({.id = 1})); });
    std::span<const std::byte> message;
    const fm::time_point until = fm::clock::now() + std::chrono::seconds(60);
    while (s.other.ring->in.next(1 << 20, message) != fm::detail::ring_reader::found::message &&
           fm::clock::now() < until)
      s.other.ring->in.sleep(s.other.ring->in.watch(), fm::clock::now() + std::chrono::milliseconds(10));
    s.other.ring->in.release();
    s.other.ring->in.answer(lie);
    REQUIRE(sender.join() == errc::bad_frame);
    REQUIRE(s.other.is_left());
  }
}

TEST_CASE("after a refusal, as many graphs as one likes go without being waited for") {
  for (const bool listener_receives : {true, false}) {
    ends e("shm");
    fm::channel& tx = listener_receives ? e.tx : e.rx;
    fm::channel& rx = listener_receives ? e.rx : e.tx;
    fm::heap& h = listener_receives ? e.from : e.to;
    const std::uint64_t count = sanitized ? 2'000 : 20'000;
    beside sender([&] {
      tx.send(h.make<double>(1.0), {.until = fm::delivery::sent});
      const auto one = h.make<node>({.id = 1});
      for (std::uint64_t i = 0; i < count; ++i) {
        try {
          tx.send(one, {.until = fm::delivery::sent});
        } catch (const fm::error& error) {  // that the first one was refused
          if (error.code() != errc::layout_mismatch) throw;
          tx.send(one, {.until = fm::delivery::sent});
        }
      }
      tx.flush();
    });
    REQUIRE(thrown_by([&] { rx.recv<node>(); }).code == errc::layout_mismatch);
    std::uint64_t right = 0;
    for (std::uint64_t i = 0; i < count; ++i) right += rx.recv<node>()->id;
    REQUIRE(right == count);
    require_ok(sender);
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

// A hostile sender for the channel tests: it speaks the wire format over a real session, and says whatever a test wants.
#pragma once

#include "channel/path/channel_messages.h"
#include <sys/socket.h>

#include <cerrno>

#include <condition_variable>
#include <mutex>

#include "channel/fixture.h"
#include "channel/path/ring.h"

namespace channel_test {

const fm::channel_options narrow{.window = 16_KiB, .window_parts = 8, .part = 4_KiB};

/// Somebody who connects and says what he likes, and remembers what he is told. Over shared memory, if he asks for it, what he says
/// of graphs lies in the ring; and over connections of their own, if he asks for those and opens them.
class impostor final : public fm::fabric::session_events {
 public:
  /// `asks_for`: the flags of his hello; then he opens the streams of these indices.
  explicit impostor(const std::string& url, std::uint16_t asks_for = 0, std::vector<std::uint16_t> streams = {})
      : asks_for_(asks_for), streams_(std::move(streams)) {
    namespace wire = fm::detail::channel_wire;
    fm::fabric::session_options o;
    o.reconnect_for = fm::duration{};
    session_ = fm::fabric::connect(url, o, *this);
    REQUIRE(welcomed_ == fm::errc::ok);
    const bool shares_memory = asks_for == wire::flag_ring;
    REQUIRE((memory_ >= 0) == shares_memory);
    if (!shares_memory) return;
    const auto bytes = fm::detail::ring_pair::bytes_for(narrow.window, narrow.window_parts, narrow.part);
    ring = std::make_unique<fm::detail::ring_pair>(fm::detail::ring_pair::mapped(memory_, bytes), bytes);
  }
  ~impostor() override { session_->close(); }
  impostor(const impostor&) = delete;
  impostor& operator=(const impostor&) = delete;

  /// What comes of a message: ok, or how the connection ended; and the descriptor that came with the answer.
  fm::errc say(fm::detail::channel_wire::head h, const std::vector<std::uint64_t>& words = {}, int* fd = nullptr) {
    std::vector<std::byte> message(sizeof h + words.size() * 8);
    h.bytes = static_cast<std::uint32_t>(words.size() * 8);
    std::memcpy(message.data(), &h, sizeof h);
    if (!words.empty()) std::memcpy(message.data() + sizeof h, words.data(), words.size() * 8);
    if (ring) {
      const std::span<std::byte> room = ring->out.room(message.size(), 0);
      REQUIRE(!room.empty());
      std::memcpy(room.data(), message.data(), message.size());
      ring->out.publish(message.size());
      return fm::errc::ok;
    }
    if (!sockets.empty()) {
      // The other end may have left in the middle.
      for (std::size_t at = 0; at < message.size();) {
        const ssize_t n = ::send(sockets[0].get(), message.data() + at, message.size() - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) break;
        at += n < 0 ? 0 : static_cast<std::size_t>(n);
      }
      return fm::errc::ok;
    }
    return post(*session_, fm::fabric::lane::bulk, message, fd);
  }
  /// Ends a thread that sends into a stream which nobody reads any more.
  void end_streams() {
    for (const auto& s : sockets) ::shutdown(s.get(), SHUT_RDWR);
  }
  /// The same by the session, whatever he asked for.
  fm::errc message(fm::detail::channel_wire::head h, const std::vector<std::uint64_t>& words) {
    std::vector<std::byte> m(sizeof h + words.size() * 8);
    h.bytes = static_cast<std::uint32_t>(words.size() * 8);
    std::memcpy(m.data(), &h, sizeof h);
    std::memcpy(m.data() + sizeof h, words.data(), words.size() * 8);
    return post(*session_, fm::fabric::lane::bulk, m, nullptr);
  }
  /// What the receiver says of a graph; timed_out when it says nothing.
  fm::errc verdict(std::uint64_t graph) {
    std::unique_lock lock(mutex_);
    const bool heard = changed_.wait_until(lock, fm::clock::now() + std::chrono::minutes(10),
                                           [&] { return verdicts_.contains(graph); });
    return heard ? verdicts_[graph] : fm::errc::timed_out;
  }
  /// Whether the other end has said goodbye, or ended the connection, within a minute.
  bool is_left() {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, fm::clock::now() + std::chrono::minutes(10), [&] { return left_; });
  }
  /// A part of graph 1 of T's.
  template <class T = node>
  fm::errc part(std::uint64_t sequence, std::uint16_t flags, std::vector<std::uint64_t> words,
                std::uint64_t objects = 0, std::uint64_t graph = 1) {
    auto h = fm::detail::channel_wire::make(fm::detail::channel_wire::kind::part, graph);
    h.flags = flags;
    h.a = sequence;
    h.b = objects;
    if ((flags & fm::detail::channel_wire::flag_first) != 0)
      words.insert(words.begin(), fm::detail::schema_of<T>().hash);
    return say(h, words);
  }

  std::unique_ptr<fm::detail::ring_pair> ring;
  std::vector<fm::os::descriptor> sockets;  ///< of the streams

 private:
  static fm::errc post(fm::fabric::session& s, fm::fabric::lane on, std::span<std::byte> message, int* fd) {
    fm::fabric::request r;
    r.kind = fm::fabric::op_kind::message;
    r.on = on;
    r.sg[0] = {message.data(), message.size()};
    r.sg_count = 1;
    s.post(r);
    s.wait(r);
    if (fd != nullptr) *fd = r.reply_key.fd;
    return r.status;
  }
  fm::errc connected(fm::fabric::session& s, std::uint32_t) override {
    namespace wire = fm::detail::channel_wire;
    auto h = wire::make(wire::kind::hello);
    h.flags = asks_for_;
    h.a = narrow.window;
    h.b = std::uint64_t{narrow.part} << 32 | narrow.window_parts;
    welcomed_ = post(s, fm::fabric::lane::control, std::as_writable_bytes(std::span(&h, 1)), &memory_);
    for (const std::uint16_t index : streams_) {
      fm::os::descriptor socket;
      if (s.open_stream(index, fm::clock::now() + std::chrono::minutes(10), socket) != fm::errc::ok) break;
      sockets.push_back(std::move(socket));
    }
    return fm::errc::ok;
  }
  void disconnected(fm::fabric::session&, std::uint32_t, fm::errc) noexcept override { leave(); }
  void lost(fm::fabric::session&, fm::errc) noexcept override { leave(); }
  void notice(fm::fabric::session&, std::span<const std::byte> message) noexcept override {
    namespace wire = fm::detail::channel_wire;
    wire::head h{};
    std::span<const std::byte> text;
    if (wire::decode(message, h, text) != fm::errc::ok) return;
    if (h.kind == static_cast<std::uint8_t>(wire::kind::bye)) leave();
    if (h.kind != static_cast<std::uint8_t>(wire::kind::verdict)) return;
    const std::lock_guard lock(mutex_);
    verdicts_[h.number] = static_cast<fm::errc>(h.status);
    changed_.notify_all();
  }
  void leave() noexcept {
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, fm::errc> verdicts_;
  bool left_ = false;
  const std::uint16_t asks_for_;
  const std::vector<std::uint16_t> streams_;
  fm::errc welcomed_ = fm::errc::timed_out;
  int memory_ = -1;
  std::unique_ptr<fm::fabric::session> session_;
};

struct deceived {
  fm::heap to{small()};
  fm::channel_listener listener{to, "tcp://127.0.0.1:0", narrow};
  impostor sender{listener.url()};
  fm::channel rx{listener.accept()};

  void require_clean() {
    REQUIRE(objects_left(to) == 0);
    require_sound(to);
  }
};

}  // namespace channel_test

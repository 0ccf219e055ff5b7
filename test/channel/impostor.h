// A hostile sender for the channel tests: it speaks the wire format over a real session, and says whatever a test wants.
#pragma once

#include <farmem/channel/wire.h>

#include <condition_variable>
#include <mutex>

#include "fixture.h"

namespace channel_test {

const fm::channel_options narrow{.window = 16_KiB, .window_parts = 8, .part = 4_KiB};

/// Somebody who connects and says what he likes, and remembers the last verdict.
class impostor final : public fm::fabric::session_events {
 public:
  explicit impostor(const std::string& url) {
    fm::fabric::session_options o;
    o.reconnect_for = fm::duration{};
    session_ = fm::fabric::connect(url, o, *this);
    auto h = fm::detail::channel_wire::make(fm::detail::channel_wire::kind::hello);
    h.a = 16_KiB;
    h.b = std::uint64_t{4_KiB} << 32 | 8;
    REQUIRE(say(h) == fm::errc::ok);
  }
  ~impostor() override { session_->close(); }
  impostor(const impostor&) = delete;
  impostor& operator=(const impostor&) = delete;

  /// What comes of a message: ok, or how the connection ended.
  fm::errc say(fm::detail::channel_wire::head h, const std::vector<std::uint64_t>& words = {}) {
    std::vector<std::byte> message(sizeof h + words.size() * 8);
    h.bytes = static_cast<std::uint32_t>(words.size() * 8);
    std::memcpy(message.data(), &h, sizeof h);
    if (!words.empty()) std::memcpy(message.data() + sizeof h, words.data(), words.size() * 8);
    fm::fabric::request r;
    r.kind = fm::fabric::op_kind::message;
    r.on = fm::fabric::lane::bulk;
    r.sg[0] = {message.data(), message.size()};
    r.sg_count = 1;
    session_->post(r);
    session_->wait(r);
    return r.status;
  }
  /// What the receiver says of a graph; timed_out when it says nothing.
  fm::errc verdict(std::uint64_t graph) {
    std::unique_lock lock(mutex_);
    const bool heard = changed_.wait_until(lock, fm::clock::now() + std::chrono::seconds(60),
                                           [&] { return verdicts_.contains(graph); });
    return heard ? verdicts_[graph] : fm::errc::timed_out;
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

 private:
  fm::errc connected(fm::fabric::session&, std::uint32_t) override { return fm::errc::ok; }
  void disconnected(fm::fabric::session&, std::uint32_t, fm::errc) noexcept override {}
  void lost(fm::fabric::session&, fm::errc) noexcept override {}
  void notice(fm::fabric::session&, std::span<const std::byte> message) noexcept override {
    fm::detail::channel_wire::head h{};
    std::span<const std::byte> text;
    if (fm::detail::channel_wire::decode(message, h, text) != fm::errc::ok) return;
    if (h.kind != static_cast<std::uint8_t>(fm::detail::channel_wire::kind::verdict)) return;
    const std::lock_guard lock(mutex_);
    verdicts_[h.number] = static_cast<fm::errc>(h.status);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, fm::errc> verdicts_;
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

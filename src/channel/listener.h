// The listener's end: a fabric service whose peers become endpoints when they have said hello, and wait to be accepted.
//
// The core of a listener lives as long as a listener or a channel that it accepted; it is destroyed by a thread of the
// program, never by the fabric's, because that stops the fabric's. It opens nothing to one-sided operations. Its
// listener has one thread, which makes all calls of the service; over tcp:// the streams of a peer come on it, too.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"

#include "endpoint.h"

namespace fm::detail {

/// A peer's way out, which ends before the peer does.
class peer_transport final : public channel_transport {
 public:
  struct way {
    std::mutex mutex;
    fabric::peer* peer = nullptr;  ///< null when it is gone
  };
  explicit peer_transport(std::shared_ptr<way> w) : way_(std::move(w)) {}

  std::span<std::byte> room(std::size_t bytes) override;
  errc send(std::size_t bytes, time_point deadline) noexcept override;
  errc tell(std::span<const std::byte> message) noexcept override;
  void drain(time_point) noexcept override {}
  void drop() noexcept override;
  /// Who connected may stay, and would keep his place among channels_max and all that belongs to the channel.
  void close() noexcept override;

 private:
  std::shared_ptr<way> way_;
  std::vector<std::byte> buffer_;
};

class channel_listener_core final : public fabric::service {
 public:
  /// Listens on a URL; "local:NAME" is known in this process only. Throws as fabric::listen, invalid_argument for a
  /// name in use.
  static std::shared_ptr<channel_listener_core> open(std::string_view url, const channel_options& options);
  /// The listener on "local:NAME"; throws unreachable.
  static std::shared_ptr<channel_listener_core> find(std::string_view url);
  ~channel_listener_core() override;

  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  /// The next end that said hello; null at the deadline, or when nobody is let in any more, which sets `shut`.
  std::shared_ptr<endpoint> accept(time_point deadline, bool& shut);
  /// Lets nobody in from here on, and turns away who waits.
  void shut() noexcept;
  /// This is a child, after fork, of the process that listens: it ends nothing and hears nobody.
  [[nodiscard]] bool is_parents() const noexcept { return opened_in_ != os::fork_depth(); }

  // fabric::service
  errc connected(fabric::peer& p) noexcept override;
  void disconnected(fabric::peer& p) noexcept override;
  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override;
  std::byte* memory(fabric::peer&, const fabric::remote&, std::uint64_t, fabric::access) noexcept override {
    return nullptr;
  }
  void memory_done(fabric::peer&, std::uint32_t) noexcept override {}
  errc stream(fabric::peer& p, std::uint16_t index, os::descriptor socket) noexcept override;

 private:
  struct connection {
    std::shared_ptr<endpoint> end;
    std::shared_ptr<peer_transport::way> way;
    os::descriptor parts_in;         ///< the first stream, until the second is here, too
    bool waits_for_streams = false;  ///< who connected has said that they come; until then nobody accepts the end
  };
  channel_listener_core(std::string_view url, const channel_options& options);
  errc hello(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out);
  /// Its end can be accepted.
  errc let_in(connection& c);

  const channel_options options_;
  const std::uint32_t opened_in_ = os::fork_depth();
  std::string url_;
  std::mutex mutex_;
  std::condition_variable changed_;
  /// At most channels_max, a place each. Under the lock and not in a lock-free queue: the one that accepts sleeps until
  /// there is one, and a refusal has to know how many there are.
  std::deque<std::shared_ptr<endpoint>> waiting_;
  std::uint32_t connections_ = 0;
  bool shut_ = false;
  std::unique_ptr<fabric::listener> listener_;
};

}  // namespace fm::detail

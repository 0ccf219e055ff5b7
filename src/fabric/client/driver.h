// The life of a session, shared by all transports: the session thread, its phases, reconnecting with jittered backoff,
// generations, notices and the calls to session_events. A transport derives from `driver` and supplies the connection.
//
//   connecting ──dial──► opening ──events.connected──► up ──break──► broken ──hang_up, events.disconnected──► down
//       │ failed                │ failed: hang_up                                                        │  ▲
//       ▼ (connect throws)      ▼ as a failed dial                          opening ◄──dial──────────────┤  │ backoff
//     lost                                                                  lost ◄──reconnect_for over───┴──┘
//   any ──close──► closed
//
// Invariants: events are called by the session thread only, one at a time; every connected(g) that returned ok is
// followed by one disconnected(g), unless the session is closed, also if the connection breaks before it is up, and
// before connect throws because of that; when disconnected(g) is called, every request of generation g is done; close()
// calls no event.
#pragma once

#include "fabric/wire/url.h"
#include "os/os.h"
#include "session.h"
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "completion.h"

namespace fm::fabric {

class driver : public session {
 public:
  driver(std::string url, const session_options& options, session_events& events);
  ~driver() override;
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;

  /// Runs the first attempt on the session thread. Throws fm::error naming the URL when it fails.
  void start();

  [[nodiscard]] session_state state() const noexcept override;
  [[nodiscard]] std::uint32_t generation() const noexcept override {
    return generation_.load(std::memory_order_acquire);
  }
  [[nodiscard]] const std::string& url() const noexcept override {
    return places_[place_.load(std::memory_order_acquire)].url;
  }
  void drop_connection(std::uint32_t g) noexcept override;
  void close() noexcept override;
  void progressed() noexcept override;

 protected:
  enum class phase : std::uint32_t { connecting, opening, up, broken, down, lost, closed };
  static constexpr std::size_t notices_max = 256;  ///< queued for events.notice; a peer never has more outstanding

  // ---- what a transport supplies; all called by the session thread ----
  /// Makes a connection, which will be of `generation`. On failure nothing is left of it. May throw. An answer of the
  /// peer is progress: then the rest has time until attempt_deadline().
  virtual errc dial(std::uint32_t generation, time_point deadline) = 0;
  /// Ends the connection: when it returns, every request posted on it is done (`why` for those that had no outcome).
  virtual void hang_up(errc why) noexcept = 0;
  /// Handles whatever has come on lanes that nobody waits on; returns after a wake(), after some I/O, or at `until`.
  virtual void serve(time_point until) noexcept = 0;
  /// Makes everybody who is blocked on the connection of that generation look up. Called with no lock held, from any
  /// thread; a newer connection may stand by then, and is left alone.
  virtual void interrupt(std::uint32_t /*generation*/, errc /*why*/) noexcept {}
  /// A notice has been handled by its owner.
  virtual void notice_handled() noexcept {}

  /// What dial would add to the error that it returns, for whoever reads start()'s exception or the log.
  void explain(std::string text) { explanation_ = std::move(text); }
  /// Marks the connection of generation `g` as broken, if it still stands, and wakes the session thread. From any
  /// thread.
  void break_connection(std::uint32_t g, errc why) noexcept;
  /// ok when a request on `on` may start now; otherwise what it completes with.
  [[nodiscard]] errc admit(lane on) const noexcept;
  [[nodiscard]] bool on_session_thread() const noexcept { return std::this_thread::get_id() == thread_id_.load(); }
  /// Default deadline of a request that names none, or its own, never later than the attempt that is being made.
  [[nodiscard]] time_point deadline_of(const request& r, time_point now) const noexcept;
  /// Of the attempt that is being made; for the session thread.
  [[nodiscard]] time_point attempt_deadline() const noexcept { return attempt_deadline_; }
  void wake() noexcept;
  [[nodiscard]] int wake_fd() const noexcept { return wake_fd_; }
  /// Empties the wake descriptor.
  void woken() noexcept;
  /// Queues a notice of generation `g` for the session thread; false when the queue is full. From any thread.
  bool queue_notice(std::uint32_t g, std::span<const std::byte> payload) noexcept;
  void complete(request& r, errc status) noexcept { completion_frame::complete(this, r, status); }

  /// Where the attempt that is being made goes to; for the session thread.
  [[nodiscard]] const address& destination() const noexcept { return places_[place_.load()].where; }
  [[nodiscard]] phase current() const noexcept { return phase_.load(std::memory_order_seq_cst); }

  const session_options options_;

 private:
  struct notice {
    std::uint32_t generation;
    std::vector<std::byte> payload;
  };

  void run() noexcept;
  errc attempt(duration within) noexcept;
  errc reconnect() noexcept;
  void serve_connection() noexcept;
  void deliver_notices() noexcept;
  void pause_until(time_point t) noexcept;
  void finish_first(errc e) noexcept;
  [[nodiscard]] bool closing() const noexcept { return closing_.load(std::memory_order_acquire); }

  struct place {
    std::string url;
    address where;
  };
  /// The next attempt goes to the next address.
  void go_on() noexcept;
  errc first_attempt() noexcept;
  [[nodiscard]] duration step_within() const noexcept;

  std::vector<place> places_;  ///< constant
  std::atomic<std::size_t> place_{0};
  session_events& events_;
  int wake_fd_ = -1;
  std::atomic<phase> phase_{phase::connecting};
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> closing_{false};
  time_point attempt_deadline_ = time_point::max();  ///< the session thread's, as is the next
  duration attempt_within_{};                        ///< each of its steps

  std::mutex mutex_;               ///< phase changes, why_, notices_, first_*
  std::condition_variable first_;  ///< the first attempt has an outcome
  bool first_known_ = false;
  errc first_outcome_ = errc::ok;
  std::string explanation_;  ///< the session thread's, until the first attempt is over
  errc why_ = errc::ok;      ///< of the latest break
  std::deque<notice> notices_;
  std::mutex join_mutex_;  ///< close() from several threads
  std::atomic<std::thread::id> thread_id_{};
  std::thread thread_;
};

}  // namespace fm::fabric

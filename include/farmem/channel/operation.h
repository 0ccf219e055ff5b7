// fm::channel_operation: a send or a receive in progress, as send_async and recv_async of fm::channel return it. The
// channel's thread carries it out.
// Invariant: the outcome is complete before the operation's event happens, and nothing changes it afterwards.
// Application code calls it; src/channel/worker.h fills the outcome in.
#pragma once

#include <farmem/detail/barriers/section_break.h>
#include <farmem/detail/event.h>
#include <farmem/handles/ptr.h>
#include <memory>
#include <string>
#include <vector>

namespace fm {
namespace detail {

/// The outcome of an operation. The thread that carries it out writes it before has_happened() is true.
struct transfer : event {
  errc code = errc::ok;
  std::string text;
  ptr<char[]> root;

  void rethrow() const {
    if (code != errc::ok) throw error(code, text);
  }
};

}  // namespace detail

/// A send or a receive in progress. Movable; for one thread at a time. It ends at its deadline at the latest.
/// Destroying it does not end the operation: a send goes on, and a received graph becomes garbage.
template <class Result>
class [[nodiscard]] channel_operation : public detail::event_operation {
 public:
  /// For fm::channel.
  explicit channel_operation(std::shared_ptr<detail::transfer> t) noexcept : transfer_(std::move(t)) {}

  /// Whether it is over, with or without an error. O(1).
  [[nodiscard]] bool test() const noexcept { return transfer_->has_happened(); }
  /// Waits until it is over. Returns the received root, once. Throws as fm::channel::send or recv. An
  /// exception of a function of the program, such as a Compare, comes as cancelled, with its text.
  Result wait() {
    const detail::section_break outside;
    while (!transfer_->wait(time_point::max())) {
    }
    return take();
  }
  /// As wait(). In a task of fm::run or fm::run_all the thread runs other tasks meanwhile; elsewhere it blocks.
  auto operator co_await() {
    struct awaiter : detail::event_wait {
      explicit awaiter(channel_operation& o) noexcept : event_wait(o.transfer_), operation(o) {}
      Result await_resume() { return operation.take(); }
      channel_operation& operation;
    };
    return awaiter(*this);
  }

 private:
  Result take() {
    transfer_->rethrow();
    if constexpr (!std::is_void_v<Result>) {
      Result out = Result::from_slot(transfer_->root.slot());
      transfer_->root = nullptr;
      return out;
    }
  }
  std::shared_ptr<detail::transfer> transfer_;
};

}  // namespace fm

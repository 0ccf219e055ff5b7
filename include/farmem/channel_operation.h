// A send or a receive that goes on by itself: what send_async and recv_async of a channel give.
#pragma once

#include <farmem/detail/event.h>
#include <farmem/ptr.h>
#include <memory>
#include <string>
#include <vector>

namespace fm {
namespace detail {

/// What becomes of an operation. Written by the thread that carries it out, before it has happened().
struct transfer : event {
  errc code = errc::ok;
  std::string text;
  ptr<char[]> root;

  void rethrow() const {
    if (code != errc::ok) throw error(code, text);
  }
};

}  // namespace detail

/// An operation under way. Movable; one thread at a time. It ends at its deadline at the latest. Dropping it does not end it: what
/// is being sent is sent, and what would have been received is received and dropped.
template <class Result>
class [[nodiscard]] channel_operation : public detail::event_operation {
 public:
  explicit channel_operation(std::shared_ptr<detail::transfer> t) noexcept : transfer_(std::move(t)) {}

  /// Whether it is over, one way or the other. O(1).
  [[nodiscard]] bool test() const noexcept { return transfer_->has_happened(); }
  /// Waits until it is over. Gives what was received, once; throws what send or recv throw.
  Result wait() {
    while (!transfer_->wait(time_point::max())) {
    }
    return take();
  }
  /// In a task of fm::run or fm::run_all the thread runs other tasks meanwhile; anywhere else it waits. As wait().
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

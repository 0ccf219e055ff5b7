// fm::pool_operation: a read in progress, as pool::read_async returns it.
//
//   fm::task<int> sum(fm::pool& pool, fm::pool_ptr<int> a, fm::pool_ptr<int> b) {
//     auto first = pool.read_async(a), second = pool.read_async(b);   // both are under way
//     co_return co_await first + co_await second;
//   }
//
// Invariant: what the one-sided read brought is complete before the operation's event happens, and nothing changes it
// afterwards. Application code calls it; src/pool/async.cc fills it in.
#pragma once

#include <cstring>
#include <farmem/detail/barriers/section_break.h>
#include <farmem/detail/event.h>
#include <farmem/pool/pool.h>
#include <memory>
#include <vector>

namespace fm {
namespace detail {

/// A read in progress, without its type. The thread that sees its end writes `bytes` before has_happened() is true.
struct pool_transfer : event {
  pool_address at;               ///< corrected when the result is taken
  std::vector<std::byte> bytes;  ///< the value, when the result was taken without an error
};

}  // namespace detail

/// A read of an object of a pool in progress. Movable; for one thread at a time. It ends at pool_options::access_within
/// at the latest. Destroying it does not end the read, and the read ends by itself. The pool must outlive the use of the
/// operation.
template <class T>
class [[nodiscard]] pool_operation : public detail::event_operation {
 public:
  /// For fm::pool.
  pool_operation(pool& p, std::shared_ptr<detail::pool_transfer> t) noexcept : pool_(&p), transfer_(std::move(t)) {}

  /// Whether the one-sided read is over, with or without an error. O(1).
  [[nodiscard]] bool test() const noexcept { return transfer_->has_happened(); }
  /// Waits until it is over, and returns the value. Throws as fm::pool::read. An object that was not where the pointer
  /// said is looked for by this call, as in fm::pool::read.
  T wait() { return value_or_throw(try_wait()); }
  /// As wait, without exceptions.
  [[nodiscard]] result<T> try_wait() {
    const detail::section_break outside;
    while (!transfer_->wait(time_point::max())) {
    }
    return take();
  }
  /// As wait(). In a task of fm::run or fm::run_all the thread runs other tasks until the one-sided read is over;
  /// elsewhere it blocks.
  auto operator co_await() {
    struct awaiter : detail::event_wait {
      explicit awaiter(pool_operation& o) noexcept : event_wait(o.transfer_), operation(o) {}
      T await_resume() { return value_or_throw(operation.take()); }
      pool_operation& operation;
    };
    return awaiter(*this);
  }
  /// The pointer that was read, corrected once the result was taken. O(1).
  [[nodiscard]] pool_ptr<T> pointer() const noexcept { return pool_ptr<T>(transfer_->at); }

 private:
  result<T> take() {
    T value;
    if (const errc e = pool_->finish_read(*transfer_); e != errc::ok) return fail(e, pool_->describe(transfer_->at, e));
    std::memcpy(&value, transfer_->bytes.data(), sizeof value);
    return value;
  }
  pool* pool_;
  std::shared_ptr<detail::pool_transfer> transfer_;
};

template <class T>
pool_operation<T> pool::read_async(const pool_ptr<T>& p) {
  check_type<T>();
  return pool_operation<T>(*this, start_read(p.address(), sizeof(T)));
}

}  // namespace fm

// Scopes: raw pointers into the managed heap, valid until the scope closes.
#pragma once

#include <farmem/detail/access.h>
#include <farmem/detail/epoch.h>
#include <farmem/detail/indirection_table.h>
#include <farmem/detail/word.h>

#include <utility>

namespace fm {

/// While a scope is open on this thread, everything that it touches stays where it is, and handles give out raw
/// pointers (`p.get(s)`), which must not outlive it. Scopes nest; memory is held until the outermost closes. Entering costs a
/// few nanoseconds. An open scope that has given out a pointer keeps memory from being reclaimed: keep it short, or renew()
/// it between steps of a long walk. Not movable, and bound to its thread; suspending a coroutine inside of one is an error
/// (errc::scope_misuse).
class scope {
 public:
  scope(const char* file = __builtin_FILE(), int line = __builtin_LINE()) noexcept {
    detail::thread_state& t = detail::this_thread;
    if (t.depth == 0) {  // errors from memory pressure name the outermost scope
      t.file.store(file, std::memory_order_relaxed);
      t.line.store(line, std::memory_order_relaxed);
    }
    detail::epochs::enter(detail::user_gate);
  }
  ~scope() {
    detail::epochs::leave();
    detail::thread_state& t = detail::this_thread;
    if (t.depth == 0) t.file.store(nullptr, std::memory_order_relaxed);  // what reads in place later has no name
  }
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

  /// Closes the scope and opens it again: raw pointers obtained in it are invalid afterwards, memory can be reclaimed.
  /// Does nothing when the scope is nested in another.
  void renew() noexcept {
    if (detail::this_thread.depth != 1) return;
    used_ = false;
    detail::epochs::renew();
  }

  /// For what gives out a pointer that is good in this scope: a miss may close the scope and open it again, to wait for memory
  /// outside of it, as long as it has given out none.
  [[nodiscard]] detail::section_kind use() const noexcept {
    return std::exchange(used_, true) ? detail::section_kind::used : detail::section_kind::fresh;
  }

 private:
  mutable bool used_ = false;
};

}  // namespace fm

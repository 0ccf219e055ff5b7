// fm::scope: raw pointers into the managed heap, valid until the scope closes. Application code and cursors open
// scopes.
// Invariant: an open scope is a section of the epochs, so no frame that it has shown is reused before it closes. Where
// its thread waits, the section is left and entered again, and what it has shown is pinned meanwhile
// (detail/section_break.h).
#pragma once

#include <farmem/detail/barriers/access.h>
#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/indirection_table.h>
#include <farmem/detail/barriers/word.h>
#include <farmem/detail/check.h>

namespace fm {

/// While a scope is open on this thread, objects that it touches stay in place, and handles give out raw pointers
/// (`p.get(s)`). Such a pointer must not outlive the scope. Scopes nest; objects stay in place until the outermost
/// scope closes. Opening and closing are O(1). Opening waits while a pause stops all threads, or while the agents are
/// full and a collection makes room.
///
/// An open scope keeps memory from being reclaimed: keep it short, or renew() it between steps of a long walk. While its
/// thread waits for the library (a fetch, memory, a lock, a channel), a scope holds only what it has shown, unless that
/// is more than 64 objects. A scope is not movable and belongs to its thread. Suspending a coroutine inside of one
/// throws scope_misuse.
class scope {
 public:
  /// Opens a scope. The caller's file and line are named in errors about memory that this scope holds.
  explicit scope(const char* file = __builtin_FILE(), int line = __builtin_LINE()) noexcept {
    detail::thread_state& t = detail::this_thread;
    if (t.depth == 0) {  // errors from memory pressure name the outermost scope
      t.file.store(file, std::memory_order_relaxed);
      t.line.store(line, std::memory_order_relaxed);
    }
    detail::epochs::enter(detail::user_gate);
  }
  ~scope() {
    check_thread();
    detail::epochs::leave();
    detail::thread_state& t = detail::this_thread;
    if (t.depth == 0) t.file.store(nullptr, std::memory_order_relaxed);  // what reads in place later has no name
  }
  /// Not copyable.
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

  /// Closes the scope and opens it again: raw pointers obtained in it are invalid afterwards, and memory can be
  /// reclaimed. Has no effect if the scope is nested in another. O(1).
  void renew() noexcept {
    check_thread();
    if (detail::this_thread.depth != 1) return;
    detail::epochs::renew();
  }

  /// For handles. In debug builds it ends the program if this is not the scope's thread: no section is open there, so a
  /// pointer could dangle at once. Free otherwise.
  void check_thread() const noexcept {
    FM_ASSERT(thread_ == &detail::this_thread, "a scope belongs to the thread that opened it: open one on this thread");
  }

 private:
  // In release builds, too, where compilers drop it: a program and its library need not be built alike.
  const detail::thread_state* const thread_ = &detail::this_thread;
};

}  // namespace fm

// Replaces the global operator new; see failing_new.h. Ends the program with the place of the last failure if it was
// not caught.
#include "failing_new.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>

namespace fm::test {

namespace {

struct counter {
  std::atomic<bool> armed{false};
  std::atomic<std::uint64_t> from{0}, to{0}, count{0}, failed{0};
} state;

thread_local int spared_depth = 0;

/// Where the last allocation failed that this thread made.
thread_local std::array<void*, 32> place;
thread_local int place_depth = 0;

[[noreturn]] void not_caught() noexcept {
  constexpr char text[] = "an allocation that failed here ended the program:\n";
  [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text, sizeof text - 1);
  ::backtrace_symbols_fd(place.data(), place_depth, STDERR_FILENO);
  std::abort();
}

/// Before the first failure: backtrace allocates when it is first called.
const bool prepared = [] {
  std::array<void*, 1> one{};
  (void)::backtrace(one.data(), 1);
  std::set_terminate(not_caught);
  return true;
}();

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (failing_new::is_due()) {
    place_depth = ::backtrace(place.data(), int(place.size()));
    return nullptr;
  }
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes != 0 ? bytes : 1);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const at = allocate(bytes, alignment);
  if (!at) throw std::bad_alloc();
  return at;
}

}  // namespace

void failing_new::fail(std::uint64_t at, std::uint64_t run) noexcept {
  state.armed = false;
  state.from = at;
  state.to = at + run;
  state.count = state.failed = 0;
  state.armed = prepared;
}

std::uint64_t failing_new::stop() noexcept {
  state.armed = false;
  return state.count;
}

std::uint64_t failing_new::failed() noexcept { return state.failed; }

bool failing_new::is_due() noexcept {
  if (!state.armed.load(std::memory_order_relaxed) || spared_depth != 0) return false;
  const std::uint64_t n = ++state.count;
  const bool due = n >= state.from && n < state.to;
  state.failed += due;
  return due;
}

spared::spared() noexcept { ++spared_depth; }
spared::~spared() { --spared_depth; }

}  // namespace fm::test

using fm::test::allocate;
using fm::test::allocate_or_throw;

constexpr std::size_t usual = alignof(std::max_align_t);

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, usual); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes, usual); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate_or_throw(bytes, std::size_t(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate_or_throw(bytes, std::size_t(a)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, usual); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, usual); }
void* operator new(std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(bytes, std::size_t(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(bytes, std::size_t(a));
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete[](void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t, std::align_val_t) noexcept { std::free(at); }

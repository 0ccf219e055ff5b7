// Three tiers of assertions. FM_CHECK is always on and guards against programmer errors whose continuation would
// corrupt a heap. FM_ASSERT is on in checked builds: debug builds, and what is compiled with FARMEM_CHECKED, such as a
// program that uses a release build of the library. FM_AUDIT guards walks that cost more than what they check and is
// on in builds configured with FARMEM_AUDIT.
//
// Invariant: the expression of a check changes nothing, since a build may leave it out. Any code of the library may use
// the three; errors that the world can cause are fm::error instead. FM_TSAN and FM_ASAN say which sanitizer the build
// has.
#pragma once

namespace fm::detail {

/// Prints the expression, the place and the message to stderr and aborts.
[[noreturn]] void check_failed(const char* expression, const char* file, int line, const char* message) noexcept;

}  // namespace fm::detail

// The result points into what the parameter names, or the object; clang warns when it outlives that.
#if defined(__clang__)
#define FM_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define FM_LIFETIMEBOUND
#endif

#define FM_CHECK(expr, message) \
  (__builtin_expect(!!(expr), 1) ? (void)0 : ::fm::detail::check_failed(#expr, __FILE__, __LINE__, message))

#if !defined(NDEBUG) || defined(FARMEM_CHECKED)
#define FM_ASSERT(expr, message) FM_CHECK(expr, message)
#else
#define FM_ASSERT(expr, message) ((void)0)
#endif

#ifdef FARMEM_AUDIT
#define FM_AUDIT(expr, message) FM_CHECK(expr, message)
#else
#define FM_AUDIT(expr, message) ((void)0)
#endif

#if defined(__SANITIZE_THREAD__)
#define FM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FM_TSAN 1
#endif
#endif
#ifndef FM_TSAN
#define FM_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define FM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FM_ASAN 1
#endif
#endif
#ifndef FM_ASAN
#define FM_ASAN 0
#endif

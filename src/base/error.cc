// The names of error codes, and the end of a failed check.
//
// Invariant: every errc has a name, which programs may print and compare; the compiler names a code that the switch
// leaves out. Any layer may call both.
#include "base/base.h"
#include <cstdio>
#include <cstdlib>

namespace fm {

std::string_view to_string(errc code) noexcept {
  switch (code) {
    case errc::ok: return "ok";
    case errc::invalid_argument: return "invalid_argument";
    case errc::unknown_scheme: return "unknown_scheme";
    case errc::unreachable: return "unreachable";
    case errc::refused: return "refused";
    case errc::version_mismatch: return "version_mismatch";
    case errc::quota_exceeded: return "quota_exceeded";
    case errc::agent_full: return "agent_full";
    case errc::cache_full: return "cache_full";
    case errc::layout_mismatch: return "layout_mismatch";
    case errc::bad_config: return "bad_config";
    case errc::bad_frame: return "bad_frame";
    case errc::timed_out: return "timed_out";
    case errc::cancelled: return "cancelled";
    case errc::disconnected: return "disconnected";
    case errc::agent_lost: return "agent_lost";
    case errc::heap_closed: return "heap_closed";
    case errc::null_handle: return "null_handle";
    case errc::too_large: return "too_large";
    case errc::out_of_memory: return "out_of_memory";
    case errc::not_found: return "not_found";
    case errc::stale: return "stale";
    case errc::access_denied: return "access_denied";
    case errc::slots_exhausted: return "slots_exhausted";
    case errc::unsupported: return "unsupported";
    case errc::corrupt: return "corrupt";
    case errc::out_of_range: return "out_of_range";
    case errc::scope_misuse: return "scope_misuse";
    case errc::wrong_type: return "wrong_type";
    case errc::conflict: return "conflict";
    case errc::under_replicated: return "under_replicated";
  }
  return "unknown_error";
}

namespace detail {

void check_failed(const char* expression, const char* file, int line, const char* message) noexcept {
  std::fprintf(stderr, "farmem: %s:%d: check failed: %s (%s)\n", file, line, message, expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace detail
}  // namespace fm

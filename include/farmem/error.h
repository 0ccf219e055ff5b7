// Typed errors. Everything that the world can cause (network, memory, a peer, input) reaches the caller as an
// fm::error that says what failed and names the address, slot, path or value; programmer errors go to FM_CHECK
// (base/check.h) and abort. Setup and I/O functions throw; each has a no-throw twin that returns fm::result<T>.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace fm {

/// What went wrong. The number travels on the wire: append, never renumber.
enum class errc : unsigned short {
  ok = 0,
  invalid_argument = 1,  ///< a value given by the caller is out of its range
  unknown_scheme = 2,    ///< a URL whose scheme no transport serves
  unreachable = 3,       ///< nobody answers at the address
  refused = 4,           ///< the peer answered and said no
  version_mismatch = 5,  ///< the peer speaks another major version
  quota_exceeded = 6,    ///< the agent's quota for this heap is used up
  agent_full = 7,        ///< the agent has no free region
  cache_full = 8,        ///< every frame of the local cache is pinned or waits for an acknowledgement
  layout_mismatch = 9,   ///< a type of the same name has another layout on the other side
  bad_config = 10,       ///< a configuration value or key is wrong
  bad_frame = 11,        ///< bytes from a peer that do not follow the protocol
  timed_out = 12,        ///< the deadline passed; nothing is known about the outcome
  cancelled = 13,        ///< the caller gave the operation up
  disconnected = 14,     ///< the connection broke while the operation was in flight
  agent_lost = 15,       ///< an agent did not come back within its deadline
  heap_closed = 16,      ///< the heap that the handle belongs to is closed
  null_handle = 17,      ///< a null fm::ptr or fm::ref was dereferenced
  too_large = 18,        ///< an object or message over the stated limit
  out_of_memory = 19,    ///< the operating system refused memory or address space
  not_found = 20,        ///< no such region, tablet or object
  stale = 21,            ///< an older generation or incarnation was named
  access_denied = 22,    ///< bounds or ownership forbid the access
  slots_exhausted = 23,  ///< the configured slot range is used up
  unsupported = 24,      ///< this build or machine cannot do it; the message says what is missing
  corrupt = 25,          ///< a checksum or a header does not match the bytes
  out_of_range = 26,     ///< an index past the end of a managed container
  scope_misuse = 27,     ///< suspending or blocking where an open fm::scope forbids it
};

/// The enumerator's own name, for logs and messages.
std::string_view to_string(errc code) noexcept;

/// The one exception type of the library.
class error : public std::runtime_error {
 public:
  /// `what_failed` names the thing: an address, a slot, a path, a key.
  error(errc code, const std::string& what_failed)
      : std::runtime_error(std::string(to_string(code)) + ": " + what_failed), code_(code) {}

  [[nodiscard]] errc code() const noexcept { return code_; }

 private:
  errc code_;
};

/// A value or an error, for callers that do not want exceptions.
template <class T>
using result = tl::expected<T, error>;

/// Makes the error arm of a result.
[[nodiscard]] inline tl::unexpected<error> fail(errc code, const std::string& what_failed) {
  return tl::unexpected<error>(error(code, what_failed));
}

/// The value of a result, or its error thrown.
template <class T>
T value_or_throw(result<T>&& r) {
  if (!r) throw std::move(r).error();
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

}  // namespace fm

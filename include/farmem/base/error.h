// Typed errors. A failure that the world can cause (network, memory, a peer, input) reaches the caller as an fm::error.
// It states what failed and names the address, slot, path or value. Programmer errors go to FM_CHECK and abort. Setup
// and I/O functions throw; each has a no-throw twin that returns fm::result<T>. docs/reference/errors.md lists the
// codes.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace fm {

/// The kind of an error. The numbers travel on the wire: append, never renumber.
enum class errc : unsigned short {
  ok = 0,                ///< no error
  invalid_argument = 1,  ///< a value given by the caller is out of its range
  unknown_scheme = 2,    ///< no transport serves the scheme of this URL
  unreachable = 3,       ///< nothing answers at the address
  refused = 4,           ///< the peer answered and refused
  version_mismatch = 5,  ///< the peer speaks another major version of the protocol
  quota_exceeded = 6,    ///< the heap, pool or range has used up its quota on the agent
  agent_full = 7,        ///< the agent has no free region
  cache_full = 8,        ///< every frame of the local cache is pinned or waits for an acknowledgement
  layout_mismatch = 9,   ///< a type of the same name has another layout on the other side
  bad_config = 10,       ///< a configuration value or key is wrong
  bad_frame = 11,        ///< a peer sent bytes that do not follow the protocol
  timed_out = 12,        ///< the deadline passed; the outcome is unknown
  cancelled = 13,     ///< the operation was given up: by its caller, or because its channel, pool or session was closed
  disconnected = 14,  ///< the connection broke while the operation was in flight
  agent_lost = 15,    ///< an agent did not come back within its deadline
  heap_closed = 16,   ///< the heap of the handle is closed
  null_handle = 17,   ///< a null fm::ptr or fm::ref was dereferenced
  too_large = 18,     ///< an object, graph or message exceeds its limit
  out_of_memory = 19,     ///< the operating system refused memory or address space
  not_found = 20,         ///< no such region, tablet, object or key
  stale = 21,             ///< an older generation or incarnation was named
  access_denied = 22,     ///< bounds, ownership or permissions forbid the access
  slots_exhausted = 23,   ///< the configured slot range is used up
  unsupported = 24,       ///< this build or machine cannot do it; the message states what is missing
  corrupt = 25,           ///< a checksum or a header does not match the bytes
  out_of_range = 26,      ///< an index past the end of a managed container, or bytes outside of a paged range
  scope_misuse = 27,      ///< an operation suspends or blocks where an open fm::scope forbids it
  wrong_type = 28,        ///< an object is of another type than the one that was asked for
  conflict = 29,          ///< an object or a name is not in the state any more that the caller based its change on
  under_replicated = 30,  ///< fewer agents store the object than are asked for, or one of them does not answer
};

/// The name of the enumerator, for logs and messages. O(1).
std::string_view to_string(errc code) noexcept;

/// The one exception type of the library.
class error : public std::runtime_error {
 public:
  /// Makes an error; `what_failed` names the address, slot, path or key concerned. what() is `CODE: what_failed`.
  error(errc code, const std::string& what_failed)
      : std::runtime_error(std::string(to_string(code)) + ": " + what_failed), code_(code) {}

  /// The kind of the error.
  [[nodiscard]] errc code() const noexcept { return code_; }

 private:
  errc code_;
};

/// A value or an error, for callers that do not want exceptions.
template <class T>
using result = tl::expected<T, error>;

/// Makes a result that holds an error.
[[nodiscard]] inline tl::unexpected<error> fail(errc code, const std::string& what_failed) {
  return tl::unexpected<error>(error(code, what_failed));
}

/// The value of a result. Throws its error if it holds one.
template <class T>
T value_or_throw(result<T>&& r) {
  if (!r) throw std::move(r).error();
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

/// What `f()` returns, or the fm::error that it throws: `auto p = fm::attempt([&] { return h.make<node>(); });`. Other
/// exceptions pass through. Costs what `f` does.
template <class F>
[[nodiscard]] auto attempt(F&& f) -> result<std::invoke_result_t<F>> {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      std::forward<F>(f)();
      return {};
    } else {
      return std::forward<F>(f)();
    }
  } catch (const error& e) {
    return tl::unexpected<error>(e);
  }
}

}  // namespace fm

// The state that both halves of an end share: the terms, the ways out, whether the channel is broken and why, and the
// counters.
//
// The mutex guards all data members that change after the ends have agreed, and those of `sender`, `receiver` and their
// credit. A function that ends in _locked is called with it held. The fabric's threads take it too, so nothing of the
// heap is done under it. A channel breaks once: the first cause counts, and it is thrown to whoever sends or receives
// from then on.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "channel/path/byte_path.h"
#include "channel/path/terms.h"
#include "channel/path/transport.h"

namespace fm::detail {

struct channel_state {
  channel_state(const channel_terms& t, std::string n);

  /// Ends the channel, unless it has ended. Wakes everybody who waits.
  void break_channel(errc why, std::string_view text) noexcept;
  void break_locked(errc why, std::string_view text) noexcept;
  /// The same because the other end broke the rules, whose connection ends, too.
  void break_rules_locked(std::string_view text) noexcept;
  void throw_broken_locked() const;
  /// Sends a small message by the session. Not with the mutex held.
  errc tell(channel_wire::head h, std::string_view text = {}) noexcept;

  channel_terms terms;
  const std::string name;
  std::unique_ptr<byte_path> path;
  std::unique_ptr<channel_transport> transport;  ///< closed before the path goes

  mutable std::mutex mutex;
  std::condition_variable changed;
  errc broken = errc::ok;
  std::string broken_text;
  time_point broken_at{};
  channel_stats stats;
};

}  // namespace fm::detail

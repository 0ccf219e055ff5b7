// The terms of a channel: how much may be on its way, and how large a part is. Each end proposes its own when it says
// hello, and both go by the smaller values.
//
// Invariant: terms are within what the wire allows, and do not change once both ends have agreed. The listener and the
// connector agree before anybody sends; `sender`, `receiver` and the byte paths read them.
#pragma once

#include <farmem/channel/options.h>

#include "channel_messages.h"

namespace fm::detail {

/// The terms that both ends go by.
struct channel_terms {
  std::uint64_t window = 0;
  std::uint32_t window_parts = 0;
  std::uint32_t part = 0;

  /// What these options ask for, within what the wire allows. Throws invalid_argument.
  static channel_terms of(const channel_options& o);
  /// The smaller of both; bad_frame when the other's are out of bounds.
  static errc agree(const channel_wire::head& theirs, channel_terms& mine) noexcept;
  [[nodiscard]] channel_wire::head hello() const noexcept;
  /// Of one direction of shared memory.
  [[nodiscard]] std::uint64_t ring_bytes() const noexcept;
};

}  // namespace fm::detail

// Credit: how much a sender may have on its way, and when a receiver tells what it has consumed and judged.
//
// Both count from the beginning of the channel, so a message that says less than an earlier one changes nothing. A
// sender may have a window of bytes and of parts on their way, and one part is always allowed. The part that gives a
// graph up needs no credit: a graph that has begun ends, even when nobody reads.
//
// The receiver's policy depends on the path. credit_by_messages: a message when a quarter of the window has been
// consumed, and one for each verdict. credit_by_counters: at once, since it costs two stores. credit_on_demand: when a
// quarter of the window has been consumed, and when the sender has asked for a verdict or a part.
//
// Neither class locks: `sender` and `receiver` call them with the channel's mutex held.
#pragma once

#include <algorithm>

#include "byte_path.h"
#include "terms.h"

namespace fm::detail {

/// The sender's side.
class send_credit {
 public:
  explicit send_credit(const channel_terms& terms) noexcept : terms_(terms) {}

  [[nodiscard]] bool covers(std::size_t bytes) const noexcept {
    if (sent_bytes_ == consumed_bytes_) return true;
    return under_way_bytes() + bytes <= terms_.window && under_way_parts() < terms_.window_parts;
  }
  void part_sent(std::uint64_t bytes) noexcept {
    sent_bytes_ += bytes;
    ++sent_parts_;
  }
  /// Whether the receiver can have consumed so much.
  [[nodiscard]] bool is_possible(std::uint64_t bytes, std::uint64_t parts) const noexcept {
    return bytes <= sent_bytes_ && parts <= sent_parts_;
  }
  /// The receiver has consumed so much. True: more than was known.
  bool consumed(std::uint64_t bytes, std::uint64_t parts) noexcept {
    const bool more = bytes > consumed_bytes_ || parts > consumed_parts_;
    consumed_bytes_ = std::max(consumed_bytes_, bytes);
    consumed_parts_ = std::max(consumed_parts_, parts);
    return more;
  }
  [[nodiscard]] std::uint64_t under_way_bytes() const noexcept { return sent_bytes_ - consumed_bytes_; }
  [[nodiscard]] std::uint64_t under_way_parts() const noexcept { return sent_parts_ - consumed_parts_; }
  [[nodiscard]] std::uint64_t sent_parts() const noexcept { return sent_parts_; }
  [[nodiscard]] std::uint64_t consumed_parts() const noexcept { return consumed_parts_; }

 private:
  const channel_terms& terms_;
  std::uint64_t sent_bytes_ = 0, sent_parts_ = 0;
  std::uint64_t consumed_bytes_ = 0, consumed_parts_ = 0;
};

/// The receiver's side: what was consumed and judged, and how much of that the sender was told.
class receive_credit {
 public:
  /// How the sender is to be told now.
  enum class way : std::uint8_t { none, answer, message };
  struct notice {
    way by = way::none;
    std::uint32_t wire_bytes = 0;
  };

  explicit receive_credit(const channel_terms& terms) noexcept : terms_(terms) {}
  virtual ~receive_credit() = default;

  void part_consumed(std::uint64_t bytes) noexcept {
    consumed_.bytes += bytes;
    ++consumed_.parts;
  }
  void graph_judged(std::uint64_t graph, bool refused) noexcept {
    consumed_.judged = graph;
    consumed_.refused += refused;
  }
  /// A part says that the sender waits for the verdict on its graph.
  void want_verdict(std::uint64_t graph) noexcept { wanted_graphs_ = std::max(wanted_graphs_, graph); }
  /// The sender asks to be told when so many graphs are judged and so many parts consumed. Anything but ok: it may not
  /// ask.
  virtual errc want(std::uint64_t graphs, std::uint64_t parts) noexcept {
    want_verdict(graphs);
    wanted_parts_ = std::max(wanted_parts_, parts);
    return errc::ok;
  }
  /// Whether and how the sender is told now, after something was consumed, judged or wanted; it counts as told.
  virtual notice tell(bool channel_is_broken) noexcept = 0;
  /// The totals for a message that tells how much was consumed; that much counts as told.
  const part_answers& tell_consumed() noexcept {
    told_.bytes = consumed_.bytes;
    told_.parts = consumed_.parts;
    return consumed_;
  }
  [[nodiscard]] const part_answers& totals() const noexcept { return consumed_; }

 protected:
  /// A quarter of the window has come together. A sender that waits has used up more than that, since a part is at most
  /// a quarter.
  [[nodiscard]] bool quarter_is_due() const noexcept;

  const channel_terms& terms_;
  part_answers consumed_, told_;
  std::uint64_t wanted_graphs_ = 0, wanted_parts_ = 0;
};

/// For paths that carry no answers.
class credit_by_messages final : public receive_credit {
 public:
  using receive_credit::receive_credit;
  errc want(std::uint64_t, std::uint64_t) noexcept override { return errc::bad_frame; }
  notice tell(bool channel_is_broken) noexcept override;
};

/// For shared memory.
class credit_by_counters final : public receive_credit {
 public:
  using receive_credit::receive_credit;
  notice tell(bool) noexcept override { return {way::answer, 0}; }
};

/// For connections.
class credit_on_demand final : public receive_credit {
 public:
  using receive_credit::receive_credit;
  notice tell(bool channel_is_broken) noexcept override;
};

}  // namespace fm::detail

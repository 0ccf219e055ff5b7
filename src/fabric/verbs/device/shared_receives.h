// The receive buffers of a session's lanes in one shared queue of the device (SRQ), on the agent: fewer than the lanes
// would have each for itself (lane_credits.h says how many suffice, and why). Of one protection domain, therefore of
// one session. By the listener's thread alone.
#pragma once

#include "fabric/wire/packet.h"

#include "device.h"
#include "lane_credits.h"

namespace fm::fabric::verbs {

class shared_receives {
 public:
  /// In the wr_id of a receive, beside the number of its buffer.
  static constexpr std::uint64_t receive_mark = 1ull << 63;

  /// With all buffers posted. Null when the device has no shared queues, or none that is long enough: then each lane
  /// has its own buffers.
  static std::unique_ptr<shared_receives> make(ibv_pd* domain, std::uint32_t lanes);

  [[nodiscard]] ibv_srq* queue() const noexcept { return queue_.get(); }
  [[nodiscard]] std::uint32_t buffers() const noexcept { return count_; }
  [[nodiscard]] std::byte* buffer(std::uint64_t i) const noexcept { return buffers_.base() + i * packet::bytes_max; }
  /// Posts a buffer; false: the queue takes none any more.
  [[nodiscard]] bool post(std::uint64_t i) noexcept;
  /// Of one that has come.
  void came() noexcept { --posted_; }
  /// What is believed of the credits and what is posted agree, but for the one packet that is being dealt with.
  [[nodiscard]] bool sound() const noexcept { return posted_ == count_ - credits.taken(); }

  lane_credits credits;

 private:
  using srq = handle<ibv_srq, ibv_destroy_srq>;

  explicit shared_receives(std::uint32_t lanes)
      : credits(lanes, packet::credits_max), count_(lane_credits::buffers(lanes)) {}

  const std::uint32_t count_;
  std::uint32_t posted_ = 0;
  slab buffers_;
  srq queue_;  ///< goes before what it names
};

}  // namespace fm::fabric::verbs

// One reliable connected queue pair, as both sides use it: buffers for packets, credits, chained posts, completions in
// order. Not thread-safe: its owner has a lock or a thread of its own.
//
// Invariants owned here
//   - A packet is sent only against a credit, so the peer has a buffer posted: receiver-not-ready never happens. The
//     buffers are the queue pair's own, with a credit each, or those of a queue that lanes share (lane_credits.h).
//   - Work requests complete in the order of their sequence numbers; the buffers that one names are free when its
//     number is completed, or when drain() has returned. A request is signalled every `signal_every` and at the end of
//     a chain, so that everything posted is followed by a completion.
//   - The completion queue has room for everything that can be posted.
//
//   wr_id   bit 63: a receive, and the number of its buffer below; otherwise a send queue sequence number.
#pragma once

#include "fabric/wire/packet.h"

#include <array>

#include "shared_receives.h"

namespace fm::fabric::verbs {

/// What a posted work request was for; the owner gets it back.
struct posted {
  enum class kind : std::uint8_t { packet, read, write, atomic };
  kind what = kind::packet;
  bool bounced = false;  ///< `slot` is a bounce buffer
  bool direct = false;   ///< names the caller's memory
  std::uint32_t op = 0;  ///< the owner's number, or none
  std::uint32_t slot = 0;
  std::uint32_t length = 0;
  std::uint64_t at = 0;  ///< offset in the operation's bytes
  static constexpr std::uint32_t none = ~0u;
};

struct piece {
  void* data;
  std::uint32_t bytes;
  std::uint32_t key;
};

class queue_pair {
 public:
  static constexpr std::uint32_t depth = 256;  ///< of the send queue
  static constexpr std::uint32_t signal_every = 16;
  static constexpr std::uint32_t packets = 32;  ///< send buffers
  static constexpr std::uint32_t poll_max = 32;
  static constexpr std::uint32_t sge_max = 4;
  static constexpr std::uint8_t retries = 3;

  queue_pair() = default;
  ~queue_pair() { destroy(); }
  queue_pair(const queue_pair&) = delete;
  queue_pair& operator=(const queue_pair&) = delete;

  /// Makes the queue pair of `id`, with all receives posted. The completion queue reports to `channel` as `context`.
  /// With `shared`, receives are that queue's, and credits are of its lane `lane`.
  failure create(rdma_cm_id* id, ibv_pd* domain, ibv_comp_channel* channel, void* context,
                 shared_receives* shared = nullptr, std::uint32_t lane = 0);
  /// The peer's word on its receive buffers, and what the connection allows.
  void connected(std::uint32_t credits, std::uint32_t outstanding_reads) noexcept;
  /// What this side says of its own.
  [[nodiscard]] std::uint32_t own_credits() const noexcept {
    return shared_ != nullptr ? lane_credits::minimum : packet::credits_max;
  }
  [[nodiscard]] rdma_conn_param parameters(const void* private_data, std::uint8_t bytes) const noexcept;

  /// How long a side waits for an acknowledgement before it sends again, as an exponent: 4.096 us * 2^n. 14, 67 ms,
  /// finds a peer that is gone in a quarter of a second; FARMEM_VERBS_ACK_TIMEOUT sets another, for peers that are slow
  /// to answer because their machine is emulated.
  [[nodiscard]] static std::uint8_t ack_timeout() noexcept;

  /// No new work completes; what was posted is flushed. Safe at any time, thread-safe against itself only.
  void to_error() noexcept;
  /// Waits, at most until `deadline`, for everything posted to be flushed, and destroys the queue pair, after which no
  /// device touches a buffer.
  void drain(time_point deadline) noexcept;
  void destroy() noexcept;
  [[nodiscard]] bool exists() const noexcept { return id_ != nullptr; }

  // ---- sending; nothing is on its way before flush() ----
  [[nodiscard]] std::uint32_t room() const noexcept { return depth - std::uint32_t(next_ - completed_); }
  [[nodiscard]] bool can_send() const noexcept { return credits_ != 0 && has_buffer(); }
  /// One packet; `h.length` and `h.credits` are set here. Needs can_send().
  void send(packet::header h, std::span<const std::byte> payload, std::uint32_t op, bool fence) noexcept;
  /// Tells the peer of buffers that were posted again, if nothing else has told and it is time.
  void return_credits() noexcept;
  [[nodiscard]] bool can_read() const noexcept { return room() != 0 && reads_out_ < reads_max_; }
  /// A one-sided operation of up to sge_max pieces. Inline when there is no key.
  void transfer(const posted& record, std::span<const piece> local, std::uint64_t address, std::uint32_t rkey,
                bool fence) noexcept;
  void atomic(const posted& record, piece result, std::uint64_t address, std::uint32_t rkey, bool fence, bool swap,
              std::uint64_t compare_or_add, std::uint64_t operand) noexcept;
  /// One doorbell for everything since the last. False: the queue pair is in error.
  bool flush() noexcept;
  [[nodiscard]] std::uint32_t inline_max() const noexcept { return inline_max_; }
  [[nodiscard]] std::uint32_t pieces_max() const noexcept { return pieces_max_; }
  [[nodiscard]] std::uint64_t transfer_bytes_max() const noexcept { return limits_.message_bytes_max; }
  [[nodiscard]] bool has_atomics() const noexcept { return limits_.atomics; }

  // ---- completions ----
  /// Up to poll_max; kept until the next call.
  std::span<const ibv_wc> poll() noexcept;
  /// After poll() found nothing: asks for an event, and polls once more. True: there is something after all, for the
  /// next poll(). Does nothing while an event is asked for.
  bool arm() noexcept;
  [[nodiscard]] bool kept() const noexcept { return kept_ != 0; }
  /// An event has come (it was taken off the channel and acknowledged).
  void disarmed() noexcept { armed_ = false; }
  [[nodiscard]] bool armed() const noexcept { return armed_; }
  [[nodiscard]] static bool is_receive(const ibv_wc& w) noexcept { return (w.wr_id >> 63) != 0; }
  /// The bytes of a receive that succeeded.
  [[nodiscard]] std::span<const std::byte> received(const ibv_wc& w) const noexcept;
  /// Accounts for a packet that has come; false: it costs a credit, and the peer had none.
  [[nodiscard]] bool came(const packet::header& h) noexcept;
  /// Posts a receive's buffer again; `paid`: a credit was spent on it, and the peer may get one for it.
  void repost(std::uint64_t wr_id, bool paid) noexcept;
  /// Credits that a packet brought.
  [[nodiscard]] bool take_credits(const packet::header& h) noexcept;
  /// Everything up to `wr_id` is complete: calls `each` for its records, in order.
  template <class Each>
  void complete(std::uint64_t wr_id, const Each& each) {
    while (completed_ != next_ && completed_ <= wr_id) {
      const posted p = records_[completed_ % depth];
      if (p.what == posted::kind::packet)
        ++packets_done_;
      else if (p.what != posted::kind::write)
        --reads_out_;
      ++completed_;
      each(p);
    }
  }
  /// Records of what is posted and not complete.
  template <class Each>
  void each_posted(const Each& each) {
    for (std::uint64_t s = completed_; s != next_; ++s) each(records_[s % depth]);
  }

 private:
  static constexpr std::uint64_t receive_mark = shared_receives::receive_mark;
  static constexpr std::uint32_t chain_max = 64;

  [[nodiscard]] bool has_buffer() const noexcept { return room() != 0 && packets_sent_ - packets_done_ < packets; }
  [[nodiscard]] bool post_receive(std::uint64_t wr_id) noexcept;
  [[nodiscard]] std::byte* receive_buffer(std::uint64_t i) const noexcept {
    return shared_ != nullptr ? shared_->buffer(i) : buffers_.base() + i * packet::bytes_max;
  }
  [[nodiscard]] std::byte* send_buffer(std::uint64_t i) const noexcept {
    return buffers_.base() + (own_receives() + i) * packet::bytes_max;
  }
  [[nodiscard]] std::uint32_t own_receives() const noexcept { return shared_ != nullptr ? 0 : packet::receives; }
  ibv_send_wr& next(const posted& record) noexcept;

  rdma_cm_id* id_ = nullptr;  ///< the owner's; null when there is no queue pair
  ibv_qp* qp_ = nullptr;
  completion_queue cq_;
  shared_receives* shared_ = nullptr;  ///< the session's
  std::uint32_t lane_ = 0;             ///< there
  slab buffers_;                       ///< receives, unless they are shared, then sends
  limits limits_;
  std::uint32_t inline_max_ = 0, pieces_max_ = 1;
  bool armed_ = false;

  std::array<posted, depth> records_{};
  std::uint64_t next_ = 0, completed_ = 0;  ///< sequence numbers
  std::uint64_t packets_sent_ = 0, packets_done_ = 0;
  std::uint32_t reads_out_ = 0, reads_max_ = 1;
  std::uint32_t credits_ = 0;  ///< packets that may be sent
  std::uint32_t owed_ = 0;     ///< buffers posted again that the peer does not know of

  std::array<ibv_send_wr, chain_max> chain_{};
  std::array<std::array<ibv_sge, sge_max>, chain_max> pieces_{};
  std::uint32_t chained_ = 0;
  bool broken_ = false;

  std::array<ibv_wc, poll_max> done_{};
  std::uint32_t kept_ = 0;
};

}  // namespace fm::fabric::verbs

// Parts as messages of the session (local:, verbs:), for transports that have nothing better. The fabric's thread puts
// each message into the inbox, by its sequence number, and the thread that receives takes it out in order.
//
// The inbox owns the bound on what an unread channel holds: no more parts and bytes than the window allows, and a few
// parts more that give graphs up. A message beyond that breaks the rules. A thread that waits here sleeps on a bell,
// which the channel rings whenever something has arrived or has broken.
#pragma once

#include "os/os.h"

#include <condition_variable>
#include <map>
#include <mutex>

#include "byte_path.h"
#include "terms.h"
#include "transport.h"

namespace fm::detail {

/// What one side of a message path sleeps on.
class message_bell {
 public:
  [[nodiscard]] std::uint32_t watch() const noexcept;
  /// Until ring(), if there was none since `seen`, or the deadline.
  void wait(std::uint32_t seen, time_point deadline) noexcept;
  void ring() noexcept;

 private:
  mutable std::mutex mutex_;
  std::condition_variable rung_;
  std::uint32_t count_ = 0;
};

class message_writer final : public byte_path_writer {
 public:
  explicit message_writer(const std::unique_ptr<channel_transport>& t) noexcept : transport_(t) {}

  [[nodiscard]] bool has_room(std::uint64_t, std::uint64_t) const noexcept override { return true; }
  std::span<std::byte> room(std::uint64_t bytes, std::uint64_t) override { return transport_->room(bytes); }
  bool send(std::uint64_t bytes, time_point deadline, const std::function<bool()>&) override {
    failure_ = transport_->send(bytes, deadline);
    return failure_ == errc::ok;
  }
  [[nodiscard]] errc failure() const noexcept override { return failure_; }
  [[nodiscard]] part_answers answers() noexcept override { return {}; }
  [[nodiscard]] bool broken() const noexcept override { return false; }
  [[nodiscard]] std::uint32_t watch() const noexcept override { return bell_.watch(); }
  void wait(std::uint32_t seen, const part_answers&, time_point deadline) noexcept override {
    bell_.wait(seen, deadline);
  }
  void kick() noexcept override { bell_.ring(); }

 private:
  const std::unique_ptr<channel_transport>& transport_;
  errc failure_ = errc::ok;
  message_bell bell_;
};

class message_reader final : public byte_path_reader {
 public:
  explicit message_reader(const channel_terms& terms) noexcept : terms_(terms) {}

  errc take_message(const channel_wire::head& h, std::span<const std::byte> message) override;
  found next(std::uint64_t most, std::span<const std::byte>& message, std::uint64_t& rest) noexcept override;
  void release() noexcept override;
  bool answer(const part_answers&) noexcept override { return false; }
  [[nodiscard]] std::uint32_t watch() const noexcept override { return bell_.watch(); }
  void wait(std::uint32_t seen, time_point deadline) noexcept override { bell_.wait(seen, deadline); }
  void kick() noexcept override { bell_.ring(); }

 private:
  const channel_terms& terms_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::vector<std::byte>> inbox_;  ///< by sequence
  std::uint64_t inbox_bytes_ = 0;
  std::uint64_t next_ = 0;  ///< the sequence number of the part that is shown next, until release()
  message_bell bell_;
};

class message_path final : public byte_path {
 public:
  /// Both outlive it; the transport may be set later.
  message_path(const channel_terms& terms, const std::unique_ptr<channel_transport>& t) noexcept
      : out_(t), in_(terms) {}
  [[nodiscard]] byte_path_writer& writer() noexcept override { return out_; }
  [[nodiscard]] byte_path_reader& reader() noexcept override { return in_; }
  [[nodiscard]] std::unique_ptr<receive_credit> make_credit(const channel_terms& terms) const override;
  [[nodiscard]] bool carries_answers() const noexcept override { return false; }

 private:
  message_writer out_;
  message_reader in_;
};

}  // namespace fm::detail

// A primary's session with its backup: messages in their order, their answers, and what a new connection begins with.
//
// Messages leave in the order in which they are posted, on one lane. A connection that breaks loses some, and the backup
// refuses what comes after a gap. So what is not confirmed is sent again when all that was posted has ended, and the
// backup skips what it has.
// The keeper's thread owns it; the session calls it back from its own.
#pragma once

#include "agent/pools/pool.h"
#include "fabric/client/client.h"

#include <list>
#include <optional>
#include <string>

namespace fm::agent {

/// Whether the agent at that address has that number. It is asked for nothing else; `hello` is of any pool. Nothing: it did
/// not say so within that time.
[[nodiscard]] std::optional<bool> is_agent(const std::string& url, const open_backup_body& hello, std::uint64_t number,
                                           duration within);

class backup_link final : public fabric::session_events {
 public:
  /// Connects, and opens the backup with nothing. Throws fm::error. The log is told what the backup confirms, and `rung` is
  /// called with `context` when there is news.
  backup_link(const std::string& url, const open_backup_body& hello, duration tenure, pool_log& log,
              void (*rung)(void*) noexcept, void* context);
  backup_link(const backup_link&) = delete;
  backup_link& operator=(const backup_link&) = delete;
  ~backup_link() override;

  errc connected(fabric::session& s, std::uint32_t) override;
  void disconnected(fabric::session&, std::uint32_t, errc) noexcept override { rung_(context_); }
  duration reconnect_for(duration usual) const noexcept override;
  void lost(fabric::session&, errc) noexcept override { rung_(context_); }
  void notice(fabric::session&, std::span<const std::byte>) noexcept override {}  // no backup sends any

  /// Posts a message: `fixed`, and what follows it.
  void post(backup_message type, std::span<const std::byte> fixed, std::span<const std::byte> tail = {});
  struct news {
    time_point promised{};      ///< when the last message was sent that it has answered; the beginning of time: none
    errc refusal = errc::ok;    ///< it has said that it is not the backup any more, and why
    bool joined = false;        ///< it knows that it is the backup
    bool leaves = false;        ///< it wants to be one no longer
    bool left = false;          ///< it is not one any more, as it was told
    bool takes_over = false;    ///< it is the primary as soon as it may, as it was told
    bool begins_again = false;  ///< something was lost, and nothing is in flight: send what is not confirmed
    std::string text;           ///< of the refusal
  };
  /// What has come since the last call.
  [[nodiscard]] news look();
  /// Another message may be posted.
  [[nodiscard]] bool takes_more() const noexcept {
    return is_up() && !lost_some_ && letters_.size() < limits::records_in_flight;
  }
  [[nodiscard]] bool is_idle() const noexcept { return letters_.empty(); }
  [[nodiscard]] bool is_up() const noexcept { return session_->state() == fabric::session_state::up; }
  [[nodiscard]] bool is_lost() const noexcept { return session_->state() == fabric::session_state::lost; }
  /// The backup's number.
  [[nodiscard]] std::uint64_t agent() const noexcept { return agent_; }
  /// Its failure domain (protocol::zone_number); 0: it has none.
  [[nodiscard]] std::uint16_t zone() const noexcept { return zone_; }
  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  [[nodiscard]] time_point posted() const noexcept { return posted_; }
  /// A connection that breaks from here on is tried again for limits::unarbitrated_reconnect_for: nobody else would say what
  /// this link has to, and the pool stands still meanwhile.
  void insist() noexcept { insists_.store(true, std::memory_order_relaxed); }
  /// That a new connection names.
  void set_term(std::uint64_t term) noexcept { term_.store(term, std::memory_order_relaxed); }

 private:
  struct letter {
    std::vector<std::byte> message;
    time_point sent{};
    backup_message type{};
    std::atomic<bool> done{false};
    backup_link* of = nullptr;
    fabric::request request;
  };

  const std::string url_;
  open_backup_body hello_;
  const duration tenure_;
  pool_log& log_;
  void (*const rung_)(void*) noexcept;
  void* const context_;
  std::atomic<std::uint64_t> term_;
  std::atomic<bool> insists_{false};
  std::uint64_t agent_ = 0;  ///< set by the first connection, as the zone
  std::uint16_t zone_ = 0;
  std::mutex mutex_;
  errc refused_ = errc::ok;  ///< mutex_, as the next: it does not let itself be opened
  std::string text_;
  bool lost_some_ = false;  ///< the keeper's, as the rest
  time_point posted_{};
  std::list<letter> letters_;  ///< posted, not settled
  std::unique_ptr<fabric::session> session_;
};

}  // namespace fm::agent

// Where the pages of a range are at home: a session with every agent, the regions that each has for this range, and the
// way from a page to its place. Regions come into being when something is first written to them, and go back to the
// agent when everything in them was discarded.
//
// Invariant: a region stays as long as a page has its home copy there, or a write to it is on its way
// (home_agent::hold). So whoever reads a home copy needs to do nothing about its region.
//
// Stripes of 2^stripe_order pages go round the agents: page -> stripe -> {agent, stripe of the agent} -> {region index,
// offset}. A block never crosses a stripe, nor a stripe a region.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include "protocol/heap_messages.h"
#include "protocol/paged_messages.h"
#include <atomic>
#include <farmem/paged_options.h>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace fm::detail {

/// One agent's share of the range.
class home_agent final : public fabric::session_events {
 public:
  /// Opens a space of `bytes`. Throws fm::error naming the agent.
  home_agent(const std::string& url, const paged_options& options, std::uint64_t bytes, fabric::service* in_process);
  ~home_agent() override;
  home_agent(const home_agent&) = delete;
  home_agent& operator=(const home_agent&) = delete;

  [[nodiscard]] fabric::session& session() const noexcept { return *session_; }
  [[nodiscard]] const char* url() const noexcept { return url_.c_str(); }
  [[nodiscard]] std::uint64_t region_bytes() const noexcept { return region_bytes_; }
  [[nodiscard]] bool up() const noexcept;
  /// No connection will come any more.
  [[nodiscard]] bool lost() const noexcept { return session_->state() == fabric::session_state::lost; }

  /// The place of a byte of this agent's share; false when its region is not there, or not known since the last break.
  [[nodiscard]] bool find(std::uint64_t at, fabric::remote& where) const noexcept;
  /// Its memory in this process, null where there is no such thing or the agent is not reached. Unless it is null, the
  /// memory is the agent's until end_copying: that of an agent that is lost is let go of when nobody copies.
  [[nodiscard]] std::byte* begin_copying(std::uint64_t at) noexcept;
  void end_copying() noexcept;
  /// Makes the region of a byte. Blocks for a message at most.
  errc make(std::uint64_t at) noexcept;
  /// The same without waiting for the agent: asks it, or looks whether it has answered. Nothing: not yet.
  std::optional<errc> make_soon(std::uint64_t at) noexcept;
  /// Before a write to a region, and until its end: the region stays. False while it is being given back.
  [[nodiscard]] bool hold(std::uint64_t at) noexcept;
  /// So many pages more have their home copies there. The caller holds the region.
  void keep(std::uint64_t at, std::uint32_t pages) noexcept;
  /// Ends one hold, or the home copies of so many pages.
  void drop(std::uint64_t at, std::uint32_t n) noexcept;
  /// Gives the region of a byte back when nothing holds it. Blocks for a message at most. When the agent cannot be told
  /// now, it is told when the connection is taken up again, or by settle().
  void release(std::uint64_t at) noexcept;
  /// Tells the agent of what was given back while it could not be told. Blocks for messages; O(regions) when there is
  /// something.
  void settle() noexcept;
  /// The same without waiting for the agent. Takes several calls.
  void settle_soon() noexcept;
  /// Home copies and holds, of all regions. O(regions)
  [[nodiscard]] std::uint64_t held() const noexcept;
  /// The agent's own audit. Throws what the message fails with.
  protocol::audit_space_answer audit();
  [[nodiscard]] std::uint64_t regions() const noexcept { return regions_open_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t reconnects() const noexcept { return reconnects_.load(std::memory_order_relaxed); }
  /// Gives the space back and ends the session.
  void close() noexcept;

  // ---- paged_core's; see parked.cc ----
  std::atomic<std::uint32_t> fetches{0}, writes{0};  ///< slots that what is under way has taken
  std::atomic<std::uint64_t> tickets{0}, turn{0};    ///< of parked accesses that wait for a slot: given, and whose turn

 private:
  errc connected(fabric::session& s, std::uint32_t g) override;
  void disconnected(fabric::session& s, std::uint32_t g, errc why) noexcept override;
  void lost(fabric::session& s, errc) noexcept override;
  void notice(fabric::session&, std::span<const std::byte>) noexcept override {}

  /// A message about a region that nobody waits for; the answer is taken when somebody comes by.
  struct question {
    bool is_posted = false;
    protocol::paged_message type{};
    std::uint32_t index = 0;
#pragma pack(push, 1)
    struct {
      protocol::message_head head;
      protocol::space_region_body body;
    } message{};
#pragma pack(pop)
    fabric::request request;
  };
  /// Posts a question; none is under way. mutex_.
  void ask(protocol::paged_message type, std::uint32_t index, bool existing) noexcept;
  /// Whether no question is under way (any more). `refused`: what an answer about that region said, if it came now.
  /// mutex_.
  bool may_ask(std::uint32_t index, errc& refused);
  /// Waits for the answer to a question that is under way. mutex_.
  void end_question();
  errc take_answer_to(question& q);

  [[nodiscard]] std::byte* direct(std::uint64_t at) const noexcept;
  errc open_space(fabric::session& s);
  errc ask_region(fabric::session& s, std::uint32_t index, bool existing);
  /// The agent's answer about a region: attaches it.
  errc take_region(fabric::session& s, std::uint32_t index, bool existing, const std::vector<std::byte>& answer,
                   fabric::memory_key& key);
  errc tell_released(fabric::session& s, std::uint32_t index);
  void untold(std::uint32_t index, bool is) noexcept;
  /// Sends a message and takes its answer apart; the key, if one came, is the caller's.
  errc call(fabric::session& s, protocol::paged_message type, const void* body, std::size_t bytes,
            std::vector<std::byte>& answer, fabric::memory_key& key);
  /// Takes the content of the reply to a message of that type.
  static errc take_reply(fabric::request& r, protocol::paged_message type, std::vector<std::byte>& answer,
                         fabric::memory_key& key);

  const std::string url_;
  const std::uint64_t bytes_;
  const duration within_;
  std::string name_;
  std::uint64_t id_[2], incarnation_;
  errc refused_ = errc::ok;  ///< why the agent refused the first open
  std::string refusal_;

  bool opened_ = false;  ///< of the session thread
  std::uint64_t region_bytes_ = 0;
  /// By index: generation << 32 | region + 1; 0: none. Written under mutex_, read without.
  std::vector<std::atomic<std::uint64_t>> names_;
  static constexpr std::uint32_t releasing = 1u << 31;
  std::vector<std::atomic<std::uint32_t>> held_;  ///< by index: home copies and holds, or `releasing`
  std::vector<bool> untold_;                      ///< by index: given back, but the agent may not know; under mutex_
  std::atomic<std::uint32_t> untold_count_{0};    ///< written under mutex_
  question question_;                             ///< under mutex_
  std::atomic<bool> is_asked_{false};             ///< question_.is_posted, for a look without the lock
  std::atomic<bool> is_lost_{false};
  std::atomic<std::uint32_t> copying_{0};  ///< who copies through what is mapped here
  std::atomic<std::uint32_t> usable_{0};   ///< generation of the session in which all regions are attached; 0: none
  std::mutex mutex_;                       ///< regions are made and given back one at a time
  std::atomic<std::uint64_t> regions_open_{0}, reconnects_{0};
  std::atomic<bool> closing_{false};
  std::unique_ptr<fabric::session> session_;
};

class home {
 public:
  /// Opens all agents. `block_order`: of the largest block.
  home(const paged_options& options, std::uint64_t pages, std::uint32_t block_order);

  [[nodiscard]] home_agent& agent_of(std::uint64_t page) const noexcept {
    return *agents_[(page >> stripe_order_) % agents_.size()];
  }
  /// Where a page lies in its agent's share.
  [[nodiscard]] std::uint64_t place(std::uint64_t page) const noexcept {
    const std::uint64_t stripe = page >> stripe_order_;
    return ((stripe / agents_.size()) << stripe_order_ | (page & ((std::uint64_t{1} << stripe_order_) - 1))) *
           page_bytes;
  }
  [[nodiscard]] const std::vector<std::unique_ptr<home_agent>>& agents() const noexcept { return agents_; }
  /// Gives the regions of these pages back that nothing is at home in any more.
  void release_unused(std::uint64_t first, std::uint64_t end) const noexcept;
  /// For the thread that has nothing else to do; waits for no agent.
  void settle_soon() const noexcept {
    for (const auto& a : agents_) a->settle_soon();
  }
  void poll() const noexcept {
    for (const auto& a : agents_) a->session().poll();
  }
  void close() noexcept {
    for (const auto& a : agents_) a->close();
  }

 private:
  std::uint32_t stripe_order_;
  std::unique_ptr<fabric::service> local_;  ///< the agent in this process; outlives the sessions
  std::vector<std::unique_ptr<home_agent>> agents_;
};

}  // namespace fm::detail

// One agent of a range: the session with it, the regions that it has for this range, and which of their places are given
// out. Regions come into being when something is first written to them, and go back to the agent when no place of them
// is given out any more.
//
// Invariant: a region stays as long as one of its places is given out (places.h). So whoever has a place needs to do
// nothing about its region. home has one for each agent.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include "protocol/heap_messages.h"
#include "protocol/paged_messages.h"
#include <array>
#include <farmem/paged/options.h>
#include <memory>
#include <mutex>
#include <optional>

#include "fetch_line.h"
#include "home_limits.h"
#include "places.h"

namespace fm::detail {

class home_agent;

/// Whom an agent tells that something is to be done, and asks whether it can be done without.
class home_events {
 public:
  virtual ~home_events() = default;
  /// The agent was lost, reached again, asks to be left, or does not answer. By any thread; must not block.
  virtual void agent_changed() noexcept = 0;
  /// All that it stores is on others, too, that answer.
  [[nodiscard]] virtual bool is_replaceable(const home_agent& a) const noexcept = 0;
  /// How long an operation of the agent may take, of those that accesses or write-backs wait for.
  [[nodiscard]] virtual duration answer_within(const home_agent& a) const noexcept = 0;
};

/// What is stored on one agent.
class home_agent final : public fabric::session_events {
 public:
  enum class role : std::uint8_t {
    joins,  ///< nothing goes there yet
    serves,
    leaves,  ///< what it has is moved away, and nothing comes to it
    gone,    ///< it has nothing, and the session is closed
  };

  /// Opens a space for at most `stripes` of `stripe_bytes`, of which nothing is promised yet. Throws fm::error naming
  /// the agent.
  home_agent(const std::string& url, const paged_options& options, std::uint32_t number, std::uint64_t stripe_bytes,
             std::uint64_t stripes, home_events& events, fabric::service* in_process);
  ~home_agent() override;
  home_agent(const home_agent&) = delete;
  home_agent& operator=(const home_agent&) = delete;

  [[nodiscard]] fabric::session& session() const noexcept { return *session_; }
  [[nodiscard]] const char* url() const noexcept { return url_.c_str(); }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] std::uint64_t region_bytes() const noexcept { return region_bytes_; }
  [[nodiscard]] std::uint16_t zone() const noexcept { return zone_; }
  [[nodiscard]] bool up() const noexcept;
  /// No connection will come any more.
  [[nodiscard]] bool lost() const noexcept { return session_->state() == fabric::session_state::lost; }

  /// Has the agent promise memory for so many stripes, or fewer than before. Blocks for a message at most. If it
  /// refuses, `text` says why. If it does not answer, what it has promised is the less of both, until it says it.
  errc promise(std::uint64_t stripes, duration within, std::string& text);
  [[nodiscard]] bool promise_is_unknown() const noexcept { return promise_is_unknown_.load(); }
  /// Places of what is promised can be taken again, after places().promise(0).
  void restore_places() noexcept { places_.promise(promised_bytes_.load() / region_bytes_); }
  /// Asks for a sign of life; `cancelled` if somebody else is asking for something.
  errc probe(duration within);
  /// Stripes that it has promised memory for, and that it could promise beyond, as it said last.
  [[nodiscard]] std::uint64_t promised() const noexcept { return promised_bytes_.load() / stripe_bytes_; }
  [[nodiscard]] std::uint64_t room() const noexcept { return room_bytes_.load() / stripe_bytes_; }
  [[nodiscard]] region_places& places() noexcept { return places_; }
  [[nodiscard]] const region_places& places() const noexcept { return places_; }

  /// Where a byte of the space is; false when its region is not there.
  [[nodiscard]] bool find(std::uint64_t at, fabric::remote& where) const noexcept;
  /// Its memory in this process, null where there is no such thing or the agent is not reached. Unless it is null, the
  /// memory is the agent's until end_copying: that of an agent that is lost is let go of when nobody copies.
  [[nodiscard]] std::byte* begin_copying(std::uint64_t at) noexcept;
  void end_copying() noexcept;
  /// Makes the region of a byte. Blocks for a message at most.
  errc make(std::uint64_t at) noexcept;
  /// The same without waiting for the agent: asks it, or looks whether it has answered. Nothing: not yet.
  std::optional<errc> make_soon(std::uint64_t at) noexcept;
  /// Gives the regions back in which no place is given out. Blocks for a message each, so long at most. When the agent
  /// cannot be told now, it is told when the connection is taken up again, or by settle(). O(regions) when there are
  /// such. Without `waits`, not while somebody else is at the regions.
  void release_empty(duration within, bool waits) noexcept;
  /// A region has no place given out any more: it is for release_empty().
  void emptied() noexcept { emptied_.store(true, std::memory_order_relaxed); }
  /// Tells the agent of what was given back while it could not be told. Blocks for messages; O(regions) when there is
  /// something.
  void settle() noexcept;
  /// The same without waiting for the agent. Takes several calls.
  void settle_soon() noexcept;
  /// The agent's own audit. Throws what the message fails with.
  protocol::audit_space_answer audit();
  [[nodiscard]] std::uint64_t regions() const noexcept { return regions_open_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t reconnects() const noexcept { return reconnects_.load(std::memory_order_relaxed); }
  /// Gives the space back and ends the session. Waits so long at most for the agent.
  void close(duration within) noexcept;

  // ---- whether it answers ----
  /// It answered an operation, or did not in time.
  void heard_of(errc e) noexcept;
  /// It answered a question of the mender's.
  void answered() noexcept { is_silent_.store(false, std::memory_order_relaxed); }
  [[nodiscard]] bool is_silent() const noexcept { return is_silent_.load(std::memory_order_relaxed); }
  /// An operation was not in time, and none has been since: the next one has longer.
  [[nodiscard]] bool is_slow() const noexcept { return is_slow_.load(std::memory_order_relaxed); }

  /// It has no memory for what it has promised: no stripe goes there for a while that can go elsewhere.
  void has_no_room() noexcept { full_until_.store((clock::now() + paged_limits::full_for).time_since_epoch().count()); }
  [[nodiscard]] bool had_room(time_point now) const noexcept {
    return full_until_.load() <= now.time_since_epoch().count();
  }

  // ---- the range's; see home.h ----
  std::atomic<role> as{role::joins};
  std::atomic<bool> wants_to_be_left{false};  ///< says the agent
  /// Its stripes that have so many members.
  std::array<std::atomic<std::uint64_t>, paged_limits::replicas_max + 1> stripes_with{};
  std::uint32_t silent_looks = 0;     ///< of the mender: in a row, without an answer
  std::atomic<bool> is_swept{false};  ///< it is lost, and a member of no stripe that others store

  // ---- paged_core's; see parked.cc ----
  std::atomic<std::uint32_t> fetches{0}, writes{0};  ///< slots that what is under way has taken
  fetch_line line;                                   ///< parked accesses that wait for a slot

 private:
  errc connected(fabric::session& s, std::uint32_t g) override;
  void disconnected(fabric::session& s, std::uint32_t g, errc why) noexcept override;
  [[nodiscard]] duration reconnect_for(duration usual) const noexcept override;
  void lost(fabric::session& s, errc) noexcept override;
  void notice(fabric::session&, std::span<const std::byte> payload) noexcept override;

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
  errc ask_region(fabric::session& s, std::uint32_t index, bool existing, duration within);
  /// The agent's answer about a region: attaches it.
  errc take_region(fabric::session& s, std::uint32_t index, bool existing, const std::vector<std::byte>& answer,
                   fabric::memory_key& key);
  errc tell_released(fabric::session& s, std::uint32_t index, duration within);
  void untold(std::uint32_t index, bool is) noexcept;
  void release(std::uint32_t index, duration within, bool waits) noexcept;
  errc resize(std::uint64_t stripes, duration within, std::string& text);
  /// Sends a message and takes its answer apart; the key, if one came, is the caller's.
  errc call(fabric::session& s, protocol::paged_message type, const void* body, std::size_t bytes,
            std::vector<std::byte>& answer, fabric::memory_key& key, duration within);
  /// Takes the content of the reply to a message of that type.
  static errc take_reply(fabric::request& r, protocol::paged_message type, std::vector<std::byte>& answer,
                         fabric::memory_key& key);

  const std::string url_;
  const std::uint32_t number_;
  const std::uint64_t stripe_bytes_, stripes_;
  const duration within_, suspect_within_;
  home_events& events_;
  std::string name_;
  std::uint64_t id_[2], incarnation_;
  errc refused_ = errc::ok;  ///< why the agent refused the first open
  std::string refusal_;

  bool opened_ = false;  ///< of the session thread
  std::uint64_t region_bytes_ = 0;
  std::uint16_t zone_ = 0;
  std::atomic<std::uint64_t> promised_bytes_{0}, room_bytes_{0};
  std::atomic<bool> promise_is_unknown_{false};
  std::mutex promise_mutex_;  ///< one question about it at a time
  std::atomic<duration::rep> full_until_{0};
  std::atomic<bool> is_silent_{false}, is_slow_{false};
  region_places places_;
  /// By index: generation << 32 | region + 1; 0: none. Written under mutex_, read without.
  std::vector<std::atomic<std::uint64_t>> names_;
  std::vector<bool> untold_;                    ///< by index: given back, but the agent may not know; under mutex_
  std::atomic<std::uint32_t> untold_count_{0};  ///< written under mutex_
  question question_;                           ///< under mutex_
  std::atomic<bool> is_asked_{false};           ///< question_.is_posted, for a look without the lock
  std::atomic<bool> is_lost_{false}, emptied_{false};
  std::atomic<std::uint32_t> copying_{0};  ///< who copies through what is mapped here
  std::atomic<std::uint32_t> usable_{0};   ///< generation of the session in which all regions are attached; 0: none
  std::mutex mutex_;                       ///< regions are made and given back one at a time
  std::atomic<std::uint64_t> regions_open_{0}, reconnects_{0};
  std::atomic<bool> closing_{false};
  std::unique_ptr<fabric::session> session_;
};

}  // namespace fm::detail

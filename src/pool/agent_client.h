// A pool on one agent, as a client has it: the session and its handshake, calls that are repeated across reconnects,
// the cached table of virtual blocks, the regions, and the thread that renews the lease and passes epochs.
//
// Invariants owned here
//   - A change (allocation, write, free, release) has a stream to itself, and is sent with one number until it has an
//     answer.
//   - A change is sent only in the life in which it was begun. A life ends when the agent has forgotten this client,
//     and with it what it did.
//   - A change carries its deadline on the agent's clock, no later than the moment at which the caller gives it up
//     (protocol/pool_messages.h, "In time").
//   - Messages about objects go where reads go: the agent polls there for the next request. Large ones do not, so that a
//     read does not wait for one to be received.
//   - A region is detached only when no read that was posted while it was attached is in flight.
//   - A word of the cached table may be old or wrong: it only says where to look.
//   - One call of the program waits until one deadline (`due`), whatever it asks for on the way.
//   - A thread of the program that waits here, for an agent, a lock or a stream, has left its sections of heaps
//     (detail/section_break.h). Reads of mapped memory wait for nothing, and stay in them.
#pragma once

#include "base/pool_limits.h"
#include "base/text.h"
#include "events/agent_events.h"
#include "fabric/client/client.h"
#include "os/os.h"
#include "protocol/heap_messages.h"
#include "protocol/pool_messages.h"
#include <farmem/detail/barriers/section_break.h>
#include <farmem/pool/options.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "copies.h"
#include "sections.h"

namespace fm::pool_detail {

namespace blocks = protocol::blocks;

struct reply {
  errc code = errc::ok;
  std::vector<std::byte> bytes;
  fabric::memory_key key{};
  std::uint32_t tenure = 0;      ///< agent_client::tenure() before it was asked
  std::uint32_t generation = 0;  ///< of the session's connection that it came on
  std::uint64_t number = 0;      ///< of a pool with replicas: of the last change before this was said
  [[nodiscard]] std::span<const std::byte> body() const noexcept {
    return std::span(bytes).subspan(std::min(bytes.size(), sizeof(protocol::answer_head)));
  }
  /// What the agent says about a refusal.
  [[nodiscard]] std::string text() const { return detail::readable_text(body()); }
};

/// When a call of the program gives up: so long after it has begun to wait. Looks at the clock when it is asked first,
/// because most reads of mapped memory wait for nothing.
class due {
 public:
  explicit due(duration within) noexcept : within_(within) {}
  explicit due(time_point at) noexcept : at_(at) {}
  [[nodiscard]] time_point at() noexcept {
    if (at_ == time_point{}) at_ = clock::now() + within_;
    return at_;
  }
  [[nodiscard]] bool is_over() noexcept { return clock::now() >= at(); }

 private:
  duration within_{};
  time_point at_{};
};

/// Closes what came with an answer and is not wanted.
void discard(fabric::memory_key& key) noexcept;
/// Takes an answer apart; bad_frame when it is none to `type`.
errc code_of(std::span<const std::byte> bytes, protocol::message_type type) noexcept;

class agent_client final : public fabric::session_events {
 public:
  struct counters {
    std::atomic<std::uint64_t> rpc_reads{0}, scans{0}, words_refreshed{0}, chunks_read{0}, discarded{0}, reconnects{0},
        epochs_passed{0}, stalls{0};
    detail::histogram corrections;
  };

  /// Opens; throws fm::error naming the agent. `events` is told what happens afterwards.
  agent_client(const std::string& url, const pool_options& options, fabric::service* in_process,
               detail::agent_events& events);
  /// The same of a part of a pool with replicas: its slot, from 1, and the agents that may have it, of which the first one
  /// makes it.
  agent_client(std::uint32_t slot, const std::vector<std::string>& urls, const pool_options& options,
               detail::agent_events& events, copies& parts);
  agent_client(const agent_client&) = delete;
  agent_client& operator=(const agent_client&) = delete;
  ~agent_client() override;

  // ---- session_events ----
  errc connected(fabric::session& s, std::uint32_t g) override;
  void disconnected(fabric::session& s, std::uint32_t g, errc why) noexcept override;
  void lost(fabric::session& s, errc why) noexcept override;
  void notice(fabric::session& s, std::span<const std::byte> payload) noexcept override;

  // ---- calls; repeated until there is an answer, the deadline passes, or the agent is lost ----
  /// `fixed` is the body's fixed part, `payload` what follows it.
  reply call(protocol::message_type type, std::span<const std::byte> fixed, std::span<const std::byte> payload,
             time_point deadline, fabric::lane on = fabric::lane::control) noexcept;
  /// Of a change: `body` begins with a protocol::pool_change, which is filled in here.
  static constexpr protocol::pool_pass_body nothing_passed{0, 0};
  template <class Body>
  reply change(protocol::message_type type, Body body, std::span<const std::byte> payload,
               time_point deadline) noexcept {
    const detail::section_break outside;
    open_change opened(*this, deadline);
    if (opened.number == 0) return {errc::timed_out, {}, {}};
    const std::uint32_t life = life_.load(std::memory_order_acquire);
    const auto on = payload.size() <= pool_limits::quick_upto ? fabric::lane::fetch : fabric::lane::control;
    for (;;) {
      // Of one agent, or of another one by the time that it is sent: then the agent finds that it is not meant.
      body.change = {opened.number, opened.stream, 0, 0};
      set_deadline(body.change, deadline);
      reply r = call_once(type, std::as_bytes(std::span(&body, 1)), payload, deadline, on);
      if (slot_ != 0 && await_count(r, deadline)) {
        if (life_.load(std::memory_order_acquire) == life) continue;
        r.code = errc::disconnected;  // nobody knows whether it was made
        return r;
      }
      if (clock::now() >= deadline && (r.code == errc::disconnected || r.code == errc::timed_out))
        return {errc::timed_out, {}, {}};
      if (r.code == errc::timed_out) {  // refused, and the agent's clock is not known well enough
        (void)call_once(protocol::message_type::pool_pass, std::as_bytes(std::span(&nothing_passed, 1)), {}, deadline,
                        fabric::lane::control);
        continue;
      }
      if (r.code != errc::disconnected) return r;
      if (const errc e = wait_until_up(deadline); e != errc::ok) return {e, {}, {}};
      if (life_.load(std::memory_order_acquire) != life) return r;  // nobody knows whether it was made
    }
  }

  // ---- replicas (replicas.cc) ----
  /// This client has made the part of the pool.
  [[nodiscard]] bool has_made() const noexcept { return made_; }
  /// The number of the agent that served the part when this client opened it; no two agents have the same.
  [[nodiscard]] std::uint64_t first_primary() const noexcept { return first_primary_; }
  struct replica_state {
    std::uint64_t term = 0;
    std::string backup;  ///< empty: there is none
  };
  /// Errors: as call; unsupported of a pool without replicas.
  [[nodiscard]] result<replica_state> replicas() noexcept;
  /// Waits until the primary says that it has a backup; false: not until then.
  bool await_copy(time_point until) noexcept;
  /// It says such things.
  [[nodiscard]] bool tells_state() noexcept;
  /// The state of an object that has that version, and was read in that tenure, counts: the backup has it. `looks`: until
  /// then it asks the primary's memory, if what is known does not tell. Not in a section then.
  [[nodiscard]] bool counts(std::uint64_t version, std::uint32_t tenure_then, due* looks) noexcept {
    if (slot_ == 0) return true;
    const auto v = static_cast<std::uint32_t>(version);
    const bool known =
        static_cast<std::int32_t>(v - static_cast<std::uint32_t>(counted_.load(std::memory_order_acquire))) <= 0;
    // The tenure is looked at afterwards: another primary gives the same versions to other states.
    return (known || (looks != nullptr && counts_now(v, *looks))) && tenure() == tenure_then;
  }

  // ---- the table ----
  /// The cached word; read in bulk where there is none. 0: the agent has none either, or does not answer.
  std::uint64_t word(std::uint32_t vblock, due& until) noexcept {
    const std::uint64_t w = vblock < blocks::vblock_limit ? words()[vblock].load(std::memory_order_relaxed) : 0;
    return w != 0 ? w : read_chunk(vblock, until);
  }
  /// Reads one word again.
  std::uint64_t refresh(std::uint32_t vblock, due& until) noexcept;
  void learn_word(std::uint32_t vblock, std::uint64_t w) noexcept {
    if (vblock < blocks::vblock_limit && is_sound(w)) words()[vblock].store(w, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_sound(std::uint64_t w) const noexcept {
    return blocks::is_mapped(w) && layout_.exists(blocks::class_of(w)) &&
           std::uint64_t{blocks::place_of(w).offset} + layout_.block(blocks::class_of(w)) <= layout_.region_bytes;
  }

  // ---- one-sided reads ----
  /// Where requests go to for that region; false when it is not attached: learn_region, outside of sections, and try
  /// again.
  bool locate(std::uint32_t ordinal, fabric::remote& where) const noexcept {
    const region_slot& r = regions()[ordinal];
    const std::uint64_t name = r.name.load(std::memory_order_acquire);
    if (name == 0 || r.attached_in.load(std::memory_order_relaxed) != session_->generation()) return false;
    where.region = static_cast<std::uint32_t>(name >> 32);
    where.generation = static_cast<std::uint32_t>(name);
    return true;
  }
  errc learn_region(std::uint32_t ordinal, due& until) noexcept;
  /// Where mapped(): that place in this process's memory, while the section that it is asked in lasts. Null: learn_region,
  /// outside of sections, and try again; or the session is not up.
  [[nodiscard]] const std::byte* mapped_at(blocks::place at) const noexcept {
    fabric::remote where;
    const std::byte* const base = locate(at.ordinal, where) && session_->state() == fabric::session_state::up
                                      ? session_->direct(where.region)
                                      : nullptr;
    return base != nullptr ? base + at.offset : nullptr;
  }
  /// Reads `bytes` at an address of the pool; learns the region if need be. Not in a section.
  errc read_at(blocks::place at, std::span<std::byte> to, due& until) noexcept;
  /// The deadline of a one-sided read for that call: its agent may be silent, and another one the primary by then.
  [[nodiscard]] time_point one_sided_until(due& until) const noexcept {
    return std::min(until.at(), clock::now() + one_sided_within_);
  }
  /// The lease has not run out. A read counts only if it did not while the read was made: not at its end, and in the
  /// same tenure.
  [[nodiscard]] bool lease_holds() const noexcept;
  [[nodiscard]] std::uint32_t tenure() const noexcept { return tenure_.load(std::memory_order_acquire); }
  /// Renews the lease at once, when it ran out.
  errc renew(due& until) noexcept;
  [[nodiscard]] class sections& sections() noexcept { return sections_; }
  [[nodiscard]] fabric::session& session() noexcept { return *session_; }
  /// Requests are done when post returns.
  [[nodiscard]] bool synchronous() const noexcept { return synchronous_; }
  /// Regions are memory of this process, from attach to detach.
  [[nodiscard]] bool mapped() const noexcept { return mapped_; }

  [[nodiscard]] std::uint32_t instance() const noexcept { return instance_; }
  /// The agent knows what version 3.1 of the protocol has.
  [[nodiscard]] bool knows_versions() const noexcept { return minor_ >= 1; }
  /// The same of version 3.2.
  [[nodiscard]] bool knows_expiry() const noexcept { return minor_ >= 2; }
  /// Of the agent's version of the protocol.
  [[nodiscard]] std::uint16_t minor() const noexcept { return minor_; }
  [[nodiscard]] const blocks::layout& layout() const noexcept { return layout_; }
  [[nodiscard]] const std::string& url() const noexcept {
    return session_ != nullptr ? session_->url() : urls_.front();
  }
  [[nodiscard]] time_point deadline() const noexcept { return clock::now() + options_.access_within; }
  /// Of a call that may not have to wait.
  [[nodiscard]] due patience() const noexcept { return due(options_.access_within); }
  /// Lets frames go that only this client holds back, as far as it is in its hands.
  void pass_soon() noexcept;

  counters count;

 private:
  struct region_slot {
    std::atomic<std::uint64_t> name{0};         ///< region << 32 | generation; 0: not known
    std::atomic<std::uint32_t> attached_in{0};  ///< generation of the session
    std::uint32_t unused = 0;
  };
  /// The stream of a change that is under way, and its number there; 0: there were too many for too long.
  struct open_change {
    open_change(agent_client& c, time_point deadline) noexcept;
    open_change(const open_change&) = delete;
    open_change& operator=(const open_change&) = delete;
    ~open_change();
    agent_client& client;
    std::uint32_t stream = 0;
    std::uint64_t number = 0;
  };

  [[nodiscard]] std::atomic<std::uint64_t>* words() const noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(words_.base());
  }
  /// Places of the table's chunks, as words with the valid bit; 0: not known.
  [[nodiscard]] std::atomic<std::uint64_t>* chunks() const noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(chunks_.base());
  }
  [[nodiscard]] region_slot* regions() const noexcept { return reinterpret_cast<region_slot*>(regions_.base()); }
  bool chunk_place(std::uint32_t vblock, blocks::place& at, due& until) noexcept;
  std::uint64_t read_chunk(std::uint32_t vblock, due& until) noexcept;
  /// Whose turn it is to learn regions, or to forget some; before pass_mutex_.
  struct learning {
    learning(agent_client& c, time_point until) noexcept;  ///< not `mine` if it does not come until then
    explicit learning(agent_client& c) noexcept;
    learning(const learning&) = delete;
    learning& operator=(const learning&) = delete;
    ~learning();
    agent_client& client;
    bool mine = false;
  };
  /// A word of the table by a load, where that is all it takes. Not in a section.
  bool load_mapped(blocks::place at, std::uint64_t& word) noexcept;

  reply call_once(protocol::message_type type, std::span<const std::byte> fixed, std::span<const std::byte> payload,
                  time_point deadline, fabric::lane on) noexcept;
  errc wait_until_up(time_point deadline) noexcept;
  errc shake_hands(fabric::session& s);
  errc tune(fabric::session& s, bool allowed);
  void heard(time_point sent) noexcept;
  [[nodiscard]] duration lease() const noexcept { return duration(lease_.load(std::memory_order_relaxed)); }
  /// An agent of a pool with replicas that says nothing for so long is left.
  [[nodiscard]] duration silence() const noexcept { return pool_limits::silent_leases * lease(); }
  agent_client(std::uint32_t slot, const std::vector<std::string>& urls, const pool_options& options,
               fabric::service* in_process, detail::agent_events& events, copies* parts);
  void tell(agent_change what) noexcept;

  // ---- replicas ----
  /// Waits until what was answered counts. True: nothing has come of it, ask again. Fills in `code` at the deadline.
  bool await_count(reply& r, time_point deadline) noexcept;
  bool counts_now(std::uint32_t version, due& until) noexcept;
  /// Looks at the word; false: it could not be read.
  bool look_at_word(due& until) noexcept;
  /// What an agent has said that is not the primary; retried at the others.
  errc not_here(fabric::session& s, errc code) noexcept;
  /// Another agent than before is the primary, or it may be with other memory.
  void begin_elsewhere() noexcept;
  void take_number(reply& r, protocol::message_type type) noexcept;
  /// What the primary says of its part (protocol::pool_state).
  void learn_state(std::uint32_t state, std::uint32_t tenure_then) noexcept;
  /// What the agent's clock was at some moment before now, and after the request was sent that it answers.
  void learn_clock(std::uint64_t agents_ns, std::uint32_t tenure_then) noexcept;
  /// The same, of the agent whose tag is set; mutex_ is held.
  void note_clock(std::uint64_t agents_ns) noexcept;
  /// The agent's clock has passed that when this process's has passed `until`. Not zero. And which agent's clock it is.
  void set_deadline(protocol::pool_change& change, time_point until) noexcept;
  void keep() noexcept;
  void pass(std::uint64_t epoch) noexcept;
  void forget_regions(std::span<const std::uint32_t> ordinals) noexcept;
  void forget_all_regions() noexcept;

  const std::vector<std::string> urls_;  ///< one; more of a pool with replicas
  const std::uint32_t slot_;             ///< 0: no replicas
  const pool_options options_;
  const bool synchronous_, mapped_;
  const duration one_sided_within_;
  std::uint64_t client_[2] = {};
  detail::agent_events& events_;
  copies* const parts_;  ///< null: no replicas
  os::reservation words_, chunks_, regions_;
  class sections sections_;

  // ---- set by the first handshake, before anybody else looks ----
  std::uint32_t instance_ = 0;
  std::uint16_t minor_ = 0;  ///< of the agent's protocol
  blocks::layout layout_;
  errc refused_ = errc::ok;
  std::string refusal_;
  std::uint64_t first_primary_ = 0;

  std::atomic<duration::rep> lease_{0};
  std::atomic<std::uint32_t> life_{0};
  /// Goes up when what was learned of the agent's memory means nothing any more: with each life, and each primary.
  std::atomic<std::uint32_t> tenure_{0};

  // ---- of a pool with replicas; the handshake's, but for what is atomic ----
  std::atomic<bool> made_{false};
  std::vector<bool> has_not_;  ///< by place in urls_: this agent has said that it does not have the part
  std::uint64_t primary_ = 0, term_ = 0;
  std::atomic<std::uint64_t> word_at_{0};  ///< place of the word of the log, as a word of the table
  std::atomic<std::uint64_t> counted_{0};  ///< what it said last
  std::atomic<duration::rep> lease_until_{0};

  std::mutex mutex_;  ///< what follows; never held while posting or waiting
  std::condition_variable changed_;
  std::string at_;      ///< URL of the agent that is connected, or was last; empty: none was
  bool is_up_ = false;  ///< as the program was told
  bool ended_ = false;  ///< lost or closed
  errc end_ = errc::ok;
  bool stopping_ = false;
  bool pass_wanted_ = false;
  std::uint64_t epoch_ = 0;        ///< of the pool, as far as it is known
  bool forget_all_ = false;        ///< the agent does not know any more what this client was told
  duration::rep agent_ahead_ = 0;  ///< its clock less this one's, at least, at `clock_learned_`
  time_point clock_learned_{};
  std::uint32_t agent_tag_ = 0;  ///< low half of the number of the agent whose clock it is
  std::vector<std::uint32_t> free_streams_;
  std::array<std::uint64_t, protocol::pool_streams_max> last_number_{};  ///< of the stream's holder

  std::uint32_t state_ = 0;   ///< what the primary has said (protocol::pool_state)
  bool is_learning_ = false;  ///< mutex_; a thread learns regions, or forgets some

  std::mutex pass_mutex_;                                        ///< of sections_.pass
  std::unordered_map<std::uint32_t, std::uint32_t> ordinal_of_;  ///< of who learns; by region, of those attached
  std::vector<std::uint32_t> leaving_;  ///< of who learns; regions that are forgotten, and attached still
  std::uint64_t gone_ = 0;              ///< of regions that have left the pool, what the agent told last

  std::unique_ptr<fabric::session> session_owner_;
  fabric::session* session_ = nullptr;  ///< set by the first `connected`
  std::thread keeper_;
};

}  // namespace fm::pool_detail

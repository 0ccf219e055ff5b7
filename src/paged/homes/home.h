// Where the pages of a range are at home: its agents, and for each stripe of 2^stripe_order pages the agents that store
// it (its members) with the place at each. So agents may be uneven, added, emptied and lost.
//
//   page -> stripe -> members, each {agent, place} -> {region index, offset}
//
// A stripe gets its members when something of it is first written, and loses them when nothing of it is at home any
// more. A block never crosses a stripe, nor a stripe a region. One operation adds a member (mend.cc copies to it
// first), and one takes a member out: moving a stripe, copying it again after a loss, emptying an agent and having more
// or fewer replicas are made of them (replicas of heaps are, too: docs/internals/replicas.md).
//
// Invariants
//   - All members of a stripe have every home copy of it: a write counts when all have it, and none is added while a
//     write is under way (begin_write, begin_copy).
//   - So any member that answers can be read, and nobody decides who may be.
//   - A place goes back only when nothing is read there: no page has its home copy in the stripe, or the pages that were
//     busy when the member was taken out have been seen not to be (mend.cc).
//   - A stripe never has two members on one agent.
//
// The lock of a stripe is that of its page group; what needs it says so. Members can be read without it by whoever has
// made a page of the stripe busy, and by others as a guess.
#pragma once

#include "home_agent.h"
#include "home_limits.h"
#include <array>

namespace fm::detail {

class home final : public home_events {
 public:
  /// `wakes`: a word that goes up, and is woken, when agents change.
  home(const paged_options& options, std::uint64_t pages, std::uint32_t stripe_order,
       std::atomic<std::uint32_t>& wakes);

  ~home() override { close(options_.access_within); }
  home(const home&) = delete;
  home& operator=(const home&) = delete;

  struct member {
    home_agent* agent = nullptr;
    std::uint64_t place = 0;
  };
  /// In the order in which they are asked.
  struct member_list {
    std::array<member, paged_limits::replicas_max> at{};
    std::uint32_t count = 0;
    [[nodiscard]] const member* begin() const noexcept { return at.data(); }
    [[nodiscard]] const member* end() const noexcept { return at.data() + count; }
    void add(member m) noexcept { at[count++] = m; }
  };
  struct outcome {
    bool begun = false;
    errc code = errc::ok;  ///< why not; ok: it can be soon
    const home_agent* agent = nullptr;
  };

  [[nodiscard]] std::uint64_t stripe_of(std::uint64_t page) const noexcept { return page >> stripe_order_; }
  [[nodiscard]] std::uint64_t stripes() const noexcept { return stripes_; }
  [[nodiscard]] std::uint64_t stripe_bytes() const noexcept { return page_bytes << stripe_order_; }
  /// Agents that are to store each stripe.
  [[nodiscard]] std::uint32_t replicas() const noexcept { return replicas_.load(std::memory_order_relaxed); }
  /// Changed with share_out(), by one thread at a time.
  void replicas(std::uint32_t n) noexcept { replicas_.store(n, std::memory_order_relaxed); }
  [[nodiscard]] member_list members(std::uint64_t stripe) const noexcept;
  /// The byte of a member's space at which a page of its stripe lies.
  [[nodiscard]] std::uint64_t offset_in(const member& m, std::uint64_t page) const noexcept {
    return ((m.place << stripe_order_) + (page & ((std::uint64_t{1} << stripe_order_) - 1))) * page_bytes;
  }
  /// The one to ask for a page; null if nobody stores its stripe. Of those that are lost if there is no other.
  [[nodiscard]] member reader_of(std::uint64_t page) const noexcept;

  // ---- with the stripe's lock ----
  /// The agent to name when a page cannot be had: the one with which it was lost, or a member. May be null.
  [[nodiscard]] const home_agent* blamed(std::uint64_t page, bool is_page_lost) const noexcept;
  /// All members are lost. False without members.
  [[nodiscard]] bool is_lost(std::uint64_t stripe) const noexcept;
  /// Before a write to all members, of which there must be paged_options::min_replicas. Chooses them if there are none:
  /// fewer than replicas() only if no agent has more. Agents that have no memory for what they promised
  /// have none, unless paged_options::min_replicas cannot be had without them. Else the write has to wait (`ok`, and not begun) until the mender
  /// has asked. A stripe that is being copied must not be written.
  outcome begin_write(std::uint64_t stripe) noexcept;
  /// `kept`: so many pages more have their home copies there. `refused`: that agent has no memory for what it promised.
  void end_write(std::uint64_t stripe, std::uint32_t kept, home_agent* refused) noexcept;
  /// So many pages have no home copy any more. Its places go back if no page has one, and none is written.
  void drop(std::uint64_t stripe, std::uint32_t pages) noexcept;
  [[nodiscard]] bool is_copied(std::uint64_t stripe) const noexcept { return state(stripe).copying; }
  [[nodiscard]] std::uint32_t kept(std::uint64_t stripe) const noexcept { return state(stripe).kept; }
  /// No write to it begins until end_copy. False while one is under way, or it is being copied.
  [[nodiscard]] bool begin_copy(std::uint64_t stripe) noexcept;
  /// `added`: the new member, which has every home copy. It may take the place of another one, whose place stays taken:
  /// nothing may be read there any more before give_place().
  void end_copy(std::uint64_t stripe, const member* added, const home_agent* instead_of) noexcept;
  /// Takes a member out, where there are others, between begin_copy and end_copy. Its place stays taken, as end_copy says.
  void remove(std::uint64_t stripe, const home_agent& agent) noexcept;
  /// The member that a stripe with too many is best without.
  [[nodiscard]] member surplus_of(const member_list& list) const noexcept;
  /// Takes members out that are lost, if others are left. Their places are of no consequence.
  void remove_lost(std::uint64_t stripe) noexcept;
  /// Takes all members out, which are lost and whose home copies nobody counts on any more. No write is under way.
  void forget(std::uint64_t stripe) noexcept;

  // ---- places ----
  /// A place on an agent that may join, for a copy; nothing if there is none. With `near` of its stripe. `full_too`: also
  /// on one that just had no memory for what it promised, if no other has a place.
  [[nodiscard]] std::optional<member> take_place(std::uint64_t stripe, const member_list& but,
                                                 const home_agent* instead_of = nullptr,
                                                 bool full_too = false) noexcept;
  [[nodiscard]] std::optional<member> take_place_on(home_agent& a, std::uint64_t stripe) noexcept;
  static void give_place(const member& m) noexcept {
    if (m.agent->places().give(m.place)) m.agent->emptied();
  }

  // ---- agents ----
  [[nodiscard]] std::uint32_t agents() const noexcept { return count_.load(std::memory_order_acquire); }
  /// Also those that are lost or gone.
  [[nodiscard]] home_agent& agent(std::uint32_t number) const noexcept { return *agents_[number]; }
  /// Stripes may go there.
  [[nodiscard]] static bool takes(const home_agent& a) noexcept {
    return !a.lost() && a.as.load() == home_agent::role::serves && !a.wants_to_be_left.load();
  }
  /// Stripes of these members may go there, perhaps in place of one: it is none of them, and in another zone than they are,
  /// with paged_options::strict_zones.
  [[nodiscard]] bool may_join(const home_agent& a, const member_list& list,
                              const home_agent* instead_of = nullptr) const noexcept;
  [[nodiscard]] bool may_grow(const member_list& list) const noexcept;
  /// Those that are neither lost nor gone. O(agents)
  [[nodiscard]] std::uint32_t serving() const noexcept;
  /// Stripes can be on so many agents that take some, and with paged_options::strict_zones in so many zones. O(agents²)
  [[nodiscard]] std::uint32_t possible_replicas() const noexcept;
  /// Those that stripes may go to, one of them left out. O(agents)
  [[nodiscard]] std::uint32_t takers(const home_agent* without = nullptr) const noexcept;
  /// Zones of those agents; each that has none is in one of its own. O(agents²)
  [[nodiscard]] std::uint32_t zones(const home_agent* without = nullptr) const noexcept;
  /// Shares the range out anew among those that nothing is moved away from. Throws what an agent refuses, after all
  /// others have promised theirs. Waits for each at most so long. With `asks`, all are asked first what room they have.
  /// `joins`: has a share, too, and is not admitted yet.
  void share_out(duration within, bool asks, home_agent* joins = nullptr);
  /// Copies of stripes that are wanted and that no agent has room for, as they said last.
  [[nodiscard]] std::uint64_t lacking(home_agent* joins = nullptr) const;
  /// Has an agent that may join promise a region beyond its share: where all that is left of the shares is on members.
  /// False if none does. Blocks for a message each.
  bool grow(const member_list& but, const home_agent* instead_of, duration within) noexcept;
  /// Agents promise no more than their shares from here on, if they store no more.
  void give_back_promises(duration within) noexcept;
  /// An agent that nobody else sees before admit(). Throws fm::error. The caller makes sure that nobody else does.
  home_agent& open(const std::string& url);
  /// Stripes may go there from here on.
  void admit(home_agent& a) noexcept;
  /// Ends it. Its number is the next one's.
  void refuse(home_agent& a) noexcept;
  /// Stripes that fewer than replicas() agents store, and those that more do.
  [[nodiscard]] std::uint64_t degraded() const noexcept { return with_members(1, replicas() - 1); }
  [[nodiscard]] std::uint64_t surplus() const noexcept {
    return with_members(replicas() + 1, paged_limits::replicas_max);
  }
  /// Share of what is stored that an agent should have, in stripes.
  [[nodiscard]] std::uint64_t share_of(const home_agent& a) const noexcept {
    return share_[a.number()].load(std::memory_order_relaxed);
  }

  void agent_changed() noexcept override;
  [[nodiscard]] bool is_replaceable(const home_agent& a) const noexcept override;
  [[nodiscard]] duration answer_within(const home_agent& a) const noexcept override;

  void release_empty(duration within, bool waits) const noexcept;
  /// begin_write found too few places since grow_for_writes.
  [[nodiscard]] bool lacks_room() const noexcept { return lacks_room_.load(); }
  /// Has an agent without places promise a region. If none can, begin_write waits for none, for a while.
  void grow_for_writes(duration within) noexcept;
  /// They may have more again: begin_write waits until they have been asked.
  void expect_room() noexcept { no_more_until_.store(0); }
  /// For the thread that has nothing else to do; waits for no agent.
  void settle_soon() const noexcept;
  void poll() const noexcept;
  void close(duration within) noexcept;

 private:
  /// The first agent that `may`, and can, promises a region more.
  template <class May>
  bool grow_one(const May& may, duration within) noexcept;

  struct stripe_state {
    std::uint16_t kept = 0;     ///< pages with home copies
    std::uint16_t writes = 0;   ///< under way
    std::uint16_t lost_to = 0;  ///< number of an agent + 1: bytes of the stripe were lost with it
    bool copying = false;
  };
  static_assert(sizeof(stripe_state) == 8);

  /// A member as a word: 0, or place << 16 | number + 1.
  [[nodiscard]] std::atomic<std::uint64_t>* words(std::uint64_t stripe) const noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(map_.base()) + stripe * paged_limits::replicas_max;
  }
  [[nodiscard]] stripe_state& state(std::uint64_t stripe) const noexcept {
    return reinterpret_cast<stripe_state*>(states_.base())[stripe];
  }
  void set_members(std::uint64_t stripe, const member_list& to) noexcept;
  [[nodiscard]] std::uint64_t with_members(std::uint32_t least, std::uint32_t most) const noexcept {
    std::uint64_t n = 0;
    for (std::uint32_t i = least; i <= most; ++i) n += counts_[i].load(std::memory_order_relaxed);
    return n;
  }
  [[nodiscard]] home_agent* choose(std::uint64_t stripe, const member_list& but, const home_agent* instead_of,
                                   bool full_too) const noexcept;
  /// The place of a neighbour at that agent.
  [[nodiscard]] std::uint64_t near(std::uint64_t stripe, const home_agent& agent) const noexcept;
  void give_unused(std::uint64_t stripe) noexcept;
  void make_turns();
  struct agent_shares {
    std::array<std::uint64_t, paged_limits::agents_max> of{};  ///< by number
    std::uint64_t all = 0, left = 0;                           ///< given out; what found no room
  };
  [[nodiscard]] agent_shares shares_of(const std::vector<home_agent*>& mine, bool within_room) const;
  /// `in_zones`: a zone has at most one copy of everything.
  [[nodiscard]] agent_shares shares_within(std::vector<home_agent*> open, std::uint64_t copies, bool within_room,
                                           bool in_zones) const;
  /// Agents among which the range is shared out.
  [[nodiscard]] std::vector<home_agent*> sharing(home_agent* joins) const;

  const paged_options options_;
  const std::uint32_t stripe_order_;
  std::atomic<std::uint32_t> replicas_;
  const std::uint64_t stripes_;
  std::atomic<std::uint32_t>& wakes_;
  os::reservation map_, states_;
  std::unique_ptr<fabric::service> local_;  ///< the agent in this process; outlives the sessions
  std::atomic<std::uint32_t> count_{0};
  std::array<std::unique_ptr<home_agent>, paged_limits::agents_max> agents_;
  std::array<std::atomic<std::uint64_t>, paged_limits::agents_max> share_{};
  /// Agents in turn, by their shares; new stripes go to `turns[stripe % size]`. Replaced as a whole; each that there
  /// was is kept once.
  std::atomic<const std::vector<std::uint32_t>*> turns_{nullptr};
  std::vector<std::unique_ptr<const std::vector<std::uint32_t>>> all_turns_;
  std::array<std::atomic<std::uint64_t>, paged_limits::replicas_max + 1> counts_{};  ///< stripes, by their members
  std::atomic<bool> lacks_room_{false};
  std::atomic<duration::rep> no_more_until_{0};  ///< said the agents when they were asked last, and are believed
};

}  // namespace fm::detail

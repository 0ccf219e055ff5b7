// Everything behind one fm::paged: the range, what is known of its pages, where they are at home, and who moves them.
//
//   fault.cc    an access that needs something: from the word to the page
//   parked.cc   the fault threads, and accesses that wait for an agent meanwhile
//   fill.cc     absent blocks: choosing, fetching, installing
//   evict.cc    cooling, sweeping, write-back
//   ahead.cc    sequential streams and prefetching
//   mend.cc     stripes that change agents: after a loss, to empty an agent, to even them out
//   watch.cc    agents that fall silent, and what the program is told of agents
//   members.cc  what fm::paged's own members do: populate, discard, resize_local, verify
//   agents.cc   those that are about agents: add_agent, remove_agent, keep_agent, set_replicas
//   core.cc     opening, closing, statistics, threads
//
// Invariants
//   - A page becomes present by one thread, which has made it busy, and with the bytes that its word says: zero when
//     untouched, the home copy when `remote`. If these cannot be had, it becomes absent again, as it was.
//   - A page is removed only if its word says that its bytes are elsewhere (it is clean), and only by a thread that has
//     made it busy.
//   - A block is read for its write-back while it is inactive, so nobody changes it unnoticed. If it is touched, the
//     write-back was in vain and the block stays dirty. The next one does not begin before that has ended
//     (writing_back).
//   - used pages = busy ones that are being filled or removed, and present ones. They are never above the limit, unless
//     that was lowered.
//   - No code of this layer touches the range but by file and by userfaultfd, so it never faults itself.
//
// Locks: a group's, and under it nothing but the queues' (leaves). No group is locked while another one is. Faults
// allocate nothing and hold no lock while they wait or fetch.
//
// Waiting: a fault thread waits for nobody longer than wait_in_place. Then it parks the fault (parked.cc): an agent
// that does not answer holds up the accesses to its own pages alone.
#pragma once

#include "events/agent_events.h"
#include "paged/homes/home.h"
#include "paged_limits.h"
#include "queue_policy.h"
#include <array>
#include <bitset>
#include <farmem/paged/options.h>
#include <farmem/paged/resource.h>
#include <farmem/paged/stats.h>
#include <memory_resource>
#include <thread>

#include "block_queue.h"
#include "block_record.h"
#include "fault_fd.h"
#include "page_table.h"
#include "streams.h"

namespace fm::detail {

/// Why an access, or eviction, does not come about.
struct trouble {
  errc code = errc::ok;
  const home_agent* agent = nullptr;
  bool for_room = false;
};

class paged_core {
 public:
  explicit paged_core(const paged_options& options);
  ~paged_core();
  paged_core(const paged_core&) = delete;
  paged_core& operator=(const paged_core&) = delete;

  [[nodiscard]] std::byte* base() const noexcept { return memory_.base(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] bool contains(const void* p) const noexcept {
    return p >= static_cast<const void*>(base()) && p < static_cast<const void*>(base() + bytes());
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// An access by a faulting thread's own handler (fault_mode::sigbus): true when it can be made again.
  bool fault_in_place(const void* address, bool write) noexcept;

  // ---- fm::paged's members ----
  std::pmr::memory_resource* resource() noexcept { return &small_; }
  void prefetch(std::span<const std::byte> some);
  void populate(std::span<const std::byte> some, bool for_writing);
  void discard(std::span<const std::byte> some);
  void resize_local(std::uint64_t bytes);
  void add_agent(const std::string& url);
  void remove_agent(const std::string& url, duration within);
  void keep_agent(const std::string& url);
  void set_replicas(std::uint32_t n);
  void evict_all();
  [[nodiscard]] std::string verify();
  [[nodiscard]] paged_stats stats(bool histogram);
  void drop_connections() noexcept;
  /// Throws when this is a child of the process that opened the range.
  void check_process() const;
  [[nodiscard]] bool in_child() const noexcept;
  /// In a child just after fork: nothing else gets the range's addresses. System calls alone.
  void take_place_in_child() const noexcept { memory_.take_place(); }

 private:
  enum class step : std::uint8_t {
    served,    ///< the page is there
    again,     ///< somebody else was at it; look again
    no_room,   ///< nothing can be filled before something is evicted
    no_slot,   ///< nothing can be fetched before another fetch has ended
    failed,    ///< the fetch failed, and may succeed later
    hopeless,  ///< the fetch failed, and always will
    parked,    ///< it waits for somebody, longer than a fault thread does
  };
  /// Blocks that one thread has made busy to fill them.
  struct block {
    std::uint64_t first = 0;
    std::uint32_t order = 0;
    [[nodiscard]] std::uint64_t pages() const noexcept { return std::uint64_t{1} << order; }
    [[nodiscard]] std::uint64_t from() const noexcept { return first * page_bytes; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return pages() * page_bytes; }
  };
  struct fetch_slot {
    std::atomic<bool> taken{false};
    fabric::request request;
    std::byte* staging = nullptr;
    paged_core* core = nullptr;
    enum : std::uint32_t { is_waited_for, is_parked, is_late };
    std::atomic<std::uint32_t> parked{is_waited_for};  ///< whom its end is told to: fault threads, or who reads ahead
  };
  struct write_slot {
    enum : std::uint32_t { idle, preparing, posted, done, finishing };
    std::atomic<std::uint32_t> state{idle};
    std::byte* staging = nullptr;
    paged_core* core = nullptr;
    block_entry entry;
    std::atomic<std::uint32_t> under_way{0};
    std::uint32_t count = 0;  ///< of both
    std::array<fabric::request, paged_limits::replicas_max> requests;
    std::array<home_agent*, paged_limits::replicas_max> agents{};
  };
  enum class agent_state : std::uint8_t { serves, wants_to_be_left, lost, gone };
  using stripe_pages = std::bitset<(2u << 20) / page_bytes>;
  /// A stripe on its way to another agent; see mend.cc.
  struct stripe_copy {
    std::uint64_t stripe = 0;
    std::uint64_t first = 0, pages = 0;  ///< from the first page with a home copy to the last
    home::member to, instead_of;
    home::member at;  ///< of the transfer that is under way
    bool is_posted = false;
    stripe_pages busy;  ///< that may still be read from the old place
  };
  enum class begun : std::uint8_t { no, posted, done };
  /// Behaviour of write-back when an agent has no region yet for a block.
  enum class asking : std::uint8_t {
    nothing,  ///< leaves the block to others: a fault thread allocates nothing
    soon,     ///< asks, and leaves the block until there is an answer: of an agent that is silent there never is one
    waits,    ///< asks, and waits for the answer: for members that wait until everything is evicted
  };
  /// A fetch between its beginning and its end.
  struct fill_op {
    block what;
    home_agent* agent = nullptr;
    fetch_slot* slot = nullptr;                      ///< the bytes come here
    const std::byte* direct = nullptr;               ///< or are already here; of the block's first page
    std::uint64_t remote_first = 0, remote_end = 0;  ///< pages that have to be fetched are among these
    errc early = errc::ok;                           ///< it could not even begin
    bool no_slot = false;                            ///< for want of a slot
  };
  struct fill_how {
    std::uint64_t page = ~std::uint64_t{0};  ///< that was touched
    bool write = false;                      ///< the access, or the whole stream
    bool mapped = true;                      ///< not: its first touch is to be noticed
    bool ahead = false;
    bool sample = false;  ///< only the page that was touched is mapped
  };
  /// A fetch of the thread that reads ahead.
  struct ahead_fill {
    fill_op op;
    fill_how how;
    bool of_stream = false;
    bool over = false;
  };
  /// An access that is being served, from its arrival until its thread can go on or the access has failed.
  struct access {
    std::uint64_t page = 0;
    bool write = false;
    bool may_park = false;  ///< by a fault thread, which has others to serve
    bool waited = false, waited_for_room = false;
    time_point arrived{};
    time_point patience{};    ///< a fault thread waits for others until then
    time_point until{};       ///< its deadline, from the first failure on
    time_point room_until{};  ///< its deadline while it waits for room; put off while anything is evicted
    std::uint64_t evicted = 0;
    trouble why;
    // ---- while it is parked ----
    bool fetching = false;          ///< `op` is under way
    home_agent* slot_of = nullptr;  ///< the agent of which it found no fetch slot
    home_agent* queue = nullptr;    ///< it waits for one of this agent, at `position` of its line
    fetch_line::position position;
    time_point again_at{};  ///< otherwise: when it is tried again
    fill_op op;
    fill_how how;
  };
  /// free -> taken -> waiting -> taken -> ... -> free; see parked.cc.
  struct parked_access {
    enum : std::uint32_t { free, taken, waiting };
    std::atomic<std::uint32_t> state{free};
    bool counted = false;  ///< in parked_count_
    access what;
  };

  // ---- fault.cc ----
  bool serve(std::uint64_t page, bool write, trouble& why) noexcept;
  /// Serves until it is done or has failed; parked only where the access may be.
  step go_on(access& a) noexcept;
  step attempt(access& a) noexcept;
  /// After its fetch, or what it came to.
  step end_attempt(access& a, const fill_how& how, fill_op& op) noexcept;
  /// An access that waits no longer here; and one that does so for its turn at a fetch slot.
  step park(access& a) noexcept;
  step enter_queue(access& a) noexcept;
  void leave_queue(access& a) noexcept;
  step serve_resident(std::uint64_t page, page_word w, bool write, trouble& why) noexcept;
  step serve_cooled(std::uint64_t page, page_word w, bool write, trouble& why) noexcept;
  /// What becomes of an access that failed.
  fault_action settle(std::uint64_t page, const trouble& why) noexcept;
  void poison(std::uint64_t page, const trouble& why) noexcept;
  [[noreturn]] void die(std::uint64_t page, const trouble& why) const noexcept;

  // ---- parked.cc ----
  [[nodiscard]] int fault_waiter() const;
  void serve_faults(int waits) noexcept;
  /// With a place that the caller has; so do the next three. True when it is free for another fault.
  bool serve_next_fault(parked_access& place) noexcept;
  /// Goes on with an access that a fault thread has read, until it is over (true) or parked.
  bool serve_or_park(parked_access& place) noexcept;
  void put_down(parked_access& place) noexcept;
  void give_place(parked_access& place) noexcept;
  [[nodiscard]] parked_access* take_place() noexcept;
  [[nodiscard]] bool is_due(const access& a, time_point now) const noexcept;
  /// Goes on with what is due of the parked accesses; when the next one is.
  time_point go_on_with_parked() noexcept;
  static void fetched(fabric::request& r) noexcept;
  void wake_parked() noexcept;
  void hear_parked() noexcept;

  // ---- fill.cc ----
  /// The largest absent block that its page's hint allows; the group is locked.
  [[nodiscard]] block choose(std::uint64_t page, page_word w) const noexcept;
  /// Makes a block busy; the group is locked, and the room is taken.
  void claim(const block& b) noexcept;
  /// `overtakes`: takes a fetch slot also while accesses wait for their turn at one.
  void begin_fill(const block& b, fill_op& op, bool overtakes) noexcept;
  errc end_fill(fill_op& op, const fill_how& how) noexcept;
  errc install(const fill_op& op, const fill_how& how) noexcept;
  void undo_fill(const block& b, bool remove) noexcept;
  void stretch(const block& b) noexcept;
  [[nodiscard]] bool has_fetch_slot(const home_agent& agent) const noexcept;
  fetch_slot* try_fetch_slot(home_agent& agent) noexcept;
  /// Waits until there may be one, or none is needed to see that the agent is not reached; ends at a close, and then.
  void wait_for_slot(const home_agent& agent, std::uint64_t page, time_point until = time_point::max()) noexcept;
  void give_fetch_slot(fill_op& op) noexcept;
  std::uint64_t random() noexcept;

  // ---- evict.cc ----
  bool take_room(std::uint64_t pages) noexcept;
  void give_room(std::uint64_t pages) noexcept;
  [[nodiscard]] std::uint64_t free_pages() const noexcept;
  /// Evicts until so many pages are free, or until then.
  void make_room(std::uint64_t pages, time_point until, asking how) noexcept;
  /// One bounded step; true when something moved.
  bool evict_step(bool everything, asking how) noexcept;
  bool cool() noexcept;
  bool sweep(asking how) noexcept;
  bool harvest() noexcept;
  void balance() noexcept;
  [[nodiscard]] bool is_last_copy(const block_entry& e) noexcept;
  begun start_write(const block_entry& e, const home::member_list& to, asking how) noexcept;
  /// `refused`: that agent has no memory for what it promised.
  void fail_write(const block_entry& e, errc code, home_agent* agent, bool refused = false) noexcept;
  void note_failure(errc code, const home_agent* agent) noexcept;
  static void written(fabric::request& r) noexcept;
  /// True when the block can be removed now: it is busy.
  bool acknowledge(const block_entry& e) noexcept;
  void remove(std::span<block_entry> gone) noexcept;
  void enter(std::uint64_t first, page_queue q) noexcept;
  /// For a write to each of these agents.
  write_slot* take_write_slot(std::span<const home::member> to) noexcept;
  /// Of so many slots, those that one agent may have: the others together leave some.
  [[nodiscard]] std::uint32_t share_of(std::size_t slots) const noexcept;
  [[nodiscard]] bool writes_in_flight() const noexcept;
  void run_evictor() noexcept;
  void wake_evictor() noexcept;
  [[nodiscard]] std::uint64_t reserve_pages() const noexcept;

  // ---- ahead.cc ----
  void note_access(std::uint64_t first, std::uint64_t pages, bool write) noexcept;
  void run_ahead() noexcept;
  bool fill_ahead(const ahead_job& job) noexcept;
  /// Ends the fetches of fill_ahead's ops as they come. Those of an agent that is silent become late.
  bool end_ahead(std::span<ahead_fill> fills) noexcept;
  bool finish_ahead(ahead_fill& f) noexcept;
  /// Ends the late ones that can be, or all of them. With ahead_at_work_.
  void end_late(bool waits) noexcept;
  [[nodiscard]] bool has_late(const home_agent& agent) const noexcept;

  // ---- members.cc ----
  struct page_range {
    std::uint64_t first = 0, end = 0;
  };
  [[nodiscard]] page_range pages_of(std::span<const std::byte> some, bool whole_pages) const;
  void discard_page(std::uint64_t page);
  void break_up(std::uint64_t page, page_word w) noexcept;
  void shrink_to(std::uint64_t pages, bool everything);
  void verify_group(std::uint64_t first, std::uint64_t& present, std::string& faults);
  void verify_homes(std::string& faults);
  [[noreturn]] void raise(const trouble& why, const char* what) const;

  // ---- mend.cc ----
  void run_mender() noexcept;
  /// What there is to do to all stripes; true when something is left.
  bool mend_all() noexcept;
  bool mend(std::uint64_t stripe) noexcept;
  /// Of a stripe all of whose agents are lost: goes on with what is here. False while somebody is at it.
  bool lose(std::uint64_t stripe) noexcept;
  /// Begins to copy what is at home to another agent, which becomes a member, perhaps in place of one. Copies go together:
  /// end_copies ends all. False if one could not be made. With `only`, no other agent may become one, and nothing is to be
  /// done if it cannot.
  bool begin_copy(std::uint64_t stripe, const home::member* instead_of, home_agent* only = nullptr) noexcept;
  bool end_copies() noexcept;
  bool drop_member(std::uint64_t stripe) noexcept;
  [[nodiscard]] stripe_pages busy_pages(std::uint64_t stripe) const noexcept;
  bool wait_to_copy(std::uint64_t stripe) noexcept;
  errc begin_transfer(fabric::op_kind kind, std::size_t copy) noexcept;
  errc end_transfer(std::size_t copy) noexcept;
  void end_copy(stripe_copy& c, bool copied) noexcept;
  /// When nobody reads there any more; false as long as somebody may.
  bool give_old_place(stripe_copy& c) noexcept;
  bool give_old_places() noexcept;
  void wait_for_old_places() noexcept;
  struct even_move {
    home::member from;
    home_agent* to = nullptr;
  };
  /// What makes agents more even; no `to` if nothing does.
  [[nodiscard]] even_move to_even_out(const home::member_list& list) const noexcept;
  bool leave(home_agent& a) noexcept;

  // ---- watch.cc ----
  bool watch_agents() noexcept;
  /// Asks an agent that is silent, or slow.
  void look_at(home_agent& a) noexcept;
  /// The same in the middle of a transfer with it, if it is time.
  void look_meanwhile(home_agent& a) noexcept;
  /// One is silent, or slow, or more is written than was promised, and it is time to look again.
  [[nodiscard]] bool must_watch() const noexcept;
  bool tell_changes() noexcept;

  // ---- agents.cc ----
  [[nodiscard]] home_agent& agent_named(const std::string& url) const;
  /// Throws invalid_argument if the range cannot do without it.
  void check_without(const home_agent& a) const;
  void stay(home_agent& a);
  void share_out_quietly();

  // ---- core.cc ----
  void start_threads();
  void stop() noexcept;
  static paged_options checked(paged_options o);
  void check_zones() const;
  /// Of local memory, and of fetch and write slots, so that all agents but one may be silent.
  static std::size_t least_blocks(std::size_t agents) noexcept;

  static std::uint64_t offset(std::uint64_t page) noexcept { return page * page_bytes; }

  const paged_options options_;
  const std::string name_;
  const bool tracks_;              ///< writes are noticed
  const std::uint32_t order_max_;  ///< of blocks
  const queue_policy policy_;
  const int process_;
  fault_fd memory_;
  page_table table_;
  std::atomic<std::uint32_t> mending_{0};  ///< goes up to wake the mender
  home home_;
  stream_table streams_;
  block_record record_;

  std::atomic<std::uint64_t> used_{0}, limit_{0};
  block_queue active_, proactive_, inactive_;
  std::vector<fetch_slot> fetch_slots_;
  std::vector<write_slot> write_slots_;
  std::vector<parked_access> parked_;
  os::reservation staging_;
  std::atomic<std::uint32_t> fetch_slots_freed_{0};
  std::atomic<std::uint32_t> queued_{0};  ///< parked accesses that wait for their turn at a fetch slot

  std::atomic<std::uint32_t> moved_{0};    ///< goes up when room was given back or a write ended
  std::atomic<std::uint64_t> evicted_{0};  ///< batches of blocks that were removed
  std::atomic<std::uint32_t> work_{0};     ///< goes up to wake the evictor
  std::atomic<bool> evictor_sleeps_{false};
  std::atomic<std::uint32_t> never_{0};  ///< a word to sleep on
  std::atomic<std::uint64_t> random_{0};
  std::atomic<std::uint16_t> last_error_{0};  ///< of write-back
  std::atomic<const home_agent*> last_error_agent_{nullptr};

  ahead_queue ahead_;
  std::vector<ahead_fill> late_;  ///< of agents that are silent; under ahead_at_work_, with room for all
  /// Held by those threads while they move blocks, and by verify.
  std::mutex ahead_at_work_, evictor_at_work_, mender_at_work_;
  std::mutex adds_agent_;               ///< one at a time
  std::mutex agents_change_;            ///< held by whoever shares out anew, or leaves an agent
  std::atomic<bool> evens_out_{false};  ///< an agent was added, or stripes have moved for another reason
  // The mender's.
  std::vector<stripe_copy> copies_;      ///< has room for as many as go together
  std::vector<stripe_copy> moved_away_;  ///< their old places may still be read; has room
  std::array<fabric::request, paged_limits::copies_most> copy_requests_;
  os::reservation mend_staging_;
  /// What each agent was when the range was shared out last, and when all stripes were looked at last.
  std::array<agent_state, paged_limits::agents_max> agents_seen_{}, agents_swept_{};
  bool sweep_again_ = false, share_again_ = false, evens_out_now_ = false;
  /// What the program was told of each agent.
  struct told {
    bool known = false, is_up = true, leaves = false, is_over = false;
  };
  std::array<told, paged_limits::agents_max> told_{};
  bool told_whole_ = true;
  agent_events events_;
  time_point watched_{}, ask_again_{};  ///< the agents; for room
  /// Fault threads that have read a fault and not ended with it: the page may have come otherwise meanwhile, and its
  /// thread gone on.
  std::atomic<std::uint32_t> faults_at_work_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> parked_count_{0};  ///< accesses that were parked and are not over
  int parked_fd_ = -1;                          ///< becomes readable when a parked access can go on
  int stop_fd_ = -1;                            ///< becomes readable when fault threads should end
  std::vector<int> fault_waiters_;              ///< epoll descriptors, one for each fault thread
  std::vector<std::thread> threads_;

  struct counters {
    std::atomic<std::uint64_t> faults{0}, remote{0}, fresh{0}, write{0}, near{0}, inactive{0}, writing{0}, waits{0},
        failed{0};
    std::atomic<std::uint64_t> fetched_bytes{0}, written_bytes{0}, write_failures{0}, cancelled{0}, dropped{0}, room{0};
    std::atomic<std::uint64_t> promoted{0}, stretched{0}, reduced{0};
    std::array<std::atomic<std::uint64_t>, paged_stats::orders> beside_pages{}, sampled_pages{}, sampled_used{};
    std::atomic<std::uint64_t> mended{0}, lost{0};
    std::atomic<std::uint64_t> ahead_pages{0}, ahead_sampled{0}, ahead_used{0}, ahead_bytes{0};
    std::array<std::atomic<std::uint64_t>, paged_stats::orders> filled{};
  } counts_;
  histogram fault_ns_;

  paged_extents extents_;
  size_class_resource small_;
};

/// Counts, without ordering anything.
inline void count(std::atomic<std::uint64_t>& c, std::uint64_t n = 1) noexcept {
  c.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace fm::detail

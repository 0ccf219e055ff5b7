// The objects of one pool on its agent: blocks of slots in frames, which objects are where, by whom they are named, and
// merging sparse blocks (CoRM section 3.1, with the identities and frames of protocol/pool_format.h instead of remapped
// pages).
//
// A frame is open (objects are allocated in it), merging (one of the two of the merge that is under way), or in its
// grave: emptied, with tombstones, until every client has passed the epoch of its burial. A virtual block is mapped to
// one frame; several may be mapped to the same, and the frame allocates births in its primary one.
//
// Invariants owned here
//   - All live objects that were born in a virtual block are in the frame that it is mapped to. So merging moves whole
//     virtual blocks, and the live objects of a frame are those of the virtual blocks that are mapped to it.
//   - No two live objects of a virtual block have the same index, and none ever had the same generation.
//   - A table word names a frame whose objects are complete: it is stored after them.
//   - After a finished round of compaction, no two blocks of a class that may be merged have objects that fit into one.
//     (So no two are at most half full. Classes whose random ids are too short, and blocks whose ids or slots are in
//     conflict, may not be merged.)
//   - A frame belongs to one arena, of one serving thread: no two threads allocate in one block. Another thread takes
//     over what a thread's arenas have only if there is no memory for one more frame.
//   - A frame with a free slot is in its arena's list; the list may name frames without one, too, of the same arena.
//   - An object that was born in the primary block of the frame where it lives is in the slot of its index, unless its
//     class has random ids. So such a birth, which takes a free slot, finds its index free.
//   - `displaced` of a frame names exactly the objects in another slot than their index's.
//   - A time in `expiries` of a frame is that of the object that lives in its slot. It is set and goes with the object,
//     under the frame's mutex: freed, it goes; moved by a merge, it moves along; released, it stays, because the slot
//     does. So an expiry never frees another object than the one that it was given to.
//   - A frame with such times is queued for the soonest of them, or for an earlier time.
//   - An object whose time has passed is found by nobody: it is freed, and only the memory is there for a while.
//   - books_bytes() is the memory of all records here, but for the allocator's own.
// The header of an object, in its slot, is the record of who lives there. Readers have frames mapped, and nobody but the
// agent can write them (pool.h). What a header says is still checked against the frame's bounds before it is used.
//
// Locks (`held`). The caller has the pool's structure lock. If it has the lock exclusively, it may do anything. If it
// shares the lock, it may do what changes objects and no structure. An operation that would change the structure says
// so (no `outcome`), has done nothing, and is called again with the lock had exclusively. Structure is which frames and
// virtual blocks there are, their state and class and arena, which block is mapped where, the table's words, and all of
// compaction. Of what changes while the lock is shared,
//   - an arena's list belongs to its mutex;
//   - a frame's slots, books and bytes, and the records of the virtual blocks that are mapped to it, to the frame's
//     mutex, and `listed` to both;
//   - the queue of frames with objects that expire, to its mutex; `queued` of a frame, to both mutexes;
//   - counts are atomic.
// Order: structure -> an arena -> a frame -> random ids, the queue of those that expire. Nobody has two arenas, or two
// frames, but who has the structure exclusively.
#pragma once

#include "agent/base/protocol.h"

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/environment.h"
#include "agent/base/limits.h"
#include "agent/base/random.h"
#include "expiries.h"
#include "frame_books.h"
#include "frames.h"
#include "log.h"

namespace fm::agent {

/// How the caller has the pool's structure lock.
enum class held : std::uint8_t { shared, exclusive };
/// A change that a client has asked for: until when it may be made, and who asks. The time is looked at with the object's
/// frame entered, so of two changes of an object the one that is found in time first is made first.
struct asked_change {
  time_point until = time_point::max();
  const environment* agent = nullptr;  ///< whose clock it is; null: none
  record_origin origin{};              ///< for the log
  [[nodiscard]] bool has_passed() const { return agent != nullptr && agent->now() >= until; }
};
/// What came of an operation. None: it takes the structure lock exclusively, and nothing was done.
using outcome = std::optional<errc>;

class pool_blocks {
 public:
  static constexpr std::uint32_t none = ~0u;
  static constexpr std::uint16_t no_slot = slot_index::no_slot;
  static constexpr std::uint32_t generation_max = ~0u;

  /// Shares of free slots by size class, of 65536; 0: the class is not looked at.
  using thresholds = std::array<std::uint32_t, blocks::class_count>;
  using names = std::array<blocks::naming, blocks::class_count>;

  struct options {
    blocks::layout layout;
    std::uint32_t arenas = 1;
    names wanted{};                                        ///< by size class
    blocks::fallback otherwise = blocks::fallback::birth;  ///< where the wanted random ids are too short
    std::uint32_t first_generation = 1;  ///< of the first birth in a virtual block; a seam for tests of their end
    /// Called with a frame's mutex held, before anything is done to its objects; a seam for tests of who waits for
    /// whom.
    void (*in_frame)(void* context, std::uint32_t frame) = nullptr;
    void* context = nullptr;
    const environment* agent = nullptr;  ///< by whose clock objects expire; null: the machine's
  };
  struct where {
    blocks::identity id;
    std::uint16_t slot = 0;
    std::uint64_t word = 0;
    std::uint64_t version = 0;  ///< of the state that was read or written
  };
  /// Of one size class, since the pool was made or now.
  struct class_counts {
    std::uint64_t frames = 0;
    std::atomic<std::uint64_t> allocated{0}, freed{0};  ///< objects
    std::atomic<std::uint64_t> payload_bytes{0};        ///< of those that are there
    std::uint64_t vblocks = 0;                          ///< mapped
    std::uint64_t merges_tried = 0, merges_made = 0, merges_in_conflict = 0, ids_in_conflict = 0;
    std::uint64_t objects_moved = 0, slots_kept = 0, bytes_returned = 0;
    std::uint64_t freed_before = 0;  ///< when compaction last looked for something to do

    /// Now; never more than there are.
    [[nodiscard]] std::uint64_t objects() const noexcept {
      const std::uint64_t made = allocated.load(std::memory_order_acquire),
                          gone = freed.load(std::memory_order_relaxed);
      return made < gone ? 0 : made - gone;
    }
  };

  pool_blocks(pool_frames& frames, const options& o);
  pool_blocks(const pool_blocks&) = delete;
  pool_blocks& operator=(const pool_blocks&) = delete;

  // ---- objects; O(1) expected ----
  /// `arena` is a client's, taken modulo the pool's; the thread has such arenas of its own. Errors: too_large,
  /// quota_exceeded, agent_full. The object expires `expires_ms` from now; 0: not by itself.
  outcome allocate(std::span<const std::byte> payload, std::uint32_t arena, where& out, held how = held::exclusive,
                   std::uint64_t expires_ms = 0, const asked_change& by = {});
  /// `at.id` and `at.slot` name the object; the rest is corrected. Errors: not_found; too_large; corrupt.
  errc read(where& at, std::vector<std::byte>& payload, std::uint32_t bytes_max = ~0u);
  /// Errors: not_found; timed_out; layout_mismatch when the object has another size, which goes to `bytes`; conflict
  /// when it has another version than `only_if`.
  errc write(where& at, std::span<const std::byte> payload, std::uint32_t& bytes, const asked_change& by = {},
             std::optional<std::uint64_t> only_if = {});
  /// Errors: not_found; timed_out.
  outcome free(const where& at, held how = held::exclusive, const asked_change& by = {});
  /// The object gets an identity of the block where it lives, if it has not one already. Errors as free; corrupt.
  outcome release(where& at, held how = held::exclusive, const asked_change& by = {});
  /// The object expires `ms` from now, whatever was said before; 0: not by itself. Errors: not_found; timed_out.
  errc expire_after(const where& at, std::uint64_t ms, const asked_change& by = {});
  struct list_entry {
    blocks::identity id;
    std::uint16_t slot = 0;
    std::uint32_t bytes = 0;
  };
  /// Of an object in the order of a list.
  struct position {
    std::uint32_t vblock = 0, index = 0;
  };
  /// Up to `most` objects from that position on, which then is where to go on; true when there are none after them. May
  /// give none and have more: it looks at a bounded number of slots (listing.cc).
  bool list(position& from, std::size_t most, std::vector<list_entry>& out) const;
  /// Bytes of the object; 0 when there is none.
  [[nodiscard]] std::uint32_t bytes_of(const where& at) const;
  /// The version of its state; 0 when there is none.
  [[nodiscard]] std::uint64_t version_at(const where& at) const {
    std::unique_lock<std::mutex> inside;
    return locate(at, inside).version;
  }

  // What follows takes the structure exclusively, but for what is said to be readable.

  // ---- objects that expire (expiry.cc) ----
  /// Frees objects whose time has passed, the soonest first. Looks at no more than `most` objects and frames. True when
  /// there are more whose time has passed. O(log frames + log slots) each.
  bool expire(std::uint32_t most = limits::expired_at_once);
  /// No object expires before that; no_expiry when none does. Readable with the structure shared, as the next two.
  [[nodiscard]] expiry soonest_expiry() const noexcept { return soonest_.load(std::memory_order_acquire); }
  /// Objects that expire, and those that have and were freed.
  [[nodiscard]] std::uint64_t expiring() const noexcept { return expiring_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t expired() const noexcept { return expired_; }

  // ---- compaction (compaction.cc) ----
  /// A round looks at all classes, or at those with a larger share of free slots than their entry.
  void begin_round();
  void begin_round(const thresholds& above);
  /// A bounded piece of the round: moves at most `objects` objects and about `bytes` bytes, and looks at about `looks`
  /// frames. False: nothing is left to do.
  bool compact_step(std::uint32_t objects = 256, std::uint64_t bytes = 128u << 10,
                    std::uint32_t looks = limits::frames_looked_at_max);
  /// Frames, and counts of live objects that no frame has, that compaction has looked at; for tests of its steps.
  [[nodiscard]] std::uint64_t looked_at() const noexcept { return looked_at_; }
  /// Readable with the structure shared, as is_sparse.
  [[nodiscard]] bool in_round() const noexcept { return plan_.running; }
  /// Of all classes.
  [[nodiscard]] bool in_full_round() const noexcept { return plan_.running && plan_.classes == ~std::uint64_t{0}; }
  /// A class has a larger share of free slots than its entry of `above`, of 65536, and has lost enough objects for a round to be
  /// worth it.
  [[nodiscard]] bool is_sparse(const thresholds& above) const;

  // ---- replicas ----
  /// A frame of the least size, for whoever has the log.
  errc reserve(blocks::place& at) {
    const errc e = frames_.take(blocks::frame_bytes_min, at);
    if (e == errc::ok) reserved_bytes_ += blocks::frame_bytes_min;
    return e;
  }
  /// From now on changes are numbered and written down there.
  void keep_log(pool_log& log) noexcept { log_ = &log; }
  /// An image of all that is there goes into the log, a step at a time, and meanwhile nothing is merged (image.cc).
  void begin_image();
  /// Writes down about so many bytes; false: that was all.
  bool image_step(std::uint64_t bytes);
  void end_image() noexcept { imaging_ = false; }
  [[nodiscard]] bool is_imaging() const noexcept { return imaging_; }
  /// What the primary has written down is done here, too (mirror.cc). Errors: bad_frame if it contradicts what is here;
  /// quota_exceeded, agent_full.
  errc apply(record_kind kind, std::uint64_t number, std::span<const std::byte> body);
  /// The primary's records have ended: births, frames and merges are this agent's from now on.
  void stop_mirroring();

  // ---- frames that wait ----
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  /// Frames that were buried up to the epoch `passed` are free, but for those beyond `most`. True when there were any.
  bool reclaim(std::uint64_t passed, std::uint32_t most = limits::reclaimed_at_once);
  [[nodiscard]] std::uint64_t graves() const noexcept { return graves_.size(); }
  [[nodiscard]] std::uint64_t grave_bytes() const noexcept { return grave_bytes_; }

  // ---- introspection; readable with the structure shared, but for what looks at frames: fill and audit ----
  [[nodiscard]] const blocks::layout& layout() const noexcept { return options_.layout; }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(chunks_.size()); }
  [[nodiscard]] blocks::place chunk(std::uint32_t i) const { return chunks_[i]; }
  [[nodiscard]] const class_counts& counts(std::uint32_t size_class) const { return classes_[size_class].counts; }
  /// How objects of a class are named, after the fallback.
  [[nodiscard]] blocks::naming naming(std::uint32_t size_class) const { return classes_[size_class].naming; }
  [[nodiscard]] bool compactable(std::uint32_t size_class) const { return classes_[size_class].compactable; }
  [[nodiscard]] std::uint64_t vblocks_mapped() const noexcept { return vblocks_mapped_; }
  [[nodiscard]] std::uint64_t vblocks_reused() const noexcept { return vblocks_reused_; }
  [[nodiscard]] std::uint64_t vblocks_retired() const noexcept { return vblocks_retired_; }
  /// Bytes of these records and those of the frames, which are not frames' memory. O(arenas).
  [[nodiscard]] std::uint64_t books_bytes() const;
  /// Live objects of every frame of a class that allocations or a merge may use; for tests of the guarantee.
  [[nodiscard]] std::vector<std::uint32_t> fill(std::uint32_t size_class) const;
  /// Compares everything with everything, the bytes in the frames included. O(bytes). The text names the first faults.
  audit_answer audit(std::string& text) const;

 private:
  enum class frame_state : std::uint8_t { unused, open, merging, buried };

  struct frame {
    std::mutex mutex;
    std::uint32_t number = 0;
    std::uint32_t slots = 0;
    std::uint32_t live = 0;
    std::uint32_t taken = 0;   ///< bits in `used`: live ones, and those that a merge has reserved
    std::uint32_t cursor = 0;  ///< where the search for a free slot begins
    std::uint32_t primary = none;
    std::uint32_t vblocks = none;  ///< the first that is mapped here
    std::uint32_t class_at = 0;    ///< in its class's list
    std::uint32_t listed_at = 0;   ///< in its arena's list; the arena's mutex
    blocks::place at;
    // In a round's order; see plan.
    std::uint64_t order = 0;
    std::uint32_t order_live = 0, order_next = none, order_before = none;
    std::uint16_t arena = 0;
    frame_state state = frame_state::unused;
    std::uint8_t size_class = 0;
    bool listed = false;    ///< in its arena's list
    bool mirrored = false;  ///< the log has it: what changes here is written down; structure
    bitmap used;
    bitmap ids;  ///< random ids that are taken
    slot_index displaced;
    std::unique_ptr<frame_expiries> expiries;  ///< null: nobody here expires
  };
  /// What one serving thread allocates in, for one arena of the clients, of one class.
  struct arena {
    std::atomic<std::uint32_t> current{none};  ///< the frame that had room last: a guess that saves the list
    std::mutex mutex;
    std::vector<std::uint32_t> with_room;  ///< frames; some of them have none any more
    std::uint32_t empty = none;            ///< structure: a frame that is kept though it is empty, perhaps
  };
  struct vblock {
    std::uint32_t frame = none;
    std::uint32_t last_generation = 0;
    std::uint32_t live = 0;
    std::uint32_t next = none, before = none;  ///< of those in the same frame; of those that may be used again
  };
  struct alignas(fm::detail::cache_line_bytes) size_class_state {
    blocks::naming naming = blocks::naming::birth;
    bool compactable = true;
    [[nodiscard]] bool random() const noexcept { return blocks::random_bits(naming) != 0; }
    std::vector<std::uint32_t> frames;  ///< open and merging
    std::vector<std::unique_ptr<arena>>
        arenas;  ///< by serving thread, then by the clients' arenas; those that were used
    class_counts counts;
  };
  struct found {
    frame* f = nullptr;
    std::uint32_t slot = 0;
    std::uint32_t bytes = 0;
    std::uint64_t version = 0;
  };
  /// A round goes class by class: first its blocks are put into an order, sparsest first; then the sparsest is merged
  /// into the fullest that its objects fit into, as long as there is one; and again, until an order brings no merge.
  /// Blocks with as many live objects are a list, through `order_next` and `order_before` of the frames whose `order` is
  /// the last one made. So no step takes longer because there are more blocks. Of a list, blocks are emptied from the
  /// front and filled from the back, so that those that stay are neighbours.
  struct plan {
    bool running = false;
    bool collecting = false;
    std::uint64_t classes = ~std::uint64_t{0};  ///< a bit for each size class that the round looks at
    std::uint32_t size_class = 0;
    std::uint32_t next = 0;  ///< frame of the class to look at, while collecting
    bool merged = false;     ///< something in this order
    struct ends {
      std::uint32_t front = none, back = none;
    };
    std::vector<ends> lists;          ///< by live objects
    std::uint32_t low = 0, high = 0;  ///< in `lists`: no other is below, or above
  };
  struct merge {
    bool running = false;
    std::uint32_t from = none, to = none;
    std::uint32_t next = 0;             ///< slot of `from` to look at
    std::vector<std::uint16_t> copies;  ///< slot of `to` by slot of `from`
    bitmap changed;                     ///< slots of `from` that changed since they were copied; from's mutex
    std::uint64_t kept = 0;
  };
  enum class search : std::uint8_t { found, nothing, unfinished };

  [[nodiscard]] std::byte* slot_memory(const frame& f, std::uint32_t slot) const {
    return frames_.memory(f.at) + std::uint64_t{slot} * blocks::slot_bytes(f.size_class);
  }
  using frame_guard = std::unique_lock<std::mutex>;
  [[nodiscard]] frame_guard enter(frame& f) const;
  /// An object, with its frame entered; none if its time has passed.
  [[nodiscard]] found find(const where& at, frame_guard& inside) const;
  /// The same, whatever its time.
  [[nodiscard]] found locate(const where& at, frame_guard& inside) const;
  [[nodiscard]] where where_of(std::uint32_t slot, const blocks::identity& id) const;
  [[nodiscard]] std::uint64_t word_of(std::uint32_t vblock) const;
  void set_word(std::uint32_t vblock, std::uint64_t word);
  /// The frame of a number that was noted, if there is one: it may be another than it was then.
  [[nodiscard]] frame* noted(std::uint32_t number) const { return number < all_.size() ? all_[number].get() : nullptr; }

  /// A frame of the arena with a free slot, entered; null when it has none.
  frame* frame_with_room(size_class_state& c, std::uint32_t arena_number, frame_guard& inside);
  frame* current_frame(size_class_state& c, std::uint32_t arena_number, frame_guard& inside);
  /// Sees to it that the arena has one. Errors as allocate.
  errc add_frame(std::uint32_t size_class, std::uint32_t arena_number);
  errc new_frame(std::uint32_t size_class, std::uint32_t arena_number);
  bool take_over(std::uint32_t size_class, std::uint32_t arena_number);
  void list_room(frame& f);
  void unlist(frame& f);
  /// The same, with the arena's mutex.
  void take_off_list(arena& a, frame& f);
  /// A virtual block for births in `f`, which it becomes the primary of.
  errc add_primary(frame& f);
  void map(std::uint32_t vblock, frame& f);
  void unmap(std::uint32_t vblock);
  [[nodiscard]] static std::uint32_t free_slot(const frame& f, std::uint32_t from);
  static void take_slot(frame& f, std::uint32_t slot) {
    f.used.set(slot);
    ++f.taken;
  }
  static void drop_slot(frame& f, std::uint32_t slot) {
    f.used.clear(slot);
    --f.taken;
  }
  /// Gives a new birth in f's primary block to who will live in `slot`; `f` has room for it. Errors: agent_full, when
  /// the block is out of generations and there is no other.
  errc bear(frame& f, std::uint32_t slot, blocks::identity& out);
  void unbear(frame& f, const blocks::identity& id);
  /// unbear() of this one unmaps its block.
  [[nodiscard]] bool is_last_of_block(const frame& f, std::uint32_t v) const {
    return vblocks_[v].live == 1 && v != f.primary;
  }
  [[nodiscard]] bool out_of_births(const frame& f) const {
    return vblocks_[f.primary].last_generation == generation_max;
  }
  [[nodiscard]] blocks::object_header header_of(const frame& f, std::uint32_t slot) const;
  /// Somebody lives there, and it is not only a merge's copy. The frame is entered.
  [[nodiscard]] bool is_resident(const frame& f, std::uint32_t slot, const blocks::object_header& h) const {
    return f.used.test(slot) && h.flags == blocks::flag_live && h.bytes <= layout().capacity(f.size_class);
  }
  /// Into f's `displaced`, and out of it, if the object is in another slot than its index's.
  void index_slot(frame& f, std::uint32_t slot, const blocks::identity& id);
  void unindex_slot(frame& f, std::uint32_t slot, const blocks::identity& id);
  void store_object(frame& f, std::uint32_t slot, const blocks::identity& id, std::span<const std::byte> payload,
                    std::uint32_t version);
  [[nodiscard]] errc load_object(const frame& f, std::uint32_t slot, std::vector<std::byte>& payload) const;
  void mark(const frame& f, std::uint32_t slot, std::uint16_t flags);
  /// The object is gone from its slot, and so is its time. The frame is entered.
  void vacate(frame& f, std::uint32_t slot, const blocks::identity& id, std::uint32_t bytes);
  /// The same, written down.
  void vacate(frame& f, std::uint32_t slot, const blocks::identity& id, std::uint32_t bytes, const asked_change& by);
  void bury(frame& f);
  void bury_if_empty(frame& f, bool all);

  // ---- the log ----
  [[nodiscard]] bool writes_down(const frame& f) const { return log_ != nullptr && log_->is_recording() && f.mirrored; }
  /// Room for the record of an object, where it is to be written down. Throws std::bad_alloc.
  [[nodiscard]] pool_log::entry note_object(const frame& f, std::span<const std::byte> payload) const;
  [[nodiscard]] pool_log::entry note_frame(record_kind kind, bool wanted) const;
  /// The number of a change that is made now, and its record. Of an object's new state its low half is the version.
  std::uint64_t write_down(pool_log::entry e) noexcept {
    return log_ != nullptr ? log_->append(std::move(e)) : last_version_.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  void image_of(frame& f);
  [[nodiscard]] static expiry expiry_of(const frame& f, std::uint32_t slot);

  // ---- of a mirror (mirror.cc) ----
  /// The frame of that number, open, with that slot; null: there is none.
  frame* mirrored_frame(std::uint32_t number, std::uint32_t slot = 0);
  errc mirror_vblock(std::uint32_t vblock);
  errc apply_frame(const frame_record& r);
  errc apply_primary(const frame_record& r);
  errc apply_block(const block_record& r);
  errc apply_object(const object_record& r, std::uint32_t version, std::span<const std::byte> payload);
  errc apply_stored(const stored_record& r, std::span<const std::byte> payload);
  errc apply_vacate(const vacate_record& r);
  errc apply_merge(const merge_record& r, std::span<const std::byte> pairs);
  errc apply_bury(const bury_record& r);
  errc apply_expiry(const expiry_record& r);
  errc apply_generations(const generations_record& r, std::span<const std::byte> all);
  /// A new object in a free slot.
  errc place_object(frame& f, std::uint32_t slot, const blocks::identity& id, std::span<const std::byte> payload,
                    std::uint32_t version, std::uint64_t expires_ms);

  // ---- times; the frame is entered ----
  /// The first moment of a whole ms that is not before `ms` from now.
  [[nodiscard]] expiry expiry_in(std::uint64_t ms) const;
  [[nodiscard]] expiry now_ms() const;
  [[nodiscard]] static bool has_expired(const frame& f, std::uint32_t slot, expiry now) {
    return f.expiries != nullptr && f.expiries->of(slot) <= now;
  }
  /// The same, now. Looks at the clock only if the object expires.
  [[nodiscard]] bool has_expired(const frame& f, std::uint32_t slot) const;
  void set_expiry(frame& f, std::uint32_t slot, expiry time);
  void drop_expiry(frame& f, std::uint32_t slot);
  void move_expiry(frame& from, std::uint32_t slot, frame& to, std::uint32_t to_slot);
  /// Queues the frame for the soonest time that it has, or for none.
  void queue_expiries(frame& f);
  /// A frame that is queued for `now` or earlier; null: none is. Not entered.
  frame* due_frame(expiry now);
  [[nodiscard]] std::uint64_t expiry_queue_bytes() const;

  /// Has a larger share of free slots than that, of 65536, which is not 0.
  [[nodiscard]] bool has_free_above(std::uint32_t size_class, std::uint32_t above) const;
  void begin_round_of(std::uint64_t classes);
  void next_order();
  void collect_some(std::uint32_t looks);
  search next_merge(std::uint32_t looks);
  frame* partner_of(const frame& from, frame& first);
  void put_in_order(frame& f, bool in_front);
  void take_out_of_order(frame& f);
  bool may_merge(const frame& from, const frame& to);
  void copy_resident(frame& from, std::uint32_t slot, frame& to);
  void finish_merge();

  pool_frames& frames_;
  const options options_;
  std::mutex random_mutex_;
  random_source random_;  ///< random_mutex_
  std::vector<size_class_state> classes_;
  std::deque<std::unique_ptr<frame>> all_;  ///< by number; null: without memory
  std::vector<std::uint32_t> unused_;       ///< those numbers
  std::deque<vblock> vblocks_;
  std::uint32_t unmapped_ = none;  ///< the first virtual block that may be used again
  std::vector<blocks::place> chunks_;
  struct grave {
    std::uint32_t frame;
    std::uint64_t epoch;
  };
  std::deque<grave> graves_;
  std::uint64_t grave_bytes_ = 0;
  std::uint64_t epoch_ = 1;
  std::uint64_t changes_ = 0;  ///< of table words
  alignas(fm::detail::cache_line_bytes) std::atomic<std::uint32_t> last_version_{
      0};  ///< no two states of any slot have the same one, but for 2^32 changes in between
  alignas(fm::detail::cache_line_bytes) std::uint64_t vblocks_mapped_ = 0;
  std::uint64_t vblocks_reused_ = 0, vblocks_retired_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  pool_log* log_ = nullptr;         ///< of a primary with replicas
  bool mirrors_ = false;            ///< a primary's records are applied: it says which numbers are used again
  bool imaging_ = false;            ///< nothing is merged
  std::uint32_t image_next_ = 0;    ///< frame
  std::uint32_t image_vblock_ = 0;  ///< the frames are through
  plan plan_;
  std::uint64_t orders_made_ = 1;  ///< 0 is of frames that are in none
  std::uint64_t looked_at_ = 0;
  merge merge_;
  std::atomic<std::uint64_t> frame_books_{0};  ///< bytes of frames' records
  mutable std::mutex expiry_mutex_;
  std::set<std::pair<expiry, std::uint32_t>> expiry_queue_;  ///< expiry_mutex_; frames by what they are queued for
  std::atomic<expiry> soonest_{no_expiry};                   ///< of the queue
  std::atomic<std::uint64_t> expiring_{0};                   ///< objects
  std::uint64_t expired_ = 0;
};

}  // namespace fm::agent

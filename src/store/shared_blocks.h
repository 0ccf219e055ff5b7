// The objects of one pool on its agent: blocks of slots in frames, which objects are where, by whom they are named, and
// merging sparse blocks (CoRM section 3.1, with the identities and frames of pool_format.h instead of remapped pages).
//
// A frame is open (objects are allocated in it), merging (one of the two of the merge that is under way), or in its grave: emptied,
// with tombstones, until every client has passed the epoch of its burial. A virtual block is mapped to one frame; several
// may be mapped to the same, and the frame allocates births in its primary one.
//
// Invariants owned here
//   - All live objects that were born in a virtual block are in the frame that it is mapped to. So merging moves whole
//     virtual blocks, and the live objects of a frame are those of the virtual blocks that are mapped to it.
//   - No two live objects of a virtual block have the same index, and none ever had the same generation.
//   - A table word names a frame whose objects are complete: it is stored after them.
//   - After a finished round of compaction, no two blocks of a class that may be merged have objects that fit into one.
//     (So no two are at most half full. What may not be merged: classes whose random ids are too short, and blocks whose ids, or slots, are in conflict.)
// What is here is the truth; bytes in frames are copies of it for readers, who may have them mapped, and are never believed.
// Not thread-safe: everything belongs to whoever holds the pool's mutex.
#pragma once

#include <farmem/store/pool_protocol.h>

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared_frames.h"
#include "shared_random.h"

namespace fm::store::node {

class shared_blocks {
 public:
  static constexpr std::uint32_t none = ~0u;
  static constexpr std::uint16_t no_slot = 0xffff;
  static constexpr std::uint32_t generation_max = ~0u;

  using names = std::array<blocks::naming, blocks::class_count>;

  struct options {
    blocks::layout layout;
    std::uint32_t arenas = 1;
    names wanted{};                                        ///< by size class
    blocks::fallback otherwise = blocks::fallback::birth;  ///< where the wanted random ids are too short
    std::uint32_t first_generation = 1;  ///< of the first birth in a virtual block; a seam for tests of their end
  };
  struct where {
    blocks::identity id;
    std::uint16_t slot = 0;
    std::uint64_t word = 0;
  };
  /// Of one size class, since the pool was made or now.
  struct class_counts {
    std::uint64_t frames = 0, objects = 0, payload_bytes = 0;
    std::uint64_t vblocks = 0;  ///< mapped
    std::uint64_t merges_tried = 0, merges_made = 0, merges_in_conflict = 0, ids_in_conflict = 0;
    std::uint64_t objects_moved = 0, slots_kept = 0, bytes_returned = 0;
    std::uint64_t freed_since = 0;  ///< objects, since compaction last looked for something to do
  };

  shared_blocks(shared_frames& frames, const options& o);
  shared_blocks(const shared_blocks&) = delete;
  shared_blocks& operator=(const shared_blocks&) = delete;

  // ---- objects; everything but compaction is O(1), and O(slots) for random ids whose slot has changed ----
  /// Errors: too_large, quota_exceeded, agent_full.
  errc allocate(std::span<const std::byte> payload, std::uint32_t arena, where& out);
  /// `at.id` and `at.slot` name the object; slot and word are corrected. Errors: not_found; corrupt.
  errc read(where& at, std::vector<std::byte>& payload);
  /// Errors: not_found; layout_mismatch when the object has another size, which goes to `bytes`.
  errc write(where& at, std::span<const std::byte> payload, std::uint32_t& bytes);
  errc free(const where& at);
  /// The object gets an identity of the block where it lives, if it has not one already.
  errc release(where& at);
  /// Bytes of the object; 0 when there is none.
  [[nodiscard]] std::uint32_t bytes_of(where at) const;

  // ---- compaction (shared_compaction.cc) ----
  void begin_round();
  /// A bounded piece of the round: moves at most `objects` objects and about `bytes` bytes. False: nothing is left to do.
  bool compact_step(std::uint32_t objects = 256, std::uint64_t bytes = 128u << 10);
  [[nodiscard]] bool in_round() const noexcept { return plan_.running; }
  /// A class has a larger share of free slots than `above`, of 65536, and has lost enough objects for a round to be worth it.
  [[nodiscard]] bool is_sparse(std::uint32_t above) const;

  // ---- frames that wait ----
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  /// Frames that were buried up to the epoch `passed` are free. True when there were any.
  bool reclaim(std::uint64_t passed);
  [[nodiscard]] std::uint64_t graves() const noexcept { return graves_.size(); }
  [[nodiscard]] std::uint64_t grave_bytes() const noexcept { return grave_bytes_; }

  // ---- introspection ----
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
  /// Live objects of every frame of a class that allocations or a merge may use; for tests of the guarantee.
  [[nodiscard]] std::vector<std::uint32_t> fill(std::uint32_t size_class) const;
  /// Compares everything with everything, the bytes in the frames included. O(bytes). The text names the first faults.
  audit_answer audit(std::string& text) const;

 private:
  enum class frame_state : std::uint8_t { unused, open, merging, buried };

  /// Who lives in a slot.
  struct resident {
    std::uint32_t vblock = 0;
    std::uint32_t generation = 0;  ///< 0: nobody
    std::uint32_t bytes = 0;
    std::uint16_t index = 0;
    bool changed = false;  ///< since a merge copied it
  };
  struct frame {
    std::uint32_t number = 0;
    frame_state state = frame_state::unused;
    std::uint8_t size_class = 0;
    std::uint16_t arena = 0;
    bool listed = false;  ///< in its arena's list of frames with room
    blocks::place at;
    std::uint32_t slots = 0;
    std::uint32_t live = 0;
    std::uint32_t taken = 0;   ///< bits in `used`: live ones, and those that a merge has reserved
    std::uint32_t cursor = 0;  ///< where the search for a free slot begins
    std::uint32_t primary = none;
    std::uint32_t class_at = 0;  ///< in its class's list
    std::vector<std::uint64_t> used;
    std::vector<resident> residents;
    std::vector<std::uint32_t> vblocks;  ///< that are mapped here
    std::vector<std::uint64_t> ids;      ///< random ids that are taken, a bit each
  };
  struct vblock {
    std::uint32_t frame = none;
    std::uint32_t last_generation = 0;
    std::uint32_t live = 0;
    std::uint32_t next_index = 0;
    std::uint32_t in_frame = 0;          ///< in frame::vblocks
    std::vector<std::uint16_t> slot_of;  ///< by index; empty with random ids
  };
  struct size_class_state {
    blocks::naming naming = blocks::naming::birth;
    bool compactable = true;
    [[nodiscard]] bool random() const noexcept { return blocks::random_bits(naming) != 0; }
    std::vector<std::uint32_t> frames;                  ///< open and merging
    std::vector<std::vector<std::uint32_t>> with_room;  ///< by arena; may name frames that have none any more
    std::vector<std::uint32_t> empty;                   ///< by arena; a frame that is kept though it is empty, perhaps
    class_counts counts;
  };
  struct found {
    frame* f = nullptr;
    std::uint32_t slot = 0;
  };
  /// A round goes class by class: a snapshot of the blocks, sparsest first; then the sparsest is merged into the fullest that
  /// its objects fit into, as long as there is one; and again, until a snapshot brings no merge.
  struct plan {
    bool running = false;
    bool collecting = false;
    std::uint32_t size_class = 0;
    std::uint32_t next = 0;                                       ///< frame of the class to look at, while collecting
    bool merged = false;                                          ///< something in this snapshot
    std::vector<std::pair<std::uint32_t, std::uint32_t>> sparse;  ///< live objects, frame
    std::size_t low = 0, high = 0, tried = 0;
  };
  struct merge {
    bool running = false;
    std::uint32_t from = none, to = none;
    std::uint32_t next = 0;             ///< slot of `from` to look at
    std::vector<std::uint16_t> copies;  ///< slot of `to` by slot of `from`
    std::uint64_t kept = 0;
  };

  [[nodiscard]] std::byte* slot_memory(const frame& f, std::uint32_t slot) const {
    return frames_.memory(f.at) + std::uint64_t{slot} * blocks::slot_bytes(f.size_class);
  }
  [[nodiscard]] found find(const where& at) const;
  [[nodiscard]] where where_of(const frame& f, std::uint32_t slot) const;
  [[nodiscard]] std::uint64_t word_of(std::uint32_t vblock) const;
  void set_word(std::uint32_t vblock, std::uint64_t word);

  frame* frame_with_room(std::uint32_t size_class, std::uint32_t arena, errc& why);
  frame* new_frame(std::uint32_t size_class, std::uint32_t arena, errc& why);
  void list_room(frame& f);
  /// A virtual block for births in `f`, which it becomes the primary of.
  errc add_primary(frame& f);
  void map(std::uint32_t vblock, frame& f);
  void unmap(std::uint32_t vblock);
  [[nodiscard]] static std::uint32_t free_slot(const frame& f, std::uint32_t from);
  static void take_slot(frame& f, std::uint32_t slot) {
    f.used[slot / 64] |= std::uint64_t{1} << slot % 64;
    ++f.taken;
  }
  static void drop_slot(frame& f, std::uint32_t slot) {
    f.used[slot / 64] &= ~(std::uint64_t{1} << slot % 64);
    --f.taken;
  }
  [[nodiscard]] static bool has_id(const frame& f, std::uint32_t id) { return (f.ids[id / 64] >> id % 64 & 1) != 0; }
  /// Gives a new birth in f's primary block to the resident of `slot`; `f` has room for it. False: the block is out of generations.
  errc bear(frame& f, std::uint32_t slot);
  void unbear(frame& f, const resident& r);
  void store_object(frame& f, std::uint32_t slot, std::span<const std::byte> payload);
  [[nodiscard]] errc load_object(const frame& f, std::uint32_t slot, std::vector<std::byte>& payload) const;
  void mark(const frame& f, std::uint32_t slot, std::uint16_t flags);
  void bury(frame& f);
  void bury_if_empty(frame& f, bool all);

  void collect_some(std::uint32_t frames);
  bool next_merge();
  bool may_merge(const frame& from, const frame& to);
  void copy_resident(frame& from, std::uint32_t slot, frame& to);
  void finish_merge();

  shared_frames& frames_;
  const options options_;
  random_source random_;
  std::vector<size_class_state> classes_;
  std::vector<std::unique_ptr<frame>> all_;
  std::vector<std::uint32_t> unused_;  ///< frames without memory
  std::deque<vblock> vblocks_;
  std::vector<std::uint32_t> unmapped_;  ///< virtual blocks that may be used again
  std::vector<blocks::place> chunks_;
  struct grave {
    std::uint32_t frame;
    std::uint64_t epoch;
  };
  std::deque<grave> graves_;
  std::uint64_t grave_bytes_ = 0;
  std::uint64_t epoch_ = 1;
  std::uint64_t changes_ = 0;       ///< of table words
  std::uint32_t last_version_ = 0;  ///< no two states of any slot have the same one, but for 2^32 changes in between
  std::uint64_t vblocks_mapped_ = 0, vblocks_reused_ = 0, vblocks_retired_ = 0;
  std::vector<std::byte> scratch_;
  plan plan_;
  merge merge_;
};

}  // namespace fm::store::node

// One heap on its agent: entries, types, regions, and the sequence of what has been applied.
//
// A tablet's block:
//   [0, 512 KiB)    entries, one of 8 bytes a slot
//   +0     4 KiB    tablet_record: a count of non-zero entries for each page of 512; a cycle's notes of the tablet
//   +4 KiB 8 KiB    mark bits        } all zero unless a cycle runs that the tablet is part of, so that they
//   +12 KiB 8 KiB   dirty bits       } cost memory only then
//   +20 KiB 16 KiB  referenced bits and taken bits of an evacuation in traversal order; zero unless one runs
//
// Invariants owned here
//   - Entries are atomics, readable by anybody without a lock; they change only under the heap's mutex.
//   - live_count and live_bytes of a region are exactly the sums over the entries that name it. They are derived from
//     entries alone, because the owner may have the region's bytes mapped and could change them.
//   - A type, once known, never changes.
#pragma once

#include "agent/base/protocol.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "agent/regions/region_pool.h"
#include "cycle.h"

namespace fm::agent {

using detail::home_address;
using detail::slot_t;
using detail::word_t;
using entry_t = std::atomic<word_t>;

struct session;
class evacuator;

/// An evacuation that the owner has asked for, and how far it is. heap::mutex.
struct evacuation {
  const evacuate_body asked;
  evacuate_answer told{};
};

/// What the owner of a heap that it has detached left for the next one (protocol/heap_messages.h, "Detaching").
struct detachment {
  std::string name, secret;
  std::uint64_t lineage[2] = {0, 0};
  std::uint64_t keep_ms = 0;
  std::vector<std::byte> record;  ///< empty: nobody can attach the heap, which has changed since or was claimed
  bool attached = false;          ///< by the owner that it has now or had last
  std::string owner;              ///< the name of that one, for who comes later
};

/// What is kept of a type beyond its size.
struct heap_type {
  std::uint32_t kind = 0;
  std::uint32_t bytes = 0;
  std::uint64_t layout_hash = 0;
  std::vector<std::uint32_t> ref_offsets;
  std::string name;
};

struct heap {
  static constexpr std::uint32_t tablet_limit = 1u << 24;
  static constexpr std::uint32_t type_limit = 1u << 20;
  static constexpr std::uint32_t page_slots = 512;
  static constexpr std::uint64_t tablet_pages = detail::tablet_slots / page_slots;
  static constexpr std::uint64_t record_at = detail::tablet_slots * 8;
  static constexpr std::uint64_t marks_at = record_at + detail::page_bytes;
  static constexpr std::uint64_t moves_at = marks_at + 2 * marks_bytes;
  static constexpr std::uint64_t tablet_block = moves_at + 2 * marks_bytes;

  heap(region_pool& p, const open_heap_body& b, std::uint64_t quota, std::uint32_t lease);
  heap(const heap&) = delete;
  heap& operator=(const heap&) = delete;
  ~heap();

  region_pool& regions_pool;
  owner_key key;  ///< its incarnation changes when the heap is attached, under the mutex
  const std::string name;
  const std::uint64_t quota_bytes;
  const std::uint32_t lease_ms;
  std::atomic<bool> closed{false};
  std::atomic<bool> was_detached{false};  ///< `detached` has a name: who looks for one waits for no other heap's mutex

  /// Held for a step by whoever moves objects, so that there is one at a time; taken before the heap's mutex.
  std::mutex mover;
  std::shared_ptr<evacuator> evacuating;  ///< mover's alone; null when no evacuation is under way

  std::mutex mutex;

  // ---- guarded by mutex ----
  session* owner = nullptr;  ///< null: disconnected, the lease runs
  time_point lease_until = time_point::max();
  std::uint64_t applied_seq = 0;
  std::vector<region*> regions;
  bool notices_pending = false;               ///< some region's owner has not been told that it retires
  std::atomic<std::uint16_t> owner_minor{0};  ///< of the protocol that the owner speaks
  bool told_to_leave = false;  ///< the owner was told that the agent is drained, and not that it is not any more
  bool tell_again = false;     ///< in this session it was told nothing yet, and in an earlier one it was
  bool was_told = false;
  detachment detached;  ///< without a name: the heap was never detached
  std::unordered_map<std::uint32_t, heap_type> types;
  std::uint64_t type_bytes = 0;
  std::map<std::uint32_t, os::reservation> tablet_blocks;  ///< by first tablet
  std::uint32_t tablets = 0;
  std::uint64_t entry_pages = 0;  ///< pages of entries that have memory
  std::uint64_t objects = 0;      ///< entries that name a copy
  std::uint64_t batches = 0, batch_bytes = 0, objects_indexed = 0;
  std::uint64_t regions_retired = 0, regions_cleaned = 0, bytes_cleaned = 0, cleaner_lost = 0;

  struct item {
    entry_t* entry;
    word_t word;
    std::uint16_t* page_count;
  };
  std::vector<item> scratch;  ///< of the batch that is being indexed

  /// A place in a region's batches.
  struct copy_walk {
    std::size_t extent = 0;
    std::uint64_t offset = 0;     ///< next header to look at
    std::uint64_t batch_end = 0;  ///< of the batch that `offset` is in; offset == batch_end: at a batch header
  };
  /// Where the cleaner is in this heap. The regions are entered for each step, not in between.
  struct cleaning_state {
    region* source = nullptr;
    std::uint32_t source_generation = 0;
    copy_walk at;
  } cleaning;
  region* move_target = nullptr;  ///< open, where whoever moves objects appends them; or null
  /// The evacuation that the owner has asked for last, or null. `evacuation_runs` tells that it is not done; it is read
  /// without the mutex.
  std::shared_ptr<evacuation> asked_evacuation;
  std::atomic<bool> evacuation_runs{false};
  bool move_bits_used = false;  ///< bits at moves_at may be set
  std::uint64_t bytes_evacuated = 0, objects_evacuated = 0, regions_evacuated = 0;

  // ---- the collection cycle (agent/tracing/tracer.h) ----

  std::uint64_t cycle_begun = 0;        ///< the last one
  end_cycle_answer cycle_ended_with{};  ///< of cycle `cycle_begun`, once it has ended
  std::uint64_t slots_released = 0;     ///< entries cleared by them
  std::uint64_t trace_faults = 0;       ///< in the cycles that have ended
  /// The cycle that runs, or null. Takes no lock that anybody holds for long. Thread-safe.
  [[nodiscard]] std::shared_ptr<heap_cycle> running_cycle() const {
    std::lock_guard lock(cycle_mutex_);
    return cycle_;
  }

  // ---- entries, lock-free ----

  /// The entry of a slot; null when its tablet was not granted.
  [[nodiscard]] entry_t* entry(slot_t slot) const noexcept {
    std::byte* block = tablet_block_of(detail::tablet_of(slot));
    return block == nullptr ? nullptr : reinterpret_cast<entry_t*>(block) + slot % detail::tablet_slots;
  }
  [[nodiscard]] std::byte* tablet_block_of(std::uint32_t tablet) const noexcept {
    return block_in(tablet_words()[tablet].load(std::memory_order_acquire));
  }
  /// The tablet's word: 63..12 address of its block, 0: not granted | 1 backup | 0 part of the cycle that runs.
  static constexpr std::uint64_t in_cycle = 1;
  /// Another agent is the tablet's primary: this one stores it, and neither traces it nor is it part of a cycle.
  static constexpr std::uint64_t is_backup = 2;
  [[nodiscard]] const std::atomic<std::uint64_t>* tablet_words() const noexcept {
    return reinterpret_cast<const std::atomic<std::uint64_t>*>(tablets_.base());
  }
  [[nodiscard]] static std::byte* block_in(std::uint64_t tablet_word) noexcept {
    return reinterpret_cast<std::byte*>(tablet_word & ~(in_cycle | is_backup));
  }

  struct tablet_record {
    std::uint16_t page_counts[tablet_pages];
    std::atomic<std::uint32_t> rescan;  ///< 1: some marked slot was not queued; it is in the tracer's list
  };
  [[nodiscard]] static tablet_record& record(std::byte* block) noexcept {
    return *reinterpret_cast<tablet_record*>(block + record_at);
  }
  [[nodiscard]] static std::uint16_t* page_counts(std::byte* block) noexcept { return record(block).page_counts; }
  /// Mark bits, and behind them the bits of the slots that are dirty at the owner; bit i: word i / 64, bit i % 64.
  using bits_t = std::atomic<std::uint64_t>;
  [[nodiscard]] static bits_t* marks(std::byte* block) noexcept { return reinterpret_cast<bits_t*>(block + marks_at); }
  [[nodiscard]] static bits_t* dirty_bits(std::byte* block) noexcept {
    return reinterpret_cast<bits_t*>(block + marks_at + marks_bytes);
  }

  /// Bits of an evacuation: slots that objects of its regions refer to, and behind them those that it has copied.
  [[nodiscard]] static bits_t* referenced_bits(std::byte* block) noexcept {
    return reinterpret_cast<bits_t*>(block + moves_at);
  }
  [[nodiscard]] static bits_t* taken_bits(std::byte* block) noexcept {
    return reinterpret_cast<bits_t*>(block + moves_at + marks_bytes);
  }

  // ---- sizes of home copies, lock-free ----

  /// Bytes of the home copy at `p` (8-aligned), header included, or 0 when its type is unknown or it does not fit into
  /// `room`. Each word of it is read once, because the owner may be able to change it. `header` is what was read.
  [[nodiscard]] std::uint64_t copy_bytes(const std::byte* p, std::uint64_t room, std::uint64_t& header) const noexcept {
    if (room < detail::header::bytes) return 0;
    header = load_word(p);
    const std::uint32_t id = detail::header::type(header);
    if (id >= type_limit) return 0;
    const std::uint64_t t = type_entries()[id].size.load(std::memory_order_acquire);
    if ((t & type_known) == 0) return 0;
    const std::uint64_t unit = t & 0xffffffff;
    std::uint64_t bytes = detail::header::bytes;
    if ((t & type_array) == 0) {
      bytes += detail::round_up(unit, 8);
    } else {
      if (room < 16) return 0;
      const std::uint64_t length = load_word(p + 8);
      if (length > (room - 16) / unit) return 0;
      bytes += 8 + detail::round_up(length * unit, 8);
    }
    return bytes <= room ? bytes : 0;
  }
  /// Where the references are of a type that copy_bytes has found known. A copy of an object has `count` of them, an
  /// array that many for each element of `stride` bytes.
  struct type_references {
    const std::uint32_t* offsets;
    std::uint32_t count;
    std::uint32_t stride;  ///< 0: no array
  };
  [[nodiscard]] type_references references_of(std::uint32_t type) const noexcept {
    const type_entry& t = type_entries()[type];
    const std::uint64_t size = t.size.load(std::memory_order_acquire);
    return {t.offsets, t.count, (size & type_array) == 0 ? 0 : static_cast<std::uint32_t>(size)};
  }
  [[nodiscard]] static std::uint64_t load_word(const std::byte* p) noexcept {
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(p), __ATOMIC_RELAXED);
  }

  // ---- changes; the caller holds the mutex ----

  /// What was left for a next owner does not describe the heap any more. Everything calls it that an owner changes.
  void changes() noexcept {
    if (!detached.record.empty()) detached.record = std::vector<std::byte>();
  }
  /// errc::ok also for tablets that are granted already. What a tablet had as a backup is forgotten.
  errc grant(std::uint32_t first, std::uint32_t count);
  /// The same as a backup. errc::refused if the agent is the primary.
  errc replicate(std::uint32_t first, std::uint32_t count);
  /// Of backups, and of what is the agent's own already; errc::not_found if one is not granted.
  errc promote(std::uint32_t first, std::uint32_t count);
  /// Forgets everything of the tablets, of which it is the primary of none from now on. O(entries).
  errc leave(std::uint32_t first, std::uint32_t count);
  /// errc::layout_mismatch when the number is taken by something else, too_large when there are too many.
  errc learn_type(std::uint32_t id, heap_type t);
  /// Makes all tablets part of the new cycle. No cycle runs.
  void begin_cycle(std::shared_ptr<heap_cycle> t);
  /// Ends the cycle that runs, if any: waits until nobody works on it, and zeroes the marks.
  void end_cycle();
  /// Tells the owner that the tracer is idle or has remote references, if the cycle still runs. Takes the mutex itself.
  void tell_traced(const heap_cycle& t);
  /// Whether none of these slots, whose tablet is granted, is marked or outside the cycle; of a backup, which the primary
  /// marks, the owner is believed.
  [[nodiscard]] bool is_dead(const slot_bits& p) const noexcept;
  /// Clears the entries of these slots, whose tablet is granted; adds to `a` what they named.
  void release(const slot_bits& p, release_answer& a);
  /// A region for appending; null with agent_full or quota_exceeded in `why`. The cleaner may go beyond the quota.
  region* open_region(region_use use, errc& why);
  /// No more batches will come: holes are closed with filler (protocol/heap_messages.h), and the region may retire.
  void seal(region& r);
  void add_live(region& r, word_t w) noexcept;
  /// One entry less names `r`; the last one of a sealed region retires it.
  void drop_live(region& r, word_t w);
  /// Tells the owner of a retiring region, if it is connected.
  void send_notice(region& r);
  /// Tells the owner that the agent is drained, or is not any more. False: its queue is full.
  bool send_drain_notice(bool drains);
  /// The owner agreed: the memory goes back to the pool.
  void free_region(region& r);
  /// Gives everything back; the heap is dead afterwards.
  void close();

  [[nodiscard]] bool owns(const region& r) const noexcept { return r.owner.load(std::memory_order_relaxed) == this; }
  [[nodiscard]] std::uint64_t metadata_bytes() const noexcept;
  [[nodiscard]] bool is_low() const noexcept;
  /// What is emptied comes back when the owner agrees: it is there, and does not leave too many unanswered. O(regions).
  [[nodiscard]] bool may_empty_regions() const noexcept;
  /// How many regions the heap can take before it is low.
  [[nodiscard]] std::uint64_t until_low() const noexcept;
  /// Regions that the owner can still open, as things are.
  [[nodiscard]] std::uint64_t left() const noexcept;

 private:
  errc reserve_tablets(std::uint32_t first, std::uint32_t count);
  void forget_backups(std::uint32_t first, std::uint32_t count);

  static constexpr std::uint64_t type_known = std::uint64_t{1} << 63;
  static constexpr std::uint64_t type_array = std::uint64_t{1} << 62;
  struct type_entry {
    std::atomic<std::uint64_t> size;  ///< 63 known | 62 array | 31..0 bytes; written last
    const std::uint32_t* offsets;
    std::uint32_t count;
  };
  [[nodiscard]] type_entry* type_entries() const noexcept {
    return reinterpret_cast<type_entry*>(type_entries_.base());
  }
  [[nodiscard]] std::atomic<std::uint64_t>& tablet_word(std::uint32_t tablet) noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(tablets_.base())[tablet];
  }

  os::reservation tablets_;       ///< the tablet's word, by tablet
  os::reservation type_entries_;  ///< type_entry by type number
  mutable std::mutex cycle_mutex_;
  std::shared_ptr<heap_cycle> cycle_;  ///< cycle_mutex_; changes only under mutex as well
};

/// Applies one index message; heap.mutex is held and `r` is an open region of the heap, entered by the caller.
/// ok; corrupt (the bytes are not the batch); anything else is a protocol violation, and `why` says which.
errc index_batch(heap& h, region& r, const index_body& b, const char*& why);

/// Verifies everything about a heap; heap.mutex is held.
audit_answer audit_heap(heap& h, std::string& text);

}  // namespace fm::agent

// The receiving half: makes objects out of a graph's parts, checking every word before it is used. See
// channel/path/channel_messages.h for the form, channel/graph/graph_writer.h for the other half. channel_core calls it, on the
// thread that receives.
//
// Invariants owned here
//   - An object that is made is sound at every moment: its references are null, or name objects that are there. It is
//     linked to the one that made it known in the section in which it is allocated. So all of a graph hangs on its
//     root, which only the reader holds until the graph is complete. If the graph ends before that, it leaves garbage
//     for the next cycle, and nothing else.
//   - A reference is written only to an object of the type that its field refers to: by the schema for new objects, by
//     comparing types for known ones.
//   - Memory is used in proportion to what has arrived and to limits. A length claims one object of this heap at most. A
//     reference to an object that is known and has not arrived takes more here than its eight bytes (late_ref), so what it
//     takes counts against the bytes of the graph.
//   - A part may lie in memory that its sender can change. So every word of it is read once, and the value that was
//     checked is the value that is used.
//   - Waiting for a part (part_source::next) happens outside of sections. Only roots and one pin are held then.
//   - A container is made empty, and linked as any object. Its entries come in batches. Those of a vector are written to
//     their place at once. Those of a map or set are added when all that they refer to is there: at once without
//     references, otherwise when the graph is complete. Until then they lie in arrays that the reader roots.
//   - One container is filled at a time, from its first entry to its last. A tree stays empty until then.
#pragma once

#include "graph_evolution.h"
#include "graph_writer.h"
#include "heap/heap_core.h"

namespace fm::detail {

/// Where a reader gets parts from.
class part_source {
 public:
  virtual ~part_source() = default;
  struct part {
    std::span<const std::byte> bytes;  ///< a multiple of 8, until the next call; may change while they are read
    bool last = false;
    std::uint64_t objects = 0;  ///< of the whole graph, in the last part
  };
  /// The next part of the graph; the last one is done with. Waits; throws what ends the graph. Outside of sections.
  virtual part next() = 0;
  /// What comes next of the part that was given last, when not all of it was, straight to where it belongs: whole
  /// words, at least one. Returns how many bytes; 0, and nothing else happens, when the part was given whole. `last`:
  /// no more of the graph follows. Waits and throws as next.
  virtual std::uint64_t next_into(std::span<std::byte> /*to*/, bool& /*last*/) { return 0; }
};

class graph_reader {
 public:
  /// `evolution`: how the sender's types become those of the schema; null when they are the same.
  graph_reader(object_cache& cache, const graph_schema& schema, graph_limits limits, bool acyclic, part_source& source,
               const graph_evolution* evolution = nullptr)
      : cache_(cache), schema_(schema), limits_(limits), acyclic_(acyclic), source_(source), evolution_(evolution) {}
  ~graph_reader();
  graph_reader(const graph_reader&) = delete;
  graph_reader& operator=(const graph_reader&) = delete;

  /// Reads a graph that begins in `first`. Throws fm::error: bad_frame when the bytes are not a graph of the schema,
  /// too_large over a limit of its own or an object too large for this heap, and what allocating and reaching objects
  /// throws.
  ptr<char[]> read(const part_source::part& first);
  /// The same for many roots, null ones included.
  std::vector<ptr<char[]>> read_each(const part_source::part& first);
  [[nodiscard]] std::uint64_t objects() const noexcept { return arrived_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  /// Objects that are known and have not arrived, with consecutive numbers, referred to by consecutive fields of
  /// `holder`; of roots, the holder is 0 and `field` is the root's place. Or, with no_number, the batches to come of the
  /// container `holder`, of which `field` entries have come.
  struct pending {
    std::uint64_t number;
    std::uint64_t count;
    slot_t holder;
    std::uint64_t field;
    graph_target type;
    std::uint32_t holder_type;
  };
  static constexpr std::uint64_t no_number = ~std::uint64_t{0};
  /// Objects from `number` on are of the type, up to the next run.
  struct type_run {
    std::uint64_t number;
    graph_target type;
  };
  /// Entries that are to be added when the graph is complete.
  struct staged {
    slot_t container;
    ptr<char[]> batch;
    std::uint64_t count;
    std::uint32_t type;  ///< of the container
  };
  /// A reference to an object that has not arrived yet, other than the one that made it known.
  struct late_ref {
    slot_t holder;
    std::uint64_t at;  ///< in its payload
    std::uint64_t number;
    graph_target target;  ///< what may stand there
  };

  [[noreturn]] void throw_bad(const std::string& why) const;
  void next_part();
  void need_word();
  std::uint64_t word();
  [[nodiscard]] std::uint64_t available() const noexcept { return static_cast<std::uint64_t>(end_ - at_); }
  void read_pending();
  pending take(std::uint64_t count);
  void read_together(const pending& p, const graph_type& t);
  void read_object(const pending& p, const graph_type& t);
  void read_plain(const pending& p, const graph_type& t, std::uint64_t length, std::uint64_t bytes);
  void read_whole(const pending& p, const graph_type& t, std::uint64_t length, std::uint64_t bytes, std::uint64_t sent);
  /// Reads so many bytes as they come, in front of which `before` bytes are left.
  void gather(std::vector<std::byte>& to, std::uint64_t before, std::uint64_t bytes);
  /// Replaces the numbers of `count` objects or elements by slots, or null where nothing is there yet. The first of them
  /// stands at `at` in its holder, and its first reference is field `field`.
  void read_refs(const graph_type& t, std::uint32_t type, char* first, std::uint64_t count, std::uint64_t at,
                 std::uint64_t field);
  slot_t read_ref(std::uint64_t number, graph_target target, std::uint32_t type, std::uint64_t at, std::uint64_t field);
  /// Reads which of its alternatives the object on top of the stack is.
  void choose();
  void open_container(const pending& p, const graph_type& t);
  void read_batch();
  void place_batch(const graph_type& container, const pending& p, std::uint64_t length, bool more);
  void stage_batch(std::uint32_t type, slot_t slot, std::uint64_t length);
  void insert(const staged& s);
  void insert_staged();
  void finish_filling();
  /// Links objects that were just made to what made them known; in their section.
  void link(const pending& p, slot_t first, std::uint64_t count);
  void make_known(graph_target type, std::uint32_t holder_type, std::uint64_t field, std::uint64_t count);
  [[nodiscard]] graph_target type_of(std::uint64_t number) const noexcept;
  /// Object `number` is known and cannot be what `target` allows. Of a choice that has not arrived nothing is said yet.
  void check_target(std::uint64_t number, graph_target target) const;
  [[nodiscard]] const graph_conversion* conversion_of(std::uint32_t type) const noexcept {
    return evolution_ != nullptr && evolution_->types[type] ? &*evolution_->types[type] : nullptr;
  }
  void account(std::uint64_t objects, std::uint64_t bytes);
  /// Hangs on that object all that has become known since the last call.
  void hang_children(slot_t holder);
  void push_children(slot_t holder);
  void hold(slot_t holder);
  void let_go() noexcept;
  void finish();

  object_cache& cache_;
  const graph_schema& schema_;
  const graph_limits limits_;
  const bool acyclic_;
  part_source& source_;
  const graph_evolution* const evolution_;

  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
  bool last_ = false;
  std::uint64_t claimed_objects_ = 0;

  std::vector<pending> stack_, children_;
  std::vector<slot_t> slots_;         ///< by number, 0: not there yet; not kept for a graph without cycles
  std::vector<type_run> types_;       ///< by number, ascending
  std::vector<late_ref> late_;        ///< to be written at the end
  std::vector<late_ref> body_late_;   ///< of the object whose references are being read
  std::vector<std::byte> body_;       ///< an object that is not copied as it comes, before it is one; or a batch
  std::vector<std::byte> sent_;       ///< the same as the sender has it, if it has another type
  std::vector<std::uint8_t> chosen_;  ///< by number: the place of the own type among alternatives, or nothing_chosen
  std::vector<staged> staged_;
  std::unique_ptr<container_filling> filling_;  ///< of the container that got entries last ...
  slot_t filled_ = 0;                           ///< ... which is this one
  std::size_t hung_ = 0;                        ///< of children_, those whose holder is known
  std::vector<ptr<char[]>> roots_;
  static constexpr std::uint8_t nothing_chosen = 255;
  std::uint64_t known_ = 0, arrived_ = 0, bytes_ = 0;
  slot_t held_ = 0;
  char* held_payload_ = nullptr;  ///< of held_, pinned
};

}  // namespace fm::detail

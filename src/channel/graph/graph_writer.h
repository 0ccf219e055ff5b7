// The sending half of a graph's journey: walks depth first from the root, copies every frame into the part that is
// being filled, and replaces each reference in the copy by the number of its object. See channel/path/channel_messages.h for what
// comes out.
//
// Invariants owned here
//   - A frame is looked at within one section, or while it is pinned. Between parts the traversal holds slots only. So
//     it holds up neither cycles nor eviction, and a graph may be larger than the cache.
//   - Each reference is read once, in the object, and its number stands in the copy whatever was copied there before.
//     So the numbers and the references agree, also when the copy lies where the receiver can change it.
//   - Waiting for room (part_sink::next) happens outside of sections.
//   - What is lent to a part stays pinned until the part is sent: in lent_, or by the pin of the object in hand.
//   - A container is written batch after batch, each with all that it makes known before the next.
//   - A slot names one object as long as the graph is written. Of tables that others write to, copies of all batches are
//     rooted until then: if an entry is erased meanwhile, its objects must not give their slots to others.
//
// A large object without references goes from where it lies, pinned until its part is sent, if the sink takes it that
// way (Naos, section 3.2). Others are copied: the payload travels, the prefix of a frame and its padding do not. So two
// frames that are neighbours in memory are not neighbours on the wire. References have to be rewritten, and that costs
// least in the copy. Adjacent frames are not merged: runs of consecutive slots, in the visited set and in the list of
// slots that are still to be sent, gain the same.
#pragma once

#include "base/limits.h"
#include "visited.h"
#include <farmem/detail/graph/schema.h>
#include <farmem/handles/prefetch.h>
#include <farmem/handles/scope.h>
#include <farmem/object/object.h>
#include <span>

namespace fm::detail {

/// Where a writer puts parts.
class part_sink {
 public:
  virtual ~part_sink() = default;
  /// Sends `used` bytes of the last buffer, if there was one, and gives the next: at least part_bytes_min, a multiple
  /// of 8. Waits for room; throws what ends the graph. Outside of sections.
  virtual std::span<char> next(std::size_t used) = 0;
  /// Bytes of a payload from which lend() is worth its price; more than any has where the sink takes nothing that way.
  [[nodiscard]] virtual std::uint64_t lends_from() const noexcept { return ~std::uint64_t{0}; }
  /// After the first `used` bytes of the last buffer come these, from where they lie. They stay there, and as they are,
  /// until the part is sent. The buffer has so much less room. False: no more of them before the next part.
  virtual bool lend(std::size_t /*used*/, std::span<const char> /*bytes*/) noexcept { return false; }
};

struct graph_limits {
  std::uint64_t objects = 0, bytes = 0;
};

class graph_writer {
 public:
  graph_writer(const graph_schema& schema, graph_limits limits, bool acyclic, part_sink& sink)
      : schema_(schema), limits_(limits), acyclic_(acyclic), sink_(sink), lends_from_(sink.lends_from()) {}

  /// Writes all that is reachable from `root`, which the caller keeps alive. Throws fm::error: too_large over a limit,
  /// corrupt when an object is not what a field says, and what reaching an object throws. O(objects + references).
  void write(slot_t root);
  /// The same for many roots, which may be null, without an array around them.
  void write_each(std::span<const slot_t> roots);
  /// Bytes in the buffer that was given last.
  [[nodiscard]] std::size_t used() const noexcept { return static_cast<std::size_t>(at_ - begin_); }
  [[nodiscard]] std::uint64_t objects() const noexcept { return known_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  /// Objects that are known and not written yet: slots first, first + step, ... Or, with walk_bit, a container of
  /// which more batches may come.
  struct pending {
    slot_t first;
    std::uint64_t count;
    std::int32_t step;
    graph_target type;
  };
  static constexpr graph_target walk_bit = 1u << 30;
  struct open_walk {
    std::unique_ptr<container_walk> walk;
    bool over = false;  ///< the last batch is written
  };

  void write_pending();
  /// Leaves its size in pieces_ when it has no room.
  void write_object(slot_t slot, std::uint32_t type, scope& s);
  void write_in_pieces(slot_t slot, const graph_type& t, std::uint64_t bytes);
  /// Whether an object goes from where it lies.
  [[nodiscard]] bool is_lent(const graph_type& t, std::uint64_t bytes) const noexcept {
    return bytes >= lends_from_ && !t.has_refs();
  }
  /// The same from where it lies; what keeps it there goes to lent_ next.
  void lend(const char* payload, std::uint64_t bytes);
  /// Writes [from, to) of a payload, in pieces if need be. What `payload` points to stays where it is meanwhile.
  void write_bytes(const graph_type& t, const char* payload, std::uint64_t from, std::uint64_t to);
  void write_word(std::uint64_t w);
  /// False: the top of the stack is a choice, a container, or an object that is being written.
  [[nodiscard]] bool is_plain(graph_target type) const noexcept {
    return (type & (choice_bit | walk_bit)) == 0 && schema_.types[type].container == nullptr;
  }
  void write_special();
  pending take_one();
  void choose(const pending& p);
  void open_container(const pending& p);
  void write_batch();
  void fetch_ahead(slot_t slot);
  const char* reach(slot_t slot, scope& s);
  /// The type number in its header. Outside of sections.
  std::uint32_t type_of(slot_t slot);
  /// Puts the numbers of the references in [from, to) of a payload into `copy`, the piece that begins at `from`.
  void number_refs(const graph_type& t, const char* payload, char* copy, std::uint64_t from, std::uint64_t to);
  std::uint64_t number_of(slot_t slot, graph_target type);
  void note_child(slot_t slot, graph_target type);
  void push_children();
  void flush();
  [[noreturn]] void throw_limit(const char* what, std::uint64_t limit) const;

  const graph_schema& schema_;
  const graph_limits limits_;
  const bool acyclic_;
  part_sink& sink_;
  const std::uint64_t lends_from_;
  std::vector<read_pin<char[]>> lent_;  ///< what the part that is being filled has from where it lies
  visited_set visited_;
  std::vector<pending> stack_;     ///< what comes next is at the end
  std::vector<pending> children_;  ///< of the object that is being written, in the order of its references
  std::vector<open_walk> walks_;   ///< of the containers that are being written, from the outermost
  std::vector<ptr<char[]>> kept_;  ///< copied batches; none of a tree, in which no slot is looked up
  std::uint64_t known_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t pieces_ = 0;
  std::uint32_t in_section_ = 0;
  char* begin_ = nullptr;
  char* at_ = nullptr;
  char* end_ = nullptr;
};

}  // namespace fm::detail

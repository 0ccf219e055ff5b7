// The owner's knowledge of an agent's regions. `region_table` is the wait-free half that the read path asks: one word
// per region number. `region_book` is the half behind the agent session's mutex: where batches are carved from open
// regions, what came back unused, what is acknowledged, what waits to be sealed or retired.
//
// Invariants owned here
//   - A region's bytes [0, end) are tiled by carves and gaps without overlap; every gap is later carved, given back to
//     the end, or closed by an abandoned batch, so that a walk by batch headers never meets a hole.
//   - `readable` in the table is the longest prefix of acknowledged batches (own regions) or what the agent said.
//   - A region is sealed only when nothing of it is under construction, unacknowledged or open.
//   - A region that the agent wants back stays `retiring` until the owner has given it back, whatever the agent says of
//     it meanwhile.
//
//   - Nothing that a carve still has in front of it allocates: see tile_memory.
//
//   life of an own region:  opening ─► open ─► full ─► sealing ─► sealed ─► retiring ─► (forgotten)
//   of one that the agent's cleaner made:         foreign ─────► retiring ─► (forgotten)
#pragma once

#include "os/os.h"
#include "protocol/heap_messages.h"
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace fm::remote {

using namespace protocol;

}  // namespace fm::remote

namespace fm::remote::internal {

/// Generation and readable bound of every region number, one atomic word each; zero: unknown or retired.
///   63..32 readable bytes | 31..0 generation
class region_table {
 public:
  region_table() : memory_(std::uint64_t{detail::home_address::region_limit} * sizeof(std::uint64_t), 4096) {}

  [[nodiscard]] std::uint32_t generation(std::uint32_t region) const noexcept {
    return static_cast<std::uint32_t>(load(region));
  }
  [[nodiscard]] std::uint64_t readable(std::uint32_t region) const noexcept { return load(region) >> 32; }
  void set(std::uint32_t region, std::uint32_t generation, std::uint64_t readable) noexcept {
    word(region).store(readable << 32 | generation, std::memory_order_release);
  }
  void clear(std::uint32_t region) noexcept { word(region).store(0, std::memory_order_seq_cst); }

 private:
  using atomic_word = std::atomic<std::uint64_t>;
  static_assert(sizeof(atomic_word) == 8 && atomic_word::is_always_lock_free);
  [[nodiscard]] atomic_word& word(std::uint32_t region) const noexcept {
    return reinterpret_cast<atomic_word*>(memory_.base())[region];
  }
  [[nodiscard]] std::uint64_t load(std::uint32_t region) const noexcept {
    return region < detail::home_address::region_limit ? word(region).load(std::memory_order_acquire) : 0;
  }
  os::reservation memory_;
};

/// A piece of a region that a batch is built in.
struct carve {
  std::uint32_t region = 0, generation = 0;
  std::uint32_t offset = 0, bytes = 0;
  std::byte* memory = nullptr;  ///< of `offset`, where the region is mapped here; null elsewhere
};

struct extent {
  std::uint32_t region = 0, generation = 0;
  std::uint32_t offset = 0, bytes = 0;
};

/// Nodes of the maps of gaps and of acknowledged bytes. A carve needs one for the part that it gives back, and one for
/// its batch, if that is acknowledged before others. A batch that is under way, and a gap that is closed, needs one. So
/// with b carves and u unacknowledged batches, 2 b + u free nodes are enough for all that is to come.
class tile_memory {
 public:
  tile_memory() = default;
  tile_memory(const tile_memory&) = delete;
  tile_memory& operator=(const tile_memory&) = delete;
  ~tile_memory() {
    while (free_) ::operator delete(std::exchange(free_, *static_cast<void**>(free_)));
  }
  /// Makes that many free nodes. Throws bad_alloc, and keeps those that it got.
  void reserve(std::size_t nodes) {
    for (; free_nodes_ < nodes; ++free_nodes_) push(::operator new(node_bytes));
  }
  [[nodiscard]] void* take() {
    FM_CHECK(free_nodes_ != 0, "room for what is to come is reserved before it begins");
    --free_nodes_;
    return std::exchange(free_, *static_cast<void**>(free_));
  }
  void give_back(void* node) noexcept {
    push(node);
    ++free_nodes_;
  }
  static constexpr std::size_t node_bytes = 48;  ///< of a map of two words, with its links

 private:
  void push(void* node) noexcept {
    *static_cast<void**>(node) = free_;
    free_ = node;
  }
  void* free_ = nullptr;
  std::size_t free_nodes_ = 0;
};

/// Nodes out of a tile_memory.
template <class T>
struct tile_allocator {
  using value_type = T;
  tile_memory* memory;
  explicit tile_allocator(tile_memory& m) noexcept : memory(&m) {}
  template <class U>
  tile_allocator(const tile_allocator<U>& o) noexcept : memory(o.memory) {}
  [[nodiscard]] T* allocate([[maybe_unused]] std::size_t n) {
    static_assert(sizeof(T) <= tile_memory::node_bytes && alignof(T) <= alignof(void*));
    FM_ASSERT(n == 1, "a map makes nodes one by one");
    return static_cast<T*>(memory->take());
  }
  void deallocate(T* at, std::size_t) noexcept { memory->give_back(at); }
  friend bool operator==(const tile_allocator&, const tile_allocator&) = default;
};

enum class region_state : std::uint8_t { opening, open, full, sealing, sealed, foreign, retiring };

/// Not thread-safe: the agent session's mutex covers it. The table is written here and read by anybody.
class region_book {
 public:
  /// Room kept behind every batch, so that what it leaves unused can be closed by a header.
  static constexpr std::uint32_t rest_bytes_min = sizeof(batch_header);

  /// offset -> bytes
  using tiles = std::map<std::uint32_t, std::uint32_t, std::less<>,
                         tile_allocator<std::pair<const std::uint32_t, std::uint32_t>>>;

  struct record {
    explicit record(tile_memory& m) : gaps(tiles::allocator_type(m)), islands(tiles::allocator_type(m)) {}
    std::uint32_t region = 0, generation = 0;
    region_state state = region_state::opening;
    bool sealed_by_agent = false;
    std::byte* memory = nullptr;
    std::uint32_t end = 0;  ///< carved so far
    std::uint32_t readable = 0;
    std::uint32_t building = 0;        ///< carves not yet submitted or given back
    std::uint32_t unacknowledged = 0;  ///< batches, abandoned ones included
    tiles gaps;                        ///< below `end`
    tiles islands;                     ///< acknowledged beyond `readable`
  };

  explicit region_book(region_table& table) : table_(table) {}
  /// Sizes; called once, when the agent has said how large its regions are.
  void configure(std::uint32_t region_bytes, std::uint32_t batch_bytes);

  /// Adds a fresh region for appending; false when the number is in use already. Nothing is carved from it before
  /// `opened` says that it is attached. Throws bad_alloc, and has added nothing then.
  bool add_opening(std::uint32_t region, std::uint32_t generation);
  void opened(std::uint32_t region, std::uint32_t generation, std::byte* memory);
  /// The agent does not have the region any more: nothing is carved from it or read in it.
  void gone(std::uint32_t region, std::uint32_t generation);
  /// A region in the book has been attached again, on a new connection.
  void attached_again(const region_answer& a, std::byte* memory);
  /// Adds, or refreshes, a region that somebody else fills. Throws bad_alloc, and has added nothing then.
  void add_foreign(const region_answer& a, std::byte* memory);

  /// Takes room for `need` bytes, and more where there is more, up to the batch size. False: another region is needed.
  /// Throws bad_alloc before anything has changed.
  bool take(std::uint32_t need, carve& out);
  /// A region should be asked for now, so that `take` will not have to wait.
  [[nodiscard]] bool wants_region() const;

  /// Something can be carved now.
  [[nodiscard]] bool has_open() const { return !open_.empty(); }

  /// A carve becomes a batch of `used` bytes. The rest goes back to the region.
  void submitted(const carve& c, std::uint32_t used);
  /// A carve comes back unused.
  void given_back(const carve& c);
  /// The agent has indexed or skipped `bytes` at `offset`.
  void acknowledged(std::uint32_t region, std::uint32_t generation, std::uint32_t offset, std::uint32_t bytes);
  /// A gap that nothing will fill any more.
  [[nodiscard]] std::optional<extent> gap_to_close() const;
  /// The one that gap_to_close names counts as an unacknowledged batch from now on.
  void begin_closing(const extent& gap);
  /// A region all of whose batches are acknowledged and that is to be sealed now; null: none. It becomes `sealing`.
  record* next_to_seal();
  [[nodiscard]] bool can_seal() const;
  /// The agent has answered to sealing. When it did seal, it closed whatever holes there were, so that all is readable.
  void sealed(std::uint32_t region, std::uint32_t generation, bool by_agent);

  /// The agent wants the region back: no read of it begins from here on. False: it names a region that is being
  /// filled, or another generation than the known one.
  bool retire(std::uint32_t region, std::uint32_t generation);
  /// Drops a region from the book and the table.
  void forget(std::uint32_t region, std::uint32_t generation);

  [[nodiscard]] record* find(std::uint32_t region);
  [[nodiscard]] const record* find(std::uint32_t region) const { return const_cast<region_book*>(this)->find(region); }
  [[nodiscard]] std::unordered_map<std::uint32_t, record>& all() { return records_; }
  [[nodiscard]] std::size_t size() const { return records_.size(); }

 private:
  [[nodiscard]] std::uint32_t gap_bytes_min() const { return batch_bytes_ / 8; }
  bool take_from(record& r, std::uint32_t need, carve& out);
  void release(record& r, std::uint32_t offset, std::uint32_t bytes);
  void close_if_full(record& r);
  void make_full(std::uint32_t region);
  /// A fresh record of the region. The record of its last generation goes.
  record& renew(std::uint32_t region);
  void uncount(const record& r);

  region_table& table_;
  tile_memory tile_memory_;                        ///< outlives the records
  std::size_t building_ = 0, unacknowledged_ = 0;  ///< of all regions together
  std::unordered_map<std::uint32_t, record> records_;
  // With room for all that can come into them: of both lists, all regions; of the small gaps, one for each carve.
  std::vector<std::uint32_t> open_;  ///< in the order in which they were opened
  std::vector<std::uint32_t> full_;  ///< finished, not yet being sealed
  std::vector<extent> small_gaps_;   ///< not worth another batch
  std::uint32_t region_bytes_ = 0, batch_bytes_ = 0;
};

}  // namespace fm::remote::internal

// The message that counts a heap's home copies by type, a few thousand slots at a time; a member of heap_session.
// It reads entries and headers as a fetch does, with the regions entered and no lock held, so that nobody waits for
// it.
// If an object moves meanwhile, it is found where its entry says then.
#include <fmt/format.h>

#include <map>

#include "agent/base/limits.h"
#include "heap_session.h"

namespace fm::agent {

namespace {

/// The regions that a step has entered; it leaves them when it ends.
class entered_regions {
 public:
  explicit entered_regions(region_pool& p) : pool_(p) {}
  ~entered_regions() {
    for (const auto& [at, r] : inside_) pool_.leave(*r);
  }
  entered_regions(const entered_regions&) = delete;
  entered_regions& operator=(const entered_regions&) = delete;

  region* enter(const home_address& at) {
    const std::pair key{at.region, at.generation};
    if (const auto found = inside_.find(key); found != inside_.end()) return found->second;
    region* const r = pool_.enter(at.region, at.generation);
    if (r == nullptr) return nullptr;
    try {
      return inside_.emplace(key, r).first->second;
    } catch (...) {
      pool_.leave(*r);
      throw;
    }
  }

 private:
  region_pool& pool_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, region*> inside_;
};

struct counter {
  heap& h;
  entered_regions regions;
  std::map<std::uint32_t, census_record> types;

  struct copy {
    const std::byte* at = nullptr;  ///< null: nothing is stored
    std::uint64_t room = 0;
    slot_t slot = 0;
  };

  /// False when the entry leads nowhere.
  bool find(slot_t slot, const entry_t& entry, copy& out) {
    out = {};
    word_t word = entry.load(std::memory_order_acquire);
    for (int moves = 0; word != 0; ++moves) {
      const home_address at = home_address::unpack(word);
      if (const region* const r = regions.enter(at); r != nullptr && at.offset < r->memory.bytes()) {
        out = {r->memory.base() + at.offset,
               std::min<std::uint64_t>(r->memory.bytes() - at.offset, detail::size_class::bytes(at.size_class)), slot};
        __builtin_prefetch(out.at);
        return true;
      }
      const word_t again = entry.load(std::memory_order_acquire);
      if (again == word || moves == limits::moves_max) return h.closed.load();
      word = again;
    }
    return true;
  }

  bool count(const copy& c) {
    std::uint64_t header = 0;
    const std::uint64_t bytes = h.copy_bytes(c.at, c.room, header);
    if (bytes == 0 || detail::header::slot(header) != c.slot) return false;
    census_record& r = types[detail::header::type(header)];
    r.type = detail::header::type(header);
    ++r.objects;
    r.bytes += bytes;
    return true;
  }
};

}  // namespace

errc heap_session::census(body b, fabric::answer& out) {
  constexpr auto type = message_type::census;
  census_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.count == 0 || m.count > census_slots_max ||
      m.count % heap::page_slots != 0 || m.first_slot % heap::page_slots != 0 || m.first_slot >= detail::slot_limit ||
      m.first_slot % detail::tablet_slots + m.count > detail::tablet_slots)
    return errc::bad_frame;
  std::byte* const block = h_.tablet_block_of(detail::tablet_of(m.first_slot));
  if (block == nullptr)
    return refuse(out, type, errc::not_found, fmt::format("slots from {} on are not granted", m.first_slot));
  const std::uint32_t first_page = m.first_slot % detail::tablet_slots / heap::page_slots;
  std::uint16_t page_counts[census_slots_max / heap::page_slots];
  {
    std::lock_guard lock(h_.mutex);
    if (h_.owner != &s_) return not_the_owner(h_, out, type);
    std::memcpy(page_counts, heap::page_counts(block) + first_page, m.count / heap::page_slots * sizeof *page_counts);
  }
  std::vector<std::uint64_t> stored(m.count / 64);
  counter c{h_, entered_regions(regions_), {}};
  std::array<counter::copy, 64> copies;
  for (std::uint32_t word = 0; word < stored.size(); ++word) {
    if (page_counts[word * 64 / heap::page_slots] == 0) continue;  // without memory, and looking would give it some
    const slot_t first = m.first_slot + std::uint64_t{word} * 64;
    for (std::uint32_t i = 0; i < 64; ++i)
      if (!c.find(first + i, *h_.entry(first + i), copies[i]))
        return refuse(out, type, errc::corrupt, fmt::format("the entry of slot {} names no region", first + i));
    for (std::uint32_t i = 0; i < 64; ++i) {
      if (copies[i].at == nullptr) continue;
      if (!c.count(copies[i]))
        return refuse(out, type, errc::corrupt, fmt::format("the home copy of slot {} is damaged", first + i));
      stored[word] |= std::uint64_t{1} << i;
    }
  }
  std::vector<census_record> records;
  for (const auto& [number, r] : c.types) records.push_back(r);
  begin_answer(out, type, stored.data(), stored.size() * 8);
  append_answer(out, records.data(), records.size() * sizeof(census_record));
  return errc::ok;
}

}  // namespace fm::agent

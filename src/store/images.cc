// The images of a cycle: records in one growing stretch of memory, and an index from slot to the newest record; see
// images.h. Records of one slot are a chain, the newest first.
#include "images.h"

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstring>

namespace fm::store::node {

struct image_store::index {
  boost::unordered_flat_map<detail::slot_t, std::uint64_t> first;
};

image_store::image_store(std::uint64_t bytes_max)
    : bytes_max_(bytes_max), memory_(bytes_max + 8, detail::page_bytes), index_(std::make_unique<index>()) {}

image_store::~image_store() = default;

std::uint64_t image_store::add_unlinked(const std::byte* slots, std::uint32_t count) {
  FM_ASSERT(has_room(bytes_for(1, count)), "an image was added beyond the limit");
  const std::uint64_t record = end_;
  words()[record] = 0;
  words()[record + 1] = count;
  if (count != 0) std::memcpy(words() + record + 2, slots, std::size_t{count} * 8);
  end_ += 2 + std::uint64_t{count};
  bytes_ += bytes_for(1, count);
  return record;
}

void image_store::add(detail::slot_t slot, const std::byte* slots, std::uint32_t count) {
  std::uint64_t& first = index_->first[slot];
  const std::uint64_t record = add_unlinked(slots, count);
  words()[record] = first;
  first = record;
}

std::uint64_t image_store::find(detail::slot_t slot) const noexcept {
  const auto at = index_->first.find(slot);
  return at == index_->first.end() ? 0 : at->second;
}

}  // namespace fm::store::node

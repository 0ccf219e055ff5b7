// Small allocations out of chunks of one size class each; see farmem/paged/resource.h. Owns the bitmaps of chunks,
// which lie in ordinary memory. The standard containers of a program call it through paged::resource().
#include "base/base.h"
#include <farmem/paged/resource.h>

#include <algorithm>
#include <bit>
#include <new>

namespace fm {

namespace {

/// Bytes of the size class with that index: 16, 32 ... 128, 160, 192, 224, 256, 320 ... 8192.
constexpr std::size_t bytes_of(std::size_t index) {
  if (index < 8) return 16 * (index + 1);
  const std::size_t doubling = (index - 8) / 4, step = (index - 8) % 4 + 1;
  return (std::size_t{128} << doubling) + step * (std::size_t{32} << doubling);
}
static_assert(bytes_of(7) == 128 && bytes_of(8) == 160 && bytes_of(11) == 256 && bytes_of(31) == 8192);

}  // namespace

std::size_t size_class_resource::class_of(std::size_t bytes, std::size_t alignment) noexcept {
  bytes = std::max<std::size_t>(bytes, 1);
  // Slots begin at multiples of their size, so a power of two has slots that are aligned to it.
  if (alignment > 16) bytes = std::bit_ceil(std::max(bytes, alignment));
  if (bytes > small_max) return classes;
  if (bytes <= 128) return (bytes + 15) / 16 - 1;
  const auto doubling = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 8;
  const std::size_t base = std::size_t{128} << doubling;
  return 8 + doubling * 4 + (bytes - base - 1) / (base / 4);
}

size_class_resource::size_class_resource(paged_extents& extents)
    : extents_(extents), chunks_(extents.bytes() / chunk_bytes + 2) {
  for (std::size_t i = 0; i < classes; ++i) classes_[i].bytes = bytes_of(i);
}

std::unique_ptr<size_class_resource::chunk>& size_class_resource::chunk_at(const void* p) noexcept {
  const auto number = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) / chunk_bytes; };
  return chunks_[number(p) - number(extents_.base())];
}

void size_class_resource::enter(chunk& c) noexcept {
  c.place = c.of->with_room.size();
  c.of->with_room.push_back(&c);
}

void size_class_resource::leave(chunk& c) {
  chunk* const last = c.of->with_room.back();
  c.of->with_room[c.place] = last;
  last->place = c.place;
  c.of->with_room.pop_back();
}

void size_class_resource::add_chunk(size_class& c) {
  auto fresh = std::make_unique<chunk>();
  fresh->of = &c;
  fresh->slots = chunk_bytes / c.bytes;
  fresh->free_count = fresh->slots;
  fresh->free.assign((fresh->slots + 63) / 64, ~std::uint64_t{0});
  if (fresh->slots % 64 != 0) fresh->free.back() = (std::uint64_t{1} << fresh->slots % 64) - 1;
  // For all of them: what is freed when there is no memory is freed all the same.
  if (c.with_room.capacity() <= c.chunks) c.with_room.reserve(2 * c.chunks + 1);
  fresh->base = static_cast<std::byte*>(extents_.allocate(chunk_bytes, chunk_bytes));
  auto& place = chunk_at(fresh->base);
  place = std::move(fresh);
  ++c.chunks;
  enter(*place);
}

void* size_class_resource::allocate_extent(std::size_t bytes, std::size_t alignment) {
  try {
    return extents_.allocate(bytes, alignment);
  } catch (const std::bad_alloc&) {
    give_back_empty();
    return extents_.allocate(bytes, alignment);
  }
}

void size_class_resource::give_back_empty() {
  for (size_class& c : classes_) {
    std::byte* gone = nullptr;
    {
      const std::lock_guard lock(c.mutex);
      const auto empty = std::find_if(c.with_room.begin(), c.with_room.end(),
                                      [](const chunk* in) { return in->free_count == in->slots; });
      if (empty == c.with_room.end()) continue;
      gone = (*empty)->base;
      leave(**empty);
      chunk_at(gone).reset();
      --c.chunks;
    }
    extents_.deallocate(gone, chunk_bytes, chunk_bytes);
  }
}

void* size_class_resource::do_allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t index = class_of(bytes, alignment);
  if (index == classes) return allocate_extent(bytes, alignment);
  size_class& c = classes_[index];
  std::unique_lock lock(c.mutex);
  if (c.with_room.empty()) try {
      add_chunk(c);
    } catch (const std::bad_alloc&) {
      lock.unlock();  // another class's lock is never taken under one
      give_back_empty();
      lock.lock();
      if (c.with_room.empty()) add_chunk(c);
    }
  chunk& from = *c.with_room.back();
  while (from.free[from.first] == 0) ++from.first;
  const auto bit = static_cast<std::size_t>(std::countr_zero(from.free[from.first]));
  from.free[from.first] &= from.free[from.first] - 1;
  if (--from.free_count == 0) leave(from);
  return from.base + (from.first * 64 + bit) * c.bytes;
}

void size_class_resource::do_deallocate(void* p, std::size_t bytes, std::size_t alignment) {
  const std::size_t index = class_of(bytes, alignment);
  if (index == classes) return extents_.deallocate(p, bytes, alignment);
  size_class& c = classes_[index];
  std::byte* gone = nullptr;
  {
    const std::lock_guard lock(c.mutex);
    auto& place = chunk_at(p);
    FM_CHECK(place != nullptr && place->of == &c, "deallocating what the range did not allocate, or with another size");
    chunk& in = *place;
    const std::size_t slot = static_cast<std::size_t>(static_cast<std::byte*>(p) - in.base) / c.bytes;
    FM_CHECK((in.free[slot / 64] >> slot % 64 & 1) == 0, "deallocated twice");
    in.free[slot / 64] |= std::uint64_t{1} << slot % 64;
    in.first = std::min(in.first, slot / 64);
    if (in.free_count++ == 0) enter(in);
    if (in.free_count == in.slots && c.with_room.size() > 1) {  // one empty chunk may stay, for the next allocation
      leave(in);
      gone = in.base;
      place.reset();
      --c.chunks;
    }
  }
  if (gone != nullptr) extents_.deallocate(gone, chunk_bytes, chunk_bytes);
}

}  // namespace fm

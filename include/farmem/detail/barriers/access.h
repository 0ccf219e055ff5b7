// The door to the cache for code that is compiled into programs: barriers whose fast test failed, and handles that make
// objects. Templates and inline functions name the cache through these functions only, so that a program sees neither
// its insides nor the agents behind it.
//
// Invariant: resolve is called inside a section, and the pointer that it gives is good until that section ends.
// Barriers, handles, containers and channels call it; src/cache/object_cache.cc has the bodies.
#pragma once

#include <cstdint>
#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/indirection_table.h>
#include <farmem/detail/barriers/word.h>
#include <farmem/detail/types/type_descriptor.h>

namespace fm::detail {

class object_cache;

/// How a thread wants an object.
enum class access : std::uint8_t { read, write };

/// A slot that was just allocated, and the section that it must be rooted in: no snapshot lies in between.
class [[nodiscard]] new_object {
 public:
  explicit new_object(slot_t slot) noexcept : slot_(slot) {}
  ~new_object() { epochs::leave(); }
  new_object(const new_object&) = delete;
  new_object& operator=(const new_object&) = delete;
  operator slot_t() const noexcept { return slot_; }

 private:
  slot_t slot_;
};

/// The payload of the object, resident, warm, and for `write` dirty. Inside a section, which is left while the thread
/// waits. Throws fm::error: null_handle, heap_closed, not_found, cache_full, agent_lost,
/// timed_out, corrupt. O(1) when resident; one fetch otherwise.
char* resolve(slot_t slot, access how);

/// Makes an object in `cache`, as object_cache::allocate does.
new_object allocate(object_cache& cache, const type_descriptor& type, std::uint64_t length, const void* init,
                    std::uint64_t init_bytes);

/// Whether every reference in `init`, contents of a new object of that type in `cache`, is null or names an object that is
/// there. For checks: a reference that nothing keeps alive may also name a newer object. O(references), any thread.
bool names_objects(const object_cache& cache, const type_descriptor& type, const void* init) noexcept;

/// Whether the address is in the memory of a heap of this process, or was when a pin outlived its heap. Of a process that
/// has had more heaps than can be told apart, true for all addresses. For checks; O(heaps), lock-free, any thread.
bool is_managed(const void* address) noexcept;

/// Bytes of local memory that the cache was given. O(1), any thread.
std::uint64_t capacity_bytes(const object_cache& cache) noexcept;

}  // namespace fm::detail

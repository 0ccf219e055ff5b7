// How a description is written down: the name of a type, and the builder that a walk over the fields feeds
// (describe.h). Nothing here is a template over the user's types except the name's tag, so a managed type costs a
// program little more than its own walk. Used by describe.h only.
//
// Invariant owned here: the readable layout is also what is hashed, so it says everything that two processes have to
// agree on:
//   24 bytes {0: i32, 8: ref<node>, 16: f32[2]}
// Offsets are relative to the braces that they stand in; a nested struct is written in braces of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <farmem/detail/types/type_descriptor.h>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#if !defined(__cpp_rtti)
#error "farmem names managed types through RTTI: build without -fno-rtti"
#endif

namespace fm::detail {

template <class T>
struct name_tag {};

/// The readable name in `typeid(name_tag<T>).name()`. The mangling is the ABI's, so every compiler of the platform
/// gives the same name, which __PRETTY_FUNCTION__ does not. O(length).
std::string name_in_tag(const char* mangled_tag);

/// T's name as the program spells it, with its scopes; equal for g++, clang++ and libc++. T may be incomplete.
template <class T>
std::string name_of() {
  return name_in_tag(typeid(name_tag<T>).name());
}

/// Collects one description. Offsets given to it are relative to the innermost open struct.
class layout_builder {
 public:
  layout_builder(type_kind kind, std::string name, std::size_t bytes);

  /// A value of `bytes` bytes that holds no reference; `code` says what it is ("i32", "f64").
  void value(std::size_t offset, std::size_t bytes, std::string_view code);
  /// A reference to an object of the type called `target`.
  void ref(std::size_t offset, const std::string& target);
  /// A nested struct, until close().
  void open(std::size_t offset, std::size_t bytes);
  void close();

  /// What has been described since mark() occurs `count` times, `stride` bytes apart.
  struct mark {
    std::size_t refs;
    std::size_t offset;
  };
  [[nodiscard]] mark begin_repeat(std::size_t offset) const { return {description_.ref_offsets.size(), offset}; }
  void end_repeat(mark from, std::size_t count, std::size_t stride);

  /// The description, its hash computed, ready for register_type.
  [[nodiscard]] type_descriptor finish() &&;

 private:
  /// One open pair of braces.
  struct level {
    std::size_t base;  ///< offset from the start of the whole type
    std::size_t bytes;
    std::size_t end = 0;  ///< where the last field ended, relative to base
    bool empty = true;
  };
  void place(std::size_t offset, std::size_t bytes);

  type_descriptor description_;
  std::vector<level> levels_;
};

}  // namespace fm::detail

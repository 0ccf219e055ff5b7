// fm::string: text in the managed heap, an array of char behind a handle, for application code and the other
// containers. The text never changes; a program replaces it as a whole.
// Invariant: two strings with equal text have equal hashes, in every process and build.
#pragma once

#include <compare>
#include <farmem/detail/container.h>
#include <functional>
#include <string>
#include <string_view>

namespace fm {
namespace detail {

/// Hash of bytes: 64 bits, the same in every process. O(length).
inline std::uint64_t hash_bytes(const void* data, std::size_t n) noexcept {
  constexpr std::uint64_t a = 0x9e3779b97f4a7c15, b = 0xd6e8feb86659fd93;
  const char* at = static_cast<const char*>(data);
  std::uint64_t h = a ^ (n * b);
  for (; n >= 8; n -= 8, at += 8) {
    std::uint64_t w = 0;
    std::memcpy(&w, at, 8);
    h = (h ^ w) * b;
    h ^= h >> 32;
  }
  std::uint64_t w = 0;
  std::memcpy(&w, at, n);
  h = (h ^ w) * b;
  h ^= h >> 32;
  h *= b;
  return h ^ (h >> 29);
}

}  // namespace detail

/// A handle to text in the heap: any bytes, zeros included. Copies of the handle name the same text. Any number of
/// threads may read the text, which never changes; two threads must not assign one handle at the same time. Members
/// that read the text throw as fm::ptr's ->: null_handle, heap_closed, agent_lost, timed_out, cache_full. If the text
/// is remote, they fetch it, once.
class string : public ptr<string> {
  using base = ptr<string>;

 public:
  /// A null handle.
  constexpr string() noexcept = default;
  /// A null handle.
  constexpr string(std::nullptr_t) noexcept {}
  /// Copies `text` into the heap, with 8 bytes for its length. O(length). Throws as fm::heap::make; too_large above
  /// fm::heap::object_bytes_max.
  string(heap& h, std::string_view text) : string(h.cache(), text) {}
  /// The same, for containers.
  string(detail::object_cache& cache, std::string_view text)
      : base(base::from_slot(
            detail::allocate(cache, detail::array_descriptor_of<char>(), text.size(), text.data(), text.size()))) {}
  /// Another handle to the text of `p`. O(1).
  string(base p) noexcept : base(std::move(p)) {}
  /// A handle to the text that a field refers to. O(1).
  string(const ref<string>& r) : base(r.root()) {}

  /// Bytes of the text. O(1).
  [[nodiscard]] std::size_t size() const { return base::operator->()->size(); }
  /// Whether the text has no bytes. O(1).
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// A copy of the text as a std::string. O(length).
  [[nodiscard]] std::string str() const {
    const read_pin<string> text = read();
    return std::string(text->data(), text->size());
  }
  /// The text in place, valid until the scope closes; empty for a null handle. O(1).
  [[nodiscard]] std::string_view view(const scope& s FM_LIFETIMEBOUND) const {
    const auto* text = get(s);
    return text ? std::string_view(text->data(), text->size()) : std::string_view();
  }
  /// Deleted: a view in a temporary scope would dangle. Name the scope first.
  std::string_view view(const scope&&) const = delete;
  /// Hash of the text, 64 bits, the same in every process and build. O(length).
  [[nodiscard]] std::uint64_t hash() const { return hash_of(view_in(detail::user_section())); }
  /// The hash() that a string with this text has. O(length).
  static std::uint64_t hash_of(std::string_view text) noexcept { return detail::hash_bytes(text.data(), text.size()); }

  /// Whether the text of `a` equals `b`. O(length). Throws null_handle if `a` is null.
  friend bool operator==(const string& a, std::string_view b) { return a.view_in(detail::user_section()) == b; }
  /// Whether both have equal text, or both are null. O(length).
  friend bool operator==(const string& a, const string& b) {
    if (a.slot() == b.slot()) return true;
    if (!a || !b) return false;
    const read_pin<string> text = b.read();
    return a == std::string_view(text->data(), text->size());
  }
  /// The order of the texts, byte by byte. O(length). Throws null_handle if `a` is null.
  friend std::strong_ordering operator<=>(const string& a, std::string_view b) {
    return a.view_in(detail::user_section()).compare(b) <=> 0;
  }
  /// The order of the texts, byte by byte; a null handle comes before all others. O(length).
  friend std::strong_ordering operator<=>(const string& a, const string& b) {
    if (a.slot() == b.slot()) return std::strong_ordering::equal;
    if (!a || !b) return static_cast<bool>(a) <=> static_cast<bool>(b);
    const read_pin<string> text = b.read();
    return a <=> std::string_view(text->data(), text->size());
  }
  /// Whether the handle is null. O(1).
  friend bool operator==(const string& a, std::nullptr_t) noexcept { return a.slot() == 0; }

 private:
  // The section is the caller's: a temporary that lives until its expression ends.
  [[nodiscard]] std::string_view view_in(const detail::user_section&) const {
    const auto* text = detail::object_at<array_object<char>>(slot());
    return {text->data(), text->size()};
  }
};

/// Copies `text` into the heap, as the constructor of fm::string does.
inline string make_string(heap& h, std::string_view text) { return string(h, text); }
/// Copies `text` into the heap: a shorter name of make_string.
inline string str(heap& h, std::string_view text) { return string(h, text); }

}  // namespace fm

/// Hash of the text, as fm::string::hash; of a null handle 0. O(length). Throws as fm::ptr's ->.
template <>
struct std::hash<fm::string> {
  std::size_t operator()(const fm::string& s) const { return s ? s.hash() : 0; }
};

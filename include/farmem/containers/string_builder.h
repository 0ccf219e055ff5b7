// fm::string_builder: makes an fm::string of parts. The text of an fm::string never changes, so that readers need no lock
// and copies of a handle may be kept; appending to one means to make another. A builder collects the parts in local
// memory, and copies them into the heap once.
//
//   fm::string_builder b;
//   b.append("far").append(other).append('!');        other: an fm::string, read in place
//   fm::string s = b.build(h);
#pragma once

#include <farmem/containers/string.h>
#include <string>
#include <string_view>

namespace fm {

/// Collects text, and makes fm::strings of it. It holds plain memory and no handle. One thread at a time uses it. It is a
/// destination of std::back_inserter, so fmt::format_to and standard algorithms write to it.
class string_builder {
 public:
  using value_type = char;  ///< type of what push_back takes

  /// Without text.
  string_builder() = default;
  /// Begins with `text`. O(length).
  explicit string_builder(std::string_view text) : text_(text) {}

  /// Adds `text` at the end. Amortised O(length).
  string_builder& append(std::string_view text) {
    text_.append(text);
    return *this;
  }
  /// The same for text with a terminating zero.
  string_builder& append(const char* text) { return append(std::string_view(text)); }
  /// Adds the text of `s`, which is fetched if it is remote. If it throws, nothing is added. Throws as fm::string::str.
  string_builder& append(const string& s) {
    const read_pin<string> text = s.read();
    text_.append(text->data(), text->size());
    return *this;
  }
  /// Adds one character.
  string_builder& append(char c) {
    text_.push_back(c);
    return *this;
  }
  /// Adds one character.
  void push_back(char c) { text_.push_back(c); }

  /// Bytes of the text so far.
  [[nodiscard]] std::size_t size() const noexcept { return text_.size(); }
  /// Whether there is no text yet.
  [[nodiscard]] bool empty() const noexcept { return text_.empty(); }
  /// The text so far, valid until the builder changes.
  [[nodiscard]] std::string_view view() const noexcept FM_LIFETIMEBOUND { return text_; }
  /// Makes room for `bytes` of text altogether. O(size).
  void reserve(std::size_t bytes) { text_.reserve(bytes); }
  /// Without text again; its memory is kept.
  void clear() noexcept { text_.clear(); }

  /// Makes an fm::string of the text so far, which stays. O(size). Throws as the constructor of fm::string, and the
  /// builder is unchanged.
  [[nodiscard]] string build(heap& h) const { return string(h, text_); }

 private:
  std::string text_;
};

}  // namespace fm

// Parsing and writing RESP; see resp.h.
#include "resp.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace fm::example {

bool parse_integer(std::string_view text, std::int64_t& value) noexcept {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view digits = text.substr(!text.empty() && text[0] == '-');
  return ec == std::errc() && end == text.data() + text.size() && (digits.size() == 1 || digits[0] != '0') &&
         text != "-0";
}

void request_parser::feed(std::string_view bytes) {
  in_.erase(0, at_);
  at_ = 0;
  in_ += bytes;
}

request_parser::status request_parser::fail(std::string text) {
  text_ = std::move(text);
  return status::bad;
}

bool request_parser::take_line(std::string_view& line) {
  const std::size_t end = in_.find('\n', at_);
  if (end == std::string::npos || end - at_ > line_bytes_max) {
    if (std::min(end, in_.size()) - at_ > line_bytes_max) text_ = "Protocol error: a line that is too long";
    return false;
  }
  line = std::string_view(in_).substr(at_, end - at_);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  at_ = end + 1;
  return true;
}

request_parser::status request_parser::plain(std::string_view line) {
  words_.clear();
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end != 0) words_.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words_.empty() ? status::more : status::command;
}

bool request_parser::take_word() {
  const std::size_t here = in_.size() - at_;
  if (discarding_) {
    const std::size_t n = std::min(here, word_left_);
    at_ += n;
    word_left_ -= n;
    if (word_left_ != 0) return false;
  } else {
    if (here < word_left_) return false;
    if (in_[at_ + word_left_ - 2] != '\r' || in_[at_ + word_left_ - 1] != '\n') {
      text_ = "Protocol error: a word that is longer than it says";
      return false;
    }
    words_.emplace_back(in_, at_, word_left_ - 2);
    at_ += word_left_;
  }
  in_word_ = false;
  --words_left_;
  return true;
}

request_parser::status request_parser::next() {
  if (!text_.empty()) return status::bad;
  for (;;) {
    if (in_word_) {
      if (!take_word()) return text_.empty() ? status::more : status::bad;
      if (words_left_ != 0) continue;
      if (!discarding_) return status::command;
      discarding_ = false;
      return status::too_large;
    }
    std::string_view line;
    if (!take_line(line)) return text_.empty() ? status::more : status::bad;
    std::int64_t n = 0;
    if (words_left_ == 0) {
      if (line.empty()) continue;
      if (line[0] != '*') {
        if (plain(line) == status::command) return status::command;
        continue;
      }
      if (!parse_integer(line.substr(1), n) || n > std::int64_t(words_max))
        return fail("Protocol error: invalid multibulk length");
      words_left_ = n > 0 ? std::size_t(n) : 0;
      words_.clear();
      command_bytes_ = 0;
      continue;
    }
    if (line.empty() || line[0] != '$')
      return fail(fmt::format("Protocol error: expected '$', got '{}'", line.empty() ? ' ' : line[0]));
    if (!parse_integer(line.substr(1), n) || n < 0 || n > std::int64_t(word_bytes_max))
      return fail("Protocol error: invalid bulk length");
    command_bytes_ += std::size_t(n);
    if (command_bytes_ > command_bytes_max) {
      discarding_ = true;
      words_.clear();
    }
    in_word_ = true;
    word_left_ = std::size_t(n) + 2;
  }
}

void reply_writer::simple(std::string_view text) { fmt::format_to(std::back_inserter(out_), "+{}\r\n", text); }

void reply_writer::error(std::string_view text) {
  const std::size_t from = out_.size();
  fmt::format_to(std::back_inserter(out_), "-{}", text);
  std::replace_if(
      out_.begin() + std::ptrdiff_t(from), out_.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
  out_ += "\r\n";
}

void reply_writer::integer(std::int64_t n) { fmt::format_to(std::back_inserter(out_), ":{}\r\n", n); }

void reply_writer::bulk(std::string_view bytes) {
  fmt::format_to(std::back_inserter(out_), "${}\r\n", bytes.size());
  out_ += bytes;
  out_ += "\r\n";
}

void reply_writer::null() { out_ += "$-1\r\n"; }
void reply_writer::array(std::size_t elements) { fmt::format_to(std::back_inserter(out_), "*{}\r\n", elements); }

}  // namespace fm::example

// RESP, the protocol that redis-cli and redis-benchmark speak: requests as they arrive in pieces, and replies. (Version 2, and
// requests as plain lines; https://redis.io/docs/reference/protocol-spec)
//
// Invariant: a parser keeps at most command_bytes_max bytes of a command's words and one line or word beside them, whatever is
// sent. What is longer is read, thrown away and refused; what does not follow the protocol ends the connection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fm::example {

class request_parser {
 public:
  static constexpr std::size_t command_bytes_max = 4u << 20;
  static constexpr std::size_t words_max = 65'536;
  static constexpr std::size_t line_bytes_max = 64u << 10;
  static constexpr std::size_t word_bytes_max = 512u << 20;  ///< as Redis; more is no word

  enum class status : std::uint8_t {
    more,       ///< the command is not complete
    command,    ///< words() is a command, at least one word
    too_large,  ///< a command of more than command_bytes_max bytes has been thrown away
    bad,        ///< not RESP: text() says why, and nothing more is read
  };

  /// What has arrived.
  void feed(std::string_view bytes);
  /// The next command of what was fed.
  status next();
  [[nodiscard]] const std::vector<std::string>& words() const noexcept { return words_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  /// A line without its end; false: there is none yet, or text_ says that there never will be.
  bool take_line(std::string_view& line);
  status fail(std::string text);
  status plain(std::string_view line);
  /// Of one word of an array: true when it is complete.
  bool take_word();

  std::string in_;
  std::size_t at_ = 0;  ///< of in_: up to here it is consumed
  std::vector<std::string> words_;
  std::size_t words_left_ = 0;  ///< of the array
  bool in_word_ = false;        ///< its length is known
  std::size_t word_left_ = 0;   ///< bytes of it that are still to come; with the two that end it
  std::size_t command_bytes_ = 0;
  bool discarding_ = false;
  std::string text_;
};

/// Appends replies to a connection's output.
class reply_writer {
 public:
  explicit reply_writer(std::string& out) : out_(out) {}
  void simple(std::string_view text);
  /// "ERR ...", "OOM ...": the first word is the kind. Ends of lines in it become spaces.
  void error(std::string_view text);
  void integer(std::int64_t n);
  void bulk(std::string_view bytes);
  void null();
  void array(std::size_t elements);
  [[nodiscard]] std::string& out() noexcept { return out_; }

 private:
  std::string& out_;
};

/// A whole decimal number, nothing before or after it, as Redis reads them; false otherwise.
bool parse_integer(std::string_view text, std::int64_t& value) noexcept;

}  // namespace fm::example

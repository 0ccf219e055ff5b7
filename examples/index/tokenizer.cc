// Reading and counting; see tokenizer.h.
#include "tokenizer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace fm::example {

namespace {

constexpr std::size_t slots_at_first = 4096;

constexpr std::array<unsigned char, 256> make_word_characters() {
  std::array<unsigned char, 256> of{};
  for (unsigned c = 'a'; c <= 'z'; ++c) of[c] = static_cast<unsigned char>(c);
  for (unsigned c = 'A'; c <= 'Z'; ++c) of[c] = static_cast<unsigned char>(c - 'A' + 'a');
  for (unsigned c = '0'; c <= '9'; ++c) of[c] = static_cast<unsigned char>(c);
  of[static_cast<unsigned char>('_')] = '_';
  return of;
}

/// Fills the buffer from the file; the bytes that came, fewer only at the end of the file. Negative: an error.
ssize_t read_fully(int fd, char* to, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, to + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

const std::array<unsigned char, 256> detail::word_character = make_word_characters();

// ---- reading ----

bool text_file::open(const std::string& path) {
  close();
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) return false;
  struct stat st {};
  if (::fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  large_ = false;
  for (;;) {
    const ssize_t n = read_fully(fd_, buffer_.data(), buffer_.size());
    if (n < 0 || std::memchr(buffer_.data(), 0, static_cast<std::size_t>(n)) != nullptr) return false;
    if (static_cast<std::size_t>(n) < buffer_.size()) {
      first_ = static_cast<std::size_t>(n);
      break;
    }
    large_ = true;
  }
  // Of a large file the buffer holds its end now.
  if (large_) first_ = 0;
  return !large_ || ::lseek(fd_, 0, SEEK_SET) == 0;
}

std::string_view text_file::next() {
  if (!large_) return {buffer_.data(), std::exchange(first_, 0)};
  const ssize_t n = read_fully(fd_, buffer_.data(), buffer_.size());
  return {buffer_.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
}

void text_file::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

// ---- counting ----

std::uint64_t hash_word(std::string_view word) noexcept {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : word) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
  return h ^ (h >> 32);
}

word_counts::word_counts() : slots_(slots_at_first) {
  // All at once, and touched only as far as it is needed: a vector that grows leaves its former memory behind.
  table_.reserve(4 * words_max);
  table_.resize(slots_at_first);
  entries_.reserve(words_max);
  characters_.reserve(2 * piece_bytes);
}

void word_counts::count(std::string_view piece, bool last) {
  slots_ = slots_at_first;  // one large piece must not make all small ones after it slow
  std::fill_n(table_.begin(), slots_, 0);
  entries_.clear();
  characters_.clear();
  total_ = 0;
  const auto each = [this](std::string_view w) { add(w); };
  scanner_.scan(piece, each);
  if (last) scanner_.end(each);
}

void word_counts::add(std::string_view word) {
  ++total_;
  const std::uint64_t hash = hash_word(word);
  for (std::size_t i = hash & (slots_ - 1);; i = (i + 1) & (slots_ - 1)) {
    const std::uint32_t at = table_[i];
    if (at == 0) {
      entries_.push_back({hash, 1, std::uint32_t(characters_.size()), std::uint32_t(word.size())});
      characters_.insert(characters_.end(), word.begin(), word.end());
      table_[i] = std::uint32_t(entries_.size());
      if (entries_.size() * 2 > slots_) grow();
      return;
    }
    entry& e = entries_[at - 1];
    if (e.hash == hash && this->word(e) == word) {
      ++e.count;
      return;
    }
  }
}

void word_counts::grow() {
  slots_ *= 2;
  if (table_.size() < slots_) table_.resize(slots_);
  std::fill_n(table_.begin(), slots_, 0);
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    std::size_t i = entries_[e].hash & (slots_ - 1);
    while (table_[i] != 0) i = (i + 1) & (slots_ - 1);
    table_[i] = std::uint32_t(e + 1);
  }
}

}  // namespace fm::example

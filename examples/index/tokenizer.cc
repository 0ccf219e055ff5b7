// Reading and counting; see tokenizer.h.
#include "tokenizer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fm::example {

namespace {

constexpr std::array<unsigned char, 256> make_word_characters() {
  std::array<unsigned char, 256> of{};
  for (unsigned c = 'a'; c <= 'z'; ++c) of[c] = static_cast<unsigned char>(c);
  for (unsigned c = 'A'; c <= 'Z'; ++c) of[c] = static_cast<unsigned char>(c - 'A' + 'a');
  for (unsigned c = '0'; c <= '9'; ++c) of[c] = static_cast<unsigned char>(c);
  of[static_cast<unsigned char>('_')] = '_';
  return of;
}

}  // namespace

const std::array<unsigned char, 256> detail::word_character = make_word_characters();

bool read_text(const std::string& path, std::string& text) {
  text.clear();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat st {};
  bool good = ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && std::uint64_t(st.st_size) <= file_bytes_max;
  if (good) {
    text.resize(std::size_t(st.st_size));
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::read(fd, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      good = n >= 0;
      if (n <= 0) break;
      done += std::size_t(n);
    }
    text.resize(done);
  }
  ::close(fd);
  return good && std::memchr(text.data(), 0, text.size()) == nullptr;
}

std::uint64_t hash_word(std::string_view word) noexcept {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : word) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
  return h ^ (h >> 32);
}

word_counts::word_counts() : table_(4096) {}

void word_counts::count(std::string& text) {
  std::fill(table_.begin(), table_.end(), 0);
  entries_.clear();
  total_ = 0;
  for_each_word(text.data(), text.size(), [this](std::string_view w) { add(w); });
}

void word_counts::add(std::string_view word) {
  ++total_;
  const std::uint64_t hash = hash_word(word);
  const std::size_t mask = table_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const std::uint32_t at = table_[i];
    if (at == 0) {
      entries_.push_back({word, hash, 1});
      table_[i] = std::uint32_t(entries_.size());
      if (entries_.size() * 2 > table_.size()) grow();
      return;
    }
    entry& e = entries_[at - 1];
    if (e.hash == hash && e.word == word) {
      ++e.count;
      return;
    }
  }
}

void word_counts::grow() {
  table_.assign(table_.size() * 2, 0);
  const std::size_t mask = table_.size() - 1;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    std::size_t i = entries_[e].hash & mask;
    while (table_[i] != 0) i = (i + 1) & mask;
    table_[i] = std::uint32_t(e + 1);
  }
}

}  // namespace fm::example

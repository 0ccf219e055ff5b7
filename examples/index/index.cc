// Adding files and finding terms; see index.h.
#include "index.h"

namespace fm::example {

inverted_index::inverted_index(fm::heap& h) : heap_(h), files_(h) {
  for (std::size_t i = 0; i < shards_count; ++i) shards_.push_back(std::make_unique<shard>(h));
}

void inverted_index::add(std::string_view path, const word_counts& words) {
  const auto name = fm::string(heap_, path);
  const auto record = heap_.make<source_file>();
  {
    const auto r = record.write();
    r->words = words.total();
    r->path = name;
  }
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(files_lock_);
    number = std::uint32_t(files_.size());
    files_.push_back(record);
  }
  // By shard, so that each lock is taken once a file.
  const auto& entries = words.entries();
  std::array<std::uint32_t, shards_count + 1> begin{};
  for (const auto& e : entries) ++begin[shard_of(e.hash) + 1];
  for (std::size_t i = 0; i < shards_count; ++i) begin[i + 1] += begin[i];
  std::vector<std::uint32_t> order(entries.size());
  auto at = begin;
  for (std::uint32_t i = 0; i < entries.size(); ++i) order[at[shard_of(entries[i].hash)]++] = i;
  for (std::size_t i = 0; i < shards_count; ++i) {
    if (begin[i] == begin[i + 1]) continue;
    const std::lock_guard lock(shards_[i]->lock);
    for (std::uint32_t k = begin[i]; k < begin[i + 1]; ++k) {
      const auto& e = entries[order[k]];
      const fm::ptr<term> t = shards_[i]->words.get_or_insert(e.word, e.hash);
      fm::vector<posting> list = t->postings;
      list.push_back({number, e.count});
      const auto w = t.write();
      w->occurrences += e.count;
      ++w->document_frequency;
    }
  }
  files_count_.fetch_add(1, std::memory_order_relaxed);
  postings_count_.fetch_add(entries.size(), std::memory_order_relaxed);
  words_count_.fetch_add(words.total(), std::memory_order_relaxed);
  count_operations(2 * entries.size() + 1);
}

fm::ptr<term> inverted_index::find(std::string_view word) const {
  const std::uint64_t hash = hash_word(word);
  const shard& s = *shards_[shard_of(hash)];
  const std::lock_guard lock(s.lock);
  count_operations(1);
  return s.words.find(word, hash);
}

fm::ptr<source_file> inverted_index::file(std::uint32_t number) const {
  count_operations(1);
  return files_[number];
}

std::string inverted_index::path_of(std::uint32_t number) const {
  const fm::string path = file(number)->path;
  return path.str();
}

std::uint64_t inverted_index::terms() const {
  std::uint64_t n = 0;
  for (const auto& s : shards_) n += s->words.size();
  return n;
}

}  // namespace fm::example

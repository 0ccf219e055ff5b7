// Adding files and finding terms; see index.h.
#include "index.h"

namespace fm::example {

inverted_index::inverted_index(fm::heap& h) : heap_(h), files_(h) {
  for (std::size_t i = 0; i < shards_count; ++i) shards_.push_back(std::make_unique<shard>(h));
}

inverted_index::inverted_index(fm::heap& h, const fm::ptr<kept_index>& kept)
    : heap_(h), files_(kept->files), postings_count_(kept->postings), words_count_(kept->words) {
  files_count_ = files_.size();
  for (std::size_t i = 0; i < shards_count; ++i) {
    const fm::vector<fm::ref<term>> buckets = kept->shards[i].buckets;
    shards_.push_back(std::make_unique<shard>(h, buckets, kept->shards[i].terms));
  }
}

fm::ptr<kept_index> inverted_index::keep() const {
  return heap_.make_with<kept_index>([&](kept_index& k) {
    for (std::size_t i = 0; i < shards_count; ++i) {
      k.shards[i].buckets = shards_[i]->words.buckets();
      k.shards[i].terms = shards_[i]->words.size();
    }
    k.files = files_;
    k.postings = postings();
    k.words = words();
  });
}

std::uint32_t inverted_index::add_file(std::string_view path) {
  const auto name = fm::string(heap_, path);
  const auto record = heap_.make<source_file>();
  record.write()->path = name;
  const std::lock_guard lock(files_lock_);
  const auto number = std::uint32_t(files_.size());
  files_.push_back(record);
  files_count_.fetch_add(1, std::memory_order_relaxed);
  count_operations(1);
  return number;
}

std::uint64_t inverted_index::add_words(std::uint32_t file, const word_counts& words, bool again) {
  // By shard, so that each lock is taken once a piece.
  const auto entries = words.entries();
  std::array<std::uint32_t, shards_count + 1> begin{};
  for (const auto& e : entries) ++begin[shard_of(e.hash) + 1];
  for (std::size_t i = 0; i < shards_count; ++i) begin[i + 1] += begin[i];
  std::vector<std::uint32_t> order(entries.size());
  auto at = begin;
  for (std::uint32_t i = 0; i < entries.size(); ++i) order[at[shard_of(entries[i].hash)]++] = i;
  std::uint64_t postings = 0;
  for (std::size_t i = 0; i < shards_count; ++i) {
    if (begin[i] == begin[i + 1]) continue;
    const std::lock_guard lock(shards_[i]->lock);
    for (std::uint32_t k = begin[i]; k < begin[i + 1]; ++k) {
      const auto& e = entries[order[k]];
      postings += add_word(*shards_[i], file, words.word(e), e, again) ? 1 : 0;
    }
  }
  {
    const fm::ptr<source_file> record = file_record(file);
    record.write()->words += words.total();
  }
  postings_count_.fetch_add(postings, std::memory_order_relaxed);
  words_count_.fetch_add(words.total(), std::memory_order_relaxed);
  count_operations(2 * entries.size() + 1);
  return postings;
}

// The shard is locked. Whether the file got a new posting.
bool inverted_index::add_word(shard& s, std::uint32_t file, std::string_view word, const word_counts::entry& e,
                              bool again) {
  const fm::ptr<term> t = s.words.get_or_insert(word, e.hash);
  fm::vector<posting> list = t->postings;
  const bool has_it = again && t->large_file == file + 1;
  if (has_it) {
    const std::uint64_t at = t->large_posting;
    posting p = list[at];
    p.frequency += e.count;
    list.set(at, p);
  } else {
    list.push_back({file, e.count});
  }
  const auto w = t.write();
  w->occurrences += e.count;
  if (has_it) return false;
  if (again) {
    w->large_file = file + 1;
    w->large_posting = w->document_frequency;
  }
  ++w->document_frequency;
  return true;
}

fm::ptr<source_file> inverted_index::file_record(std::uint32_t number) const {
  const std::lock_guard lock(files_lock_);
  return files_[number];
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

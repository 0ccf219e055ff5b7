// Chains of terms in a managed vector; see dictionary.h.
#include "dictionary.h"

namespace fm::example {

dictionary::dictionary(fm::heap& h) : heap_(h), buckets_(h) { buckets_.resize(buckets_count_); }

fm::ptr<term> dictionary::find(std::string_view word, std::uint64_t hash) const {
  for (fm::ptr<term> t = buckets_[bucket_of(hash)]; t; t = t->next) {
    if (t->hash != hash) continue;
    const fm::string text = t->word;
    if (text == word) return t;
  }
  return nullptr;
}

fm::ptr<term> dictionary::get_or_insert(std::string_view word, std::uint64_t hash) {
  if (fm::ptr<term> found = find(word, hash)) return found;
  if (size_ >= buckets_count_) grow();
  const auto text = fm::string(heap_, word);
  const auto postings = fm::vector<posting>(heap_);
  const auto made = heap_.make<term>();
  const std::uint64_t bucket = bucket_of(hash);
  {
    const auto t = made.write();
    t->hash = hash;
    t->word = text;
    t->postings = postings;
    t->next = buckets_[bucket];
  }
  buckets_.set(bucket, made);
  ++size_;
  return made;
}

void dictionary::grow() {
  fm::vector<fm::ref<term>> grown(heap_);
  grown.resize(buckets_count_ * 2);
  const std::uint64_t mask = buckets_count_ * 2 - 1;
  for (std::uint64_t b = 0; b < buckets_count_; ++b) {
    for (fm::ptr<term> t = buckets_[b]; t;) {
      const fm::ptr<term> next = t->next;
      const std::uint64_t to = t->hash & mask;
      t.write()->next = grown[to];
      grown.set(to, t);
      t = next;
    }
  }
  buckets_ = grown;
  buckets_count_ *= 2;
}

}  // namespace fm::example

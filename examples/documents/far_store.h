// Documents with secondary indexes, in containers of farmem. plain_store.h is the same in local memory; the guide
// docs/how-to/migrate.md compares the two.
#pragma once

#include <farmem/farmem.h>

#include "document.h"

namespace fm::example {

/// What of a document is in the heap: text is a reference to text.
struct stored_document {
  std::uint64_t id = 0;
  std::uint32_t year = 0;
  ref<string> author;
  ref<string> text;
  ref<vector<ref<string>>> tags;
};

class far_store {
 public:
  explicit far_store(heap& h) : heap_(h), by_id_(h), by_author_(h), by_tag_(h) {}

  /// Adds a document, or replaces the one of the same id.
  void put(const document& d) {
    erase(d.id);
    vector<ref<string>> tags(heap_);
    for (const std::string& tag : d.tags) tags.push_back(heap_.str(tag));
    const auto made = heap_.make<stored_document>(
        {.id = d.id, .year = d.year, .author = heap_.str(d.author), .text = heap_.str(d.text), .tags = tags});
    by_id_.insert_or_assign(d.id, made);
    add(by_author_, d.author, made);
    for (const std::string& tag : d.tags) add(by_tag_, tag, made);
  }

  bool erase(std::uint64_t id) {
    const ptr<stored_document> gone = by_id_.find(id);
    if (!gone) return false;
    by_id_.erase(id);
    drop(by_author_, string(gone->author).str(), gone);
    for (const string& tag : vector<ref<string>>(gone->tags)) drop(by_tag_, tag.str(), gone);
    return true;
  }

  [[nodiscard]] bool get(std::uint64_t id, document& out) const {
    const ptr<stored_document> at = by_id_.find(id);
    if (!at) return false;
    const auto d = at.read();
    out = {.id = d->id, .year = d->year, .author = string(d->author).str(), .text = string(d->text).str()};
    for (const string& tag : vector<ref<string>>(d->tags)) out.tags.push_back(tag.str());
    return true;
  }

  /// Calls f(id, year) for the author's documents.
  template <class F>
  void each_by(const std::string& author, F&& f) const {
    each_of(by_author_, author, f);
  }
  /// The same of a tag.
  template <class F>
  void each_tagged(const std::string& tag, F&& f) const {
    each_of(by_tag_, tag, f);
  }

  [[nodiscard]] std::uint64_t size() const { return by_id_.size(); }

 private:
  using list = vector<ref<stored_document>>;
  using index = hash_map<string, ref<list>>;

  void add(const index& to, const std::string& key, const ptr<stored_document>& d) {
    const list all = to.get_or_insert(key, [&] { return list(heap_); });
    all.push_back(d);
  }
  static void drop(const index& from, const std::string& key, const ptr<stored_document>& gone) {
    const list all = from.find(key);
    for (std::uint64_t i = 0; i < all.size(); ++i) {
      if (all[i] != gone) continue;
      all.set(i, all.back());
      all.pop_back();
      break;
    }
    if (all.empty()) from.erase(key);
  }
  template <class F>
  static void each_of(const index& of, const std::string& key, F& f) {
    const list all = of.find(key);
    if (!all) return;
    for (const ptr<stored_document>& d : all) {
      const auto pin = d.read();
      f(pin->id, pin->year);
    }
  }

  heap& heap_;
  hash_map<std::uint64_t, ref<stored_document>> by_id_;
  index by_author_, by_tag_;
};

}  // namespace fm::example

// Documents with secondary indexes, in containers of the standard library. far_store.h is the same in far memory; the guide
// docs/how-to/migrate.md compares the two.
#pragma once

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "document.h"

namespace fm::example {

class plain_store {
 public:
  /// Adds a document, or replaces the one of the same id.
  void put(const document& d) {
    erase(d.id);
    const auto made = std::make_shared<document>(d);
    by_id_[d.id] = made;
    by_author_[d.author].push_back(made);
    for (const std::string& tag : d.tags) by_tag_[tag].push_back(made);
  }

  bool erase(std::uint64_t id) {
    const auto at = by_id_.find(id);
    if (at == by_id_.end()) return false;
    const auto gone = at->second;
    by_id_.erase(at);
    drop(by_author_, gone->author, gone);
    for (const std::string& tag : gone->tags) drop(by_tag_, tag, gone);
    return true;
  }

  [[nodiscard]] bool get(std::uint64_t id, document& out) const {
    const auto at = by_id_.find(id);
    if (at == by_id_.end()) return false;
    out = *at->second;
    return true;
  }

  /// Calls f(id, year) for the author's documents.
  template <class F>
  void each_by(const std::string& author, F&& f) const {
    const auto at = by_author_.find(author);
    if (at == by_author_.end()) return;
    for (const auto& d : at->second) f(d->id, d->year);
  }
  /// The same of a tag.
  template <class F>
  void each_tagged(const std::string& tag, F&& f) const {
    const auto at = by_tag_.find(tag);
    if (at == by_tag_.end()) return;
    for (const auto& d : at->second) f(d->id, d->year);
  }

  [[nodiscard]] std::uint64_t size() const { return by_id_.size(); }

 private:
  using list = std::vector<std::shared_ptr<document>>;
  using index = std::unordered_map<std::string, list>;

  static void drop(index& from, const std::string& key, const std::shared_ptr<document>& gone) {
    list& all = from[key];
    const auto at = std::find(all.begin(), all.end(), gone);
    *at = all.back();
    all.pop_back();
    if (all.empty()) from.erase(key);
  }

  std::unordered_map<std::uint64_t, std::shared_ptr<document>> by_id_;
  index by_author_, by_tag_;
};

}  // namespace fm::example

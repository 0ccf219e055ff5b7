// Graphs of words that a test makes up, and what a receiver makes of them.
#pragma once

#include "channel/graph/graph_reader.h"
#include "heap/heap_core.h"

#include "channel/fixture.h"

namespace channel_test {

using fm::detail::graph_reader;
using fm::detail::part_source;

/// Parts from memory.
class parts final : public part_source {
 public:
  explicit parts(std::vector<std::vector<std::uint64_t>> all, std::uint64_t objects)
      : all_(std::move(all)), objects_(objects) {}
  part first() { return shown(); }
  part next() override {
    ++at_;
    if (at_ == all_.size()) throw fm::error(fm::errc::timed_out, "no more parts");
    return shown();
  }

 private:
  part shown() { return {std::as_bytes(std::span(all_[at_])), at_ + 1 == all_.size(), objects_}; }
  std::vector<std::vector<std::uint64_t>> all_;
  const std::uint64_t objects_;
  std::size_t at_ = 0;
};

inline fm::heap& words_heap() {
  static fm::heap h(small());
  return h;
}

template <class T>
fm::ptr<T> read(std::vector<std::vector<std::uint64_t>> all, std::uint64_t objects, bool acyclic = false,
                fm::detail::graph_limits limits = {1000, 1 << 20}) {
  parts source(std::move(all), objects);
  graph_reader r(words_heap().core().cache(), fm::detail::schema_of<T>(), limits, acyclic, source);
  return fm::ptr<T>::from_slot(r.read(source.first()).slot());
}

template <class T>
void require_refused(fm::errc code, const std::string& says, std::vector<std::vector<std::uint64_t>> all,
                     std::uint64_t objects, bool acyclic = false, fm::detail::graph_limits limits = {1000, 1 << 20}) {
  const thrown t = thrown_by([&] { read<T>(std::move(all), objects, acyclic, limits); });
  INFO(t.text);
  REQUIRE(t.code == code);
  REQUIRE(t.text.find(says) != std::string::npos);
}

}  // namespace channel_test

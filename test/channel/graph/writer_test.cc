// The sender's walk over a graph, part by part: how far it looks ahead for what to fetch, and what becomes of a graph that
// is changed while it is sent.
#include "base/channel_limits.h"
#include "heap/heap_core.h"

#include <set>

#include "channel/fixture.h"
#include "channel/graph/recorder.h"

using namespace channel_test;
using namespace fm::detail;

namespace {

constexpr graph_limits no_limits{1u << 20, 1u << 30};

/// A recorder that calls a function of the test whenever a part is asked for, as one that waits for its window may be.
class told_of_parts final : public part_sink {
 public:
  explicit told_of_parts(std::function<void()> told) : told_(std::move(told)) {}
  std::span<char> next(std::size_t used) override {
    told_();
    return kept_.next(used);
  }
  std::vector<std::uint64_t> stream(std::size_t used) {
    kept_.keep(used);
    return kept_.all;
  }

 private:
  std::function<void()> told_;
  recorder kept_;
};

/// Lets one thing happen at the n-th moment at which a sender may wait: for a part, or for memory before a section. The
/// function that eviction has there is replaced.
class interruption {
 public:
  interruption(std::uint64_t n, std::function<void()> what) : left_(n), what_(std::move(what)) {
    now = this;
    relieve_ = epochs::relieve.exchange([]() noexcept { now->moment(); });
    epochs::gate.fetch_or(epochs::gate_memory);
  }
  ~interruption() {
    epochs::gate.fetch_and(~std::uint32_t{epochs::gate_memory});
    epochs::relieve.store(relieve_);
  }
  interruption(const interruption&) = delete;
  interruption& operator=(const interruption&) = delete;
  void moment() noexcept {
    if (left_ == 0 || --left_ != 0) return;
    epochs::gate.fetch_and(~std::uint32_t{epochs::gate_memory});
    what_();
  }
  [[nodiscard]] bool has_come() const noexcept { return left_ == 0; }

 private:
  static inline interruption* now = nullptr;
  std::uint64_t left_;
  std::function<void()> what_;
  void (*relieve_)() noexcept;
};

using numbers = fm::ref<std::uint64_t[]>;
struct two {
  std::uint64_t id = 0;
  numbers first, second;
};

fm::ptr<std::uint64_t[]> filled(fm::heap& h, std::uint64_t n, std::uint64_t with) {
  const auto a = h.array<std::uint64_t>(n);
  const fm::write_pin w = a.write();
  for (std::uint64_t& e : *w) e = with;
  return a;
}

/// Frees what nothing keeps any more, and gives the slot to an array of one element.
void give_away(fm::heap& h, slot_t slot, std::vector<fm::ptr<std::uint64_t[]>>& kept) {
  if (h.collect("test").freed == 0) return;  // the sender has it pinned
  do kept.push_back(filled(h, 1, 2));
  while (kept.back().slot() != slot && kept.size() < 100'000);
}

using stream = std::vector<std::uint64_t>;
template <class T>
stream stream_of(
    const fm::ptr<T>& root, const std::function<void()>& at_part = [] {}) {
  told_of_parts to(at_part);
  graph_writer w(schema_of<T>(), no_limits, false, to);
  w.write(root.slot());
  return to.stream(w.used());
}

/// The streams of graphs that `make` gives, when `change` happens to each at another moment of its sending. An empty stream
/// is for those that were refused because of it.
template <class Make, class Change>
std::set<stream> sent_with(const Make& make, const Change& change) {
  std::set<stream> all;
  for (std::uint64_t n = 1;; ++n) {
    const auto root = make();
    interruption i(n, [&] { change(root); });
    stream sent;
    const thrown t = thrown_by([&] { sent = stream_of(root, [&] { i.moment(); }); });
    INFO(t.text);
    REQUIRE((t.code == fm::errc::ok || t.text.find("the graph was changed while it was sent") != std::string::npos));
    all.insert(sent);
    if (!i.has_come()) return all;
  }
}

}  // namespace

TEST_CASE("a sender that misses looks at a bounded number of pending objects for some to fetch with it") {
  constexpr std::uint64_t looks = channel_limits::looks_ahead;
  fm::heap_options o = small();
  o.elastic = false;  // resident is what was asked for
  fm::heap h(o);
  std::vector<fm::ptr<node>> all;
  for (std::uint64_t i = 0; i < looks + 2; ++i) all.push_back(h.make<node>({.id = i}));
  const auto roots = h.array<fm::ref<node>>(looks + 2);
  {
    const fm::write_pin w = roots.write();
    for (std::uint64_t i = 0; i < looks + 2; ++i) (*w)[i] = all[i];
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (std::uint64_t i = 1; i < looks; ++i) REQUIRE(all[i]->id == i);
  const auto is_remote = [&](std::uint64_t i) { return word::is_remote(word_at(all[i].slot()).load()); };
  REQUIRE((is_remote(0) && is_remote(looks) && is_remote(looks + 1)));
  // The first misses, and is written before the others.
  bool last_was_fetched = false, next_was_not = false;
  told_of_parts to([&] {
    if (is_remote(0)) return;
    last_was_fetched = last_was_fetched || !is_remote(looks);
    next_was_not = next_was_not || is_remote(looks + 1);
  });
  graph_writer w(schema_of<fm::ref<node>[]>(), no_limits, false, to);
  w.write(roots.slot());
  CHECK(last_was_fetched);
  CHECK(next_was_not);
  CHECK(w.objects() == looks + 3);
}

TEST_CASE("an object that gives its slot to a smaller one while its graph is sent is sent whole, or not, or refused") {
  fm::heap h(small(64_MiB));
  const auto make = [&] {
    return h.make<two>({.id = 7, .first = filled(h, 500, 1), .second = filled(h, 1'000, 1)});  // of several parts
  };
  std::vector<fm::ptr<std::uint64_t[]>> kept;
  const std::set<stream> sent = sent_with(make, [&](const fm::ptr<two>& root) {
    const slot_t slot = root->second.slot();
    root.write()->second = nullptr;
    give_away(h, slot, kept);
  });
  const stream whole = stream_of(make()), without = stream_of(h.make<two>({.id = 7, .first = filled(h, 500, 1)})),
               other = stream_of(h.make<two>({.id = 7, .first = filled(h, 500, 1), .second = filled(h, 1, 2)}));
  CHECK((sent == std::set<stream>{whole, without, other, {}}));
}

TEST_CASE("a vector that is cleared while it is sent is sent whole, or empty, or refused") {
  using vector = fm::vector<std::uint64_t>;
  fm::heap h(small(64_MiB));
  const auto make = [&] {
    vector v(h);
    v.resize(200, 1);  // of several parts
    return v;
  };
  std::vector<fm::ptr<std::uint64_t[]>> kept;
  const std::set<stream> sent = sent_with(make, [&](const vector& v) {
    slot_t slot = 0;
    {
      const user_section in_section;
      slot = chunks<std::uint64_t>::slot_of(*object_at<vector_header<std::uint64_t>>(v.slot()), 0);
    }
    v.clear();
    give_away(h, slot, kept);
  });
  CHECK((sent == std::set<stream>{stream_of(make()), stream_of(vector(h)), {}}));
}

// Maps and sets in order inside of graphs, over every transport and while both heaps collect and evict: the receiver's have the same
// entries in the same order, what they share is shared there, too, and they can be changed. And what a receiver makes of keys that
// do not ascend, of hash tables in the place of maps, and of functions of the program that throw.
#include "channel/graph/graph_evolution.h"

#include <atomic>
#include <stdexcept>

#include "channel/fixture.h"
#include "channel/words.h"

using namespace channel_test;
using fm::errc;

namespace {

struct place {
  std::uint64_t id = 0;
  fm::ref<fm::string> name;
};
struct point {
  std::uint32_t x = 0, y = 0;
  auto operator<=>(const point&) const = default;
};
struct atlas {
  fm::ref<fm::map<std::uint64_t, double>> by_number;
  fm::ref<fm::map<std::uint64_t, std::uint64_t, std::greater<std::uint64_t>>> downwards;
  fm::ref<fm::map<fm::string, fm::ref<place>>> by_name;
  fm::ref<place> last;  ///< a value, too, which comes after the containers
  fm::ref<fm::map<std::uint32_t, fm::ref<atlas>>> others;
  fm::ref<fm::map<std::uint32_t, fm::ref<fm::map<std::uint64_t, fm::ref<place>>>>> nested;
  fm::ref<fm::set<fm::string>> words;
  fm::ref<fm::set<point>> points;
  fm::ref<fm::hash_map<std::uint64_t, fm::ref<place>>> hashed;  ///< has the entries of a map
};

/// Texts that differ after many bytes, too.
std::string name_of(std::uint64_t i) {
  return (i % 2 == 0 ? "" : "a name that is longer than a head ") + std::to_string(i);
}

fm::ptr<atlas> make_atlas(fm::heap& h, std::uint64_t n) {
  const fm::ptr<atlas> a = h.make<atlas>();
  const fm::map<std::uint64_t, double> by_number(h);
  const fm::map<std::uint64_t, std::uint64_t, std::greater<std::uint64_t>> downwards(h);
  const fm::map<fm::string, fm::ref<place>> by_name(h);
  const fm::map<std::uint32_t, fm::ref<atlas>> others(h);
  const fm::map<std::uint32_t, fm::ref<fm::map<std::uint64_t, fm::ref<place>>>> nested(h);
  const fm::set<fm::string> words(h);
  const fm::set<point> points(h);
  const fm::hash_map<std::uint64_t, fm::ref<place>> hashed(h);
  fm::ptr<place> last;
  for (std::uint64_t i = 0; i < n; ++i) {
    last = h.make<place>({.id = i, .name = h.str(name_of(i))});
    by_number.insert(i * 3, 0.5 * static_cast<double>(i));
    downwards.insert(i, i * i);
    by_name.insert(name_of(i), last);
    words.insert(name_of(i));
    points.insert({static_cast<std::uint32_t>(i % 10), static_cast<std::uint32_t>(i)});
    hashed.insert(i, last);
    const fm::map<std::uint64_t, fm::ref<place>> inner(h);
    for (std::uint64_t k = 0; k < i % 3; ++k) inner.insert(k, k == 0 ? last : fm::ptr<place>());
    nested.insert(static_cast<std::uint32_t>(i), inner);
  }
  others.insert(1, a);
  others.insert(2, fm::ptr<atlas>());
  const fm::write_pin w = a.write();
  w->by_number = by_number;
  w->downwards = downwards;
  w->by_name = by_name;
  w->last = last;
  w->others = others;
  w->nested = nested;
  w->words = words;
  w->points = points;
  w->hashed = hashed;
  return a;
}

/// Whether the keys of a walk ascend, and how many there are.
template <class Tree>
void require_ascending(const Tree& t, std::uint64_t n) {
  std::vector<typename Tree::value_type> seen;
  for (const auto& e : t) seen.push_back(e);
  std::uint64_t wrong = 0;
  for (std::size_t i = 1; i < seen.size(); ++i) {
    if constexpr (requires { seen[i].first; })
      wrong += !typename Tree::key_compare{}(seen[i - 1].first, seen[i].first);
    else
      wrong += !typename Tree::key_compare{}(seen[i - 1], seen[i]);
  }
  REQUIRE(wrong == 0);
  REQUIRE(seen.size() == n);
  REQUIRE(t.size() == n);
}

void require_atlas(const fm::ptr<atlas>& a, std::uint64_t n) {
  const fm::map<std::uint64_t, double> by_number = a->by_number;
  const fm::map<std::uint64_t, std::uint64_t, std::greater<std::uint64_t>> downwards = a->downwards;
  const fm::map<fm::string, fm::ref<place>> by_name = a->by_name;
  const fm::map<std::uint32_t, fm::ref<atlas>> others = a->others;
  const fm::map<std::uint32_t, fm::ref<fm::map<std::uint64_t, fm::ref<place>>>> nested = a->nested;
  const fm::set<fm::string> words = a->words;
  const fm::set<point> points = a->points;
  const fm::hash_map<std::uint64_t, fm::ref<place>> hashed = a->hashed;
  require_ascending(by_number, n);
  require_ascending(downwards, n);
  require_ascending(by_name, n);
  require_ascending(nested, n);
  require_ascending(words, n);
  require_ascending(points, n);
  REQUIRE(hashed.size() == n);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const fm::ptr<place> by = by_name.find(name_of(i));
    wrong += by_number.find(i * 3) != 0.5 * static_cast<double>(i);
    wrong += by_number.contains(i * 3 + 1);
    wrong += downwards.find(i) != i * i;
    wrong += !by || by->id != i || !(fm::string(by->name) == name_of(i));
    wrong += !(hashed.find(i) == by);  // the same object, not one like it
    wrong += !words.contains(name_of(i));
    wrong += !points.contains({static_cast<std::uint32_t>(i % 10), static_cast<std::uint32_t>(i)});
    const fm::map<std::uint64_t, fm::ref<place>> inner = nested.find(static_cast<std::uint32_t>(i));
    wrong += inner.size() != i % 3;
    if (i % 3 != 0) wrong += !(inner.find(0) == by);
    if (i % 3 == 2) wrong += !inner.contains(1) || inner.find(1).has_value();
    if (i + 1 == n) wrong += !(by == fm::ptr<place>(a->last));
  }
  REQUIRE(wrong == 0);
  REQUIRE(others.size() == 2);
  REQUIRE(fm::ptr<atlas>(others.find(1)) == a);
  REQUIRE(others.contains(2));
  REQUIRE_FALSE(fm::ptr<atlas>(others.find(2)));
}

/// An order that a thread can have otherwise, as a program of another version might, or that throws in it.
enum class order { up, down, coarse, throws };
thread_local order order_here = order::up;
struct by_thread {
  bool operator()(std::uint64_t a, std::uint64_t b) const {
    switch (order_here) {
      case order::up: return a < b;
      case order::down: return b < a;
      case order::coarse: return a / 2 < b / 2;
      default: throw std::runtime_error("no order");
    }
  }
};
/// The same for all threads.
struct by_flag {
  static inline std::atomic<bool> throws{false};
  bool operator()(std::uint64_t a, std::uint64_t b) const {
    if (throws.load()) throw std::runtime_error("no order");
    return a < b;
  }
};
using numbers_by_thread = fm::map<std::uint64_t, std::uint64_t, by_thread>;
struct with_numbers {
  fm::ref<fm::vector<std::uint64_t>> before;  ///< several parts
  fm::ref<numbers_by_thread> numbers;
  fm::ref<place> other;
};

fm::ptr<with_numbers> make_numbers(fm::heap& h) {
  const fm::vector<std::uint64_t> before(h);
  before.resize(20'000);
  const numbers_by_thread m(h);
  for (std::uint64_t i = 0; i < 2000; ++i) m.insert(i, i);
  return h.make<with_numbers>({.before = before, .numbers = m, .other = h.make<place>({.id = 4})});
}

}  // namespace

TEST_CASE("maps and sets in order arrive inside of a graph over every transport, while both heaps collect") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  INFO(transport);
  ends e(transport, {.window = 256_KiB, .part = 16_KiB}, small(16_MiB), small(16_MiB));
  disturbance d(e);
  for (const std::uint64_t n :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{sanitized ? 600 : 3000}}) {
    INFO(n);
    beside sender([&] { e.tx.send(make_atlas(e.from, n)); });
    const fm::ptr<atlas> there = e.rx.recv<atlas>();
    require_ok(sender);
    require_atlas(there, n);
    beside answer([&] { e.rx.send(there); });
    const fm::ptr<atlas> back = e.tx.recv<atlas>();
    require_ok(answer);
    require_atlas(back, n);
  }
  d.require_over();
  require_sound(e.from);
  require_sound(e.to);
  REQUIRE(objects_left(e.to) == 0);
}

TEST_CASE("a map in order can be the root, of any size, and can be changed when it has arrived") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  INFO(transport);
  ends e(transport);
  using numbers = fm::map<std::uint64_t, std::uint64_t>;
  // Around a leaf and a full batch of 512, and so many that a tree has two levels of inner nodes.
  for (const std::uint64_t n : {0, 1, 224, 225, 511, 512, 513, 1024, sanitized ? 5000 : 120'000}) {
    INFO(n);
    const numbers m(e.from);
    for (std::uint64_t i = 0; i < n; ++i) m.insert(i * 2, i + 7);
    require_round_trip<numbers>(e, m, [&](const numbers& there) {
      require_ascending(there, n);
      std::uint64_t i = 0, wrong = 0;
      for (const auto& [key, value] : there) {
        wrong += key != 2 * i || value != i + 7;
        ++i;
      }
      REQUIRE(wrong == 0);
      // Between all keys, before and after them; then most of them go.
      for (std::uint64_t k = 0; k < std::min<std::uint64_t>(n, 3000); ++k) REQUIRE(there.insert(2 * k + 1, k));
      REQUIRE(there.insert(2 * n + 1, 1));
      REQUIRE(there.last()->first == 2 * n + 1);
      require_ascending(there, n + std::min<std::uint64_t>(n, 3000) + 1);
      const std::uint64_t left = there.size() - there.erase_if([](auto key, auto) { return key % 5 != 0; });
      require_ascending(there, left);
    });
  }
  const fm::set<fm::string> words(e.from);
  for (std::uint64_t i = 0; i < 3000; ++i) words.insert(name_of(i));
  require_round_trip<fm::set<fm::string>>(e, words, [&](const fm::set<fm::string>& there) {
    require_ascending(there, 3000);
    REQUIRE(there.erase(name_of(1)));
    REQUIRE(there.insert("b"));
    REQUIRE(there.last()->str() == "b");
  });
  require_sound(e.to);
}

TEST_CASE("a map in order that others write to is sent with every key that is there throughout, in order") {
  ends e("local");
  using map = fm::map<fm::string, fm::ref<place>>;
  const map m(e.from);
  constexpr std::uint64_t stays = 500;
  for (std::uint64_t i = 0; i < stays; ++i) m.insert("stays " + std::to_string(i), e.from.make<place>({.id = i}));
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !over.load(); ++i) {
      const std::string key = "goes " + std::to_string(i % 300);
      if (i / 300 % 2 == 0)
        m.insert_or_assign(key, e.from.make<place>({.id = i}));
      else
        m.erase(key);
    }
  });
  disturbance d(e);  // what was erased gives its slots to others
  errc sent = errc::ok;
  std::string text;
  std::uint64_t found = stays, wrong = 0;
  for (int round = 0; round < 10 && sent == errc::ok && found == stays && wrong == 0; ++round) {
    beside sender([&] { e.tx.send(m); });
    const map there = e.rx.recv<map>();
    sent = sender.join();
    text = sender.text();
    found = 0;
    for (std::uint64_t i = 0; i < stays; ++i) {
      const fm::ptr<place> p = there.find("stays " + std::to_string(i));
      found += p && p->id == i;
    }
    std::string before;
    std::uint64_t seen = 0;
    for (const auto& [key, p] : there) {
      wrong += key.str() <= before;
      before = key.str();
      wrong += before.starts_with("goes ") && before != "goes " + std::to_string(p->id % 300);  // a value is of its key
      ++seen;
    }
    wrong += seen != there.size() || seen > stays + 300;
  }
  over = true;
  writer.join();
  INFO(text);
  REQUIRE(sent == errc::ok);
  REQUIRE(found == stays);
  REQUIRE(wrong == 0);
  d.require_over();
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("a map whose keys have another order at the receiver is refused at both ends, and the next graph arrives") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  const order here = GENERATE(order::down, order::coarse);
  INFO(transport);
  ends e(transport, {.window = 256_KiB, .part = 16_KiB});
  const fm::ptr<with_numbers> g = make_numbers(e.from);
  beside sender([&] { e.tx.send(g); });
  order_here = here;
  const thrown t = thrown_by([&] { e.rx.recv<with_numbers>(); });
  order_here = order::up;
  INFO(t.text);
  REQUIRE(t.code == errc::layout_mismatch);
  REQUIRE(t.text.find("is not after the one before") != std::string::npos);
  REQUIRE(sender.join() == errc::layout_mismatch);
  REQUIRE(sender.text().find("by_thread") != std::string::npos);
  REQUIRE(objects_left(e.to) == 0);

  beside again([&] { e.tx.send(g); });
  const fm::ptr<with_numbers> there = e.rx.recv<with_numbers>();
  require_ok(again);
  REQUIRE(there->other->id == 4);
  require_ascending(numbers_by_thread(there->numbers), 2000);
  require_sound(e.to);
}

TEST_CASE("a Compare that throws ends its graph at both ends, and the next graph arrives") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  const bool at_sender = GENERATE(true, false);
  INFO(transport);
  INFO(at_sender);
  ends e(transport, {.window = 256_KiB, .part = 16_KiB});
  const fm::ptr<with_numbers> g = make_numbers(e.from);
  std::string sent, received;
  const auto with_order = [](order o, std::string& text, const std::function<void()>& run) {
    order_here = o;
    try {
      run();
    } catch (const fm::error& x) {
      text = x.code() == errc::cancelled ? "cancelled" : x.what();
    } catch (const std::runtime_error& x) {
      text = x.what();
    }
    order_here = order::up;
  };
  beside sender([&] { with_order(at_sender ? order::throws : order::up, sent, [&] { e.tx.send(g); }); });
  with_order(at_sender ? order::up : order::throws, received, [&] { e.rx.recv<with_numbers>(); });
  require_ok(sender);
  REQUIRE(sent == (at_sender ? "no order" : "cancelled"));
  REQUIRE(received == (at_sender ? "cancelled" : "no order"));
  REQUIRE(objects_left(e.to) == 0);
  beside again([&] { e.tx.send(g); });
  require_ascending(numbers_by_thread(e.rx.recv<with_numbers>()->numbers), 2000);
  require_ok(again);
  require_sound(e.to);
}

TEST_CASE("a Compare that throws in an operation that goes on by itself is that operation's error") {
  using numbers = fm::map<std::uint64_t, std::uint64_t, by_flag>;
  const auto filled = [](fm::heap& h) {
    numbers m(h);
    for (std::uint64_t i = 0; i < 2000; ++i) m.insert(i, i);
    return m;
  };
  SECTION("at the receiver") {
    ends e("shm");
    const numbers m = filled(e.from);
    e.tx.send(m, {.until = fm::delivery::sent});
    by_flag::throws = true;
    auto receive = e.rx.recv_async<numbers>();
    const thrown r = thrown_by([&] { receive.wait(); });
    by_flag::throws = false;
    INFO(r.text);
    REQUIRE(r.code == errc::cancelled);
    REQUIRE(r.text.find("no order") != std::string::npos);
  }
  SECTION("at the sender") {
    ends e("shm");
    const numbers m = filled(e.from);
    by_flag::throws = true;
    auto send = e.tx.send_async(m);
    const thrown s = thrown_by([&] { send.wait(); });
    by_flag::throws = false;
    INFO(s.text);
    REQUIRE(s.code == errc::cancelled);
    REQUIRE(s.text.find("no order") != std::string::npos);
  }
}

TEST_CASE("a map in order is a type of its own: no hash table, and no map with another Compare, is taken for one") {
  using ordered = fm::map<std::uint64_t, std::uint64_t>;
  using hashed = fm::hash_map<std::uint64_t, std::uint64_t>;
  using downwards = fm::map<std::uint64_t, std::uint64_t, std::greater<std::uint64_t>>;
  const auto refused = [](const fm::detail::graph_schema& mine, const fm::detail::graph_schema& theirs) {
    REQUIRE(mine.hash != theirs.hash);
    const thrown t = thrown_by([&] { fm::detail::evolve(mine, theirs.description); });
    INFO(t.text);
    REQUIRE(t.code == errc::layout_mismatch);
    REQUIRE(t.text.find("'" + theirs.root + "'") != std::string::npos);
    REQUIRE(t.text.find("'" + mine.root + "'") != std::string::npos);
  };
  using fm::detail::schema_of;
  refused(schema_of<ordered>(), schema_of<hashed>());
  refused(schema_of<hashed>(), schema_of<ordered>());
  refused(schema_of<ordered>(), schema_of<downwards>());
  refused(schema_of<fm::set<std::uint64_t>>(), schema_of<fm::hash_set<std::uint64_t>>());
  refused(schema_of<node>(), schema_of<ordered>());  // as a program that knows of no maps does
  refused(schema_of<ordered>(), schema_of<node>());

  ends e("shm");
  const hashed h(e.from);
  h.insert(1, 2);
  const ordered m(e.from);
  m.insert(1, 2);
  beside sender([&] {
    const thrown t = thrown_by([&] { e.tx.send(h); });
    if (t.code != errc::layout_mismatch) throw fm::error(errc::corrupt, t.text);
    e.tx.send(m);
  });
  REQUIRE(thrown_by([&] { e.rx.recv<ordered>(); }).code == errc::layout_mismatch);
  REQUIRE(ordered(e.rx.recv<ordered>()).find(1) == std::uint64_t{2});
  require_ok(sender);
}

TEST_CASE("the limits of a graph count the nodes that small maps take at the receiver") {
  using small_map = fm::map<std::uint64_t, std::uint64_t>;
  const std::uint64_t most = GENERATE(1_MiB, 16_MiB);
  ends e("local", {.bytes_max = most});
  const fm::vector<fm::ref<small_map>> maps(e.from);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const small_map m(e.from);
    m.insert(i, i);
    maps.push_back(m);
  }
  beside sender([&] { e.tx.send(maps); });
  const errc received = thrown_by([&] { e.rx.recv<fm::vector<fm::ref<small_map>>>(); }).code;
  REQUIRE(received == (most == 1_MiB ? errc::too_large : errc::ok));
  REQUIRE(sender.join() == received);
  REQUIRE(objects_left(e.to) == 0);
}

// ---- batches that no honest sender sends ----

TEST_CASE("batches of a map are read from their words, wherever parts are cut") {
  using texts = fm::map<fm::string, fm::ref<place>>;
  // Objects 1 and 3 are keys, 2 and 4 values, the second of which has the first one's key as its name.
  const std::vector<std::uint64_t> words{2, 2, 3, 4, 5, 1, 'a', 10, 0, 1, 'b', 20, 2};
  for (std::size_t cut = 0; cut <= words.size(); ++cut) {
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(cut);
    const texts t = read<texts>({{words.begin(), at}, {at, words.end()}}, 5);
    REQUIRE(t.size() == 2);
    REQUIRE(t.first()->first.str() == "a");
    REQUIRE(t.find("a")->id == 10);
    REQUIRE(fm::string(t.find("b")->name) == "a");
  }
  using numbers = fm::map<std::uint64_t, std::uint64_t>;
  const numbers m = read<numbers>({{2, 1, 10, 2, 20}}, 1);
  REQUIRE(m.size() == 2);
  REQUIRE(m.find(2) == std::uint64_t{20});
  REQUIRE(numbers(read<numbers>({{0}}, 1)).empty());
}

TEST_CASE("keys that do not ascend are refused wherever they stand, and so are null ones and too many") {
  using numbers = fm::map<std::uint64_t, std::uint64_t>;
  const std::string says = "is not after the one before";
  require_refused<numbers>(errc::layout_mismatch, says, {{2, 2, 10, 1, 20}}, 1);
  require_refused<numbers>(errc::layout_mismatch, says, {{2, 1, 10, 1, 20}}, 1);
  require_refused<numbers>(errc::layout_mismatch, says, {{3, 1, 10, 5, 20, 4, 30}}, 1);
  require_refused<fm::set<std::uint64_t>>(errc::layout_mismatch, says, {{2, 7, 7}}, 1);
  require_refused<numbers>(errc::bad_frame, "at most 512 go together", {{513, 1, 2}}, 1);
  require_refused<numbers>(errc::bad_frame, "ends before", {{2, 1, 10}}, 1);
  require_refused<numbers>(errc::too_large, "bytes", {{1, 1, 10}}, 1, false, {10, 4000});
  // The next batch begins with a key of the one before, or with the next one.
  for (const std::uint64_t next : {std::uint64_t{0}, std::uint64_t{511}, std::uint64_t{512}}) {
    std::vector<std::uint64_t> two{512};
    for (std::uint64_t i = 0; i < 512; ++i) two.insert(two.end(), {i, i});
    two.insert(two.end(), {1, next, 9});
    if (next == 512)
      REQUIRE(numbers(read<numbers>({two}, 1)).last()->first == 512);
    else
      require_refused<numbers>(errc::layout_mismatch, says, {two}, 1);
  }
  using texts = fm::map<fm::string, std::uint64_t>;
  REQUIRE(texts(read<texts>({{2, 2, 10, 3, 20, 1, 'a', 1, 'b'}}, 3)).find("b") == std::uint64_t{20});
  require_refused<texts>(errc::layout_mismatch, says, {{2, 2, 10, 3, 20, 1, 'b', 1, 'a'}}, 3);
  require_refused<texts>(errc::layout_mismatch, says, {{2, 2, 10, 2, 20, 1, 'a'}}, 2);
  require_refused<texts>(errc::bad_frame, "is null", {{1, 0, 10}}, 1);
  require_refused<texts>(errc::bad_frame, "names object 0, a '", {{1, 1, 10}}, 1);
  require_refused<fm::set<double>>(errc::layout_mismatch, says, {{2, 0x7ff8000000000000, 0x3ff0000000000000}}, 1);
  REQUIRE(objects_left(words_heap()) == 0);
  require_sound(words_heap());
}

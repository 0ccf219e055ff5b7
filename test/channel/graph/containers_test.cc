// Containers inside of graphs, over every transport and while both heaps collect and evict: the receiver's are like the sender's, what
// they share with the rest of the graph is shared there, too, and they can be changed. And what a receiver makes of batches that no
// honest sender sends.
#include <atomic>

#include "channel/fixture.h"
#include "channel/words.h"

using namespace channel_test;

namespace {

struct item {
  std::uint64_t id = 0;
  fm::ref<fm::string> name;
};
struct tree {
  std::uint64_t depth = 0;
  fm::ref<fm::vector<fm::ref<tree>>> below;
  fm::ref<fm::hash_map<std::uint32_t, fm::ref<tree>>> by_number;
};
struct shelf {
  fm::ref<fm::vector<std::uint64_t>> numbers;
  fm::ref<fm::vector<fm::ref<item>>> items;
  fm::ref<item> last;  ///< an element, too, which comes after the containers
  fm::ref<fm::hash_map<std::uint64_t, double>> by_number;
  fm::ref<fm::hash_map<fm::string, fm::ref<item>>> by_name;
  fm::ref<fm::hash_map<std::uint32_t, fm::ref<shelf>>> shelves;
  fm::ref<fm::hash_set<fm::string>> words;
  fm::ref<fm::hash_set<std::uint16_t>> ids;
  fm::ref<fm::vector<fm::ref<fm::vector<std::uint8_t>>>> nested;
};

fm::ptr<shelf> make_shelf(fm::heap& h, std::uint64_t n) {
  const fm::ptr<shelf> s = h.make<shelf>();
  const fm::vector<std::uint64_t> numbers(h);
  const fm::vector<fm::ref<item>> items(h);
  const fm::hash_map<std::uint64_t, double> by_number(h);
  const fm::hash_map<fm::string, fm::ref<item>> by_name(h);
  const fm::hash_map<std::uint32_t, fm::ref<shelf>> shelves(h);
  const fm::hash_set<fm::string> words(h);
  const fm::hash_set<std::uint16_t> ids(h);
  const fm::vector<fm::ref<fm::vector<std::uint8_t>>> nested(h);
  fm::ptr<item> last;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::string name = "item " + std::to_string(i);
    last = h.make<item>({.id = i, .name = h.str(name)});
    numbers.push_back(i * i);
    items.push_back(i % 7 == 3 ? fm::ptr<item>() : last);
    by_number.insert_or_assign(i, 0.5 * static_cast<double>(i));
    by_name.insert_or_assign(name, last);
    words.insert("word " + std::to_string(i));
    ids.insert(static_cast<std::uint16_t>(i));
    if (i % 100 == 0) {
      const fm::vector<std::uint8_t> bytes(h);
      for (std::uint64_t k = 0; k < i % 9; ++k) bytes.push_back(static_cast<std::uint8_t>(k));
      nested.push_back(bytes);
    }
  }
  shelves.insert_or_assign(1, s);
  shelves.insert_or_assign(2, fm::ptr<shelf>());
  const fm::write_pin w = s.write();
  w->numbers = numbers;
  w->items = items;
  w->last = last;
  w->by_number = by_number;
  w->by_name = by_name;
  w->shelves = shelves;
  w->words = words;
  w->ids = ids;
  w->nested = nested;
  return s;
}

void require_shelf(const fm::ptr<shelf>& s, std::uint64_t n) {
  const fm::vector<std::uint64_t> numbers = s->numbers;
  const fm::vector<fm::ref<item>> items = s->items;
  const fm::hash_map<std::uint64_t, double> by_number = s->by_number;
  const fm::hash_map<fm::string, fm::ref<item>> by_name = s->by_name;
  const fm::hash_map<std::uint32_t, fm::ref<shelf>> shelves = s->shelves;
  const fm::hash_set<fm::string> words = s->words;
  const fm::hash_set<std::uint16_t> ids = s->ids;
  const fm::vector<fm::ref<fm::vector<std::uint8_t>>> nested = s->nested;
  REQUIRE(numbers.size() == n);
  REQUIRE(items.size() == n);
  REQUIRE(by_number.size() == n);
  REQUIRE(by_name.size() == n);
  REQUIRE(words.size() == n);
  REQUIRE(ids.size() == std::min<std::uint64_t>(n, 65536));
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::string name = "item " + std::to_string(i);
    const fm::ptr<item> by = by_name.find(name);
    wrong += numbers[i] != i * i;
    wrong += by_number.find(i) != 0.5 * static_cast<double>(i);
    wrong += !by || by->id != i || !(fm::string(by->name) == name);
    wrong += !(fm::ptr<item>(items[i]) == (i % 7 == 3 ? fm::ptr<item>() : by));  // the same object, not one like it
    wrong += !words.contains("word " + std::to_string(i));
    wrong += !ids.contains(static_cast<std::uint16_t>(i));
    if (i % 100 == 0) {
      const fm::vector<std::uint8_t> bytes = nested[i / 100];
      wrong += bytes.size() != i % 9;
      for (std::uint64_t k = 0; k < bytes.size(); ++k) wrong += bytes[k] != k;
    }
    if (i + 1 == n) wrong += !(by == fm::ptr<item>(s->last));
  }
  REQUIRE(wrong == 0);
  REQUIRE(shelves.size() == 2);
  REQUIRE(fm::ptr<shelf>(shelves.find(1)) == s);
  REQUIRE(shelves.contains(2));
  REQUIRE_FALSE(fm::ptr<shelf>(shelves.find(2)));
}

}  // namespace

TEST_CASE("containers arrive inside of a graph over every transport, while both heaps collect") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  INFO(transport);
  ends e(transport, {.window = 256_KiB, .part = 16_KiB});
  disturbance d(e);
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{1000},
                                std::uint64_t{sanitized ? 1500 : 6000}}) {
    INFO(n);
    beside sender([&] { e.tx.send(make_shelf(e.from, n)); });
    const fm::ptr<shelf> there = e.rx.recv<shelf>();
    require_ok(sender);
    require_shelf(there, n);
    beside answer([&] { e.rx.send(there); });
    const fm::ptr<shelf> back = e.tx.recv<shelf>();
    require_ok(answer);
    require_shelf(back, n);
  }
  d.require_over();
  require_sound(e.from);
  require_sound(e.to);
  REQUIRE(objects_left(e.to) == 0);
}

TEST_CASE("a container can be the root, of any size, and can be changed when it has arrived") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  INFO(transport);
  ends e(transport);
  // Around a chunk of 1024, a full batch; and more chunks than one leaf of the directory has.
  for (const std::uint64_t n : {0, 1, 2, 5, 1023, 1024, 1025, 2048, sanitized ? 9000 : 540'000}) {
    INFO(n);
    const fm::vector<std::uint64_t> v(e.from);
    for (std::uint64_t i = 0; i < n; ++i) v.push_back(i + 7);
    require_round_trip<fm::vector<std::uint64_t>>(e, v, [&](const auto& there) {
      REQUIRE(there.size() == n);
      std::uint64_t i = 0, wrong = 0;
      for (const std::uint64_t x : there) wrong += x != i++ + 7;
      REQUIRE(wrong == 0);
      there.push_back(1);
      there.push_back(2);
      REQUIRE(there.size() == n + 2);
      REQUIRE(there.back() == 2);
      there.clear();
    });
  }
  const fm::hash_map<std::uint64_t, std::uint64_t> m(e.from);
  for (std::uint64_t i = 0; i < 5000; ++i) m.insert_or_assign(i, i * 3);
  require_round_trip<fm::hash_map<std::uint64_t, std::uint64_t>>(e, m, [&](const auto& there) {
    REQUIRE(there.size() == 5000);
    for (std::uint64_t i = 0; i < 5000; i += 2) REQUIRE(there.erase(i));
    REQUIRE(there.insert_or_assign(9999, 1));
    REQUIRE(there.size() == 2501);
    REQUIRE(there.find(4999) == std::uint64_t{14997});
  });
  require_sound(e.to);
}

TEST_CASE("a container that two fields share is one container at the receiver, and send_each sends many") {
  ends e("local");
  const fm::vector<std::uint64_t> a(e.from), b(e.from);
  a.push_back(1);
  const auto both = e.from.array<fm::ref<fm::vector<std::uint64_t>>>(4);
  {
    const fm::write_pin w = both.write();
    (*w)[0] = a;
    (*w)[1] = b;
    (*w)[3] = a;
  }
  beside sender([&] {
    e.tx.send(both);
    e.tx.send_each(both);
  });
  const auto there = e.rx.recv<fm::ref<fm::vector<std::uint64_t>>[]>();
  const auto each = e.rx.recv_each<fm::vector<std::uint64_t>>();
  require_ok(sender);
  const fm::read_pin r = there.read();
  REQUIRE((*r)[0].root() == (*r)[3].root());
  REQUIRE_FALSE((*r)[2]);
  REQUIRE(fm::vector<std::uint64_t>((*r)[0])[0] == 1);
  REQUIRE(fm::vector<std::uint64_t>((*r)[1]).empty());
  REQUIRE(each.size() == 4);
  REQUIRE(each[0] == each[3]);
  REQUIRE(fm::vector<std::uint64_t>(each[0]).size() == 1);
}

TEST_CASE("a table that others write to is sent with every key that is there throughout, and none twice") {
  ends e("local");
  const fm::hash_map<fm::string, fm::ref<item>> m(e.from);
  constexpr std::uint64_t stays = 500;
  for (std::uint64_t i = 0; i < stays; ++i)
    m.insert_or_assign("stays " + std::to_string(i), e.from.make<item>({.id = i}));
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !over.load(); ++i) {
      const std::string key = "goes " + std::to_string(i % 300);
      if (i / 300 % 2 == 0)
        m.insert_or_assign(key, e.from.make<item>({.id = i}));
      else
        m.erase(key);
    }
  });
  disturbance d(e);  // what was erased gives its slots to others
  for (int round = 0; round < 10; ++round) {
    beside sender([&] { e.tx.send(m); });
    const fm::hash_map<fm::string, fm::ref<item>> there = e.rx.recv<fm::hash_map<fm::string, fm::ref<item>>>();
    const fm::errc sent = sender.join();
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < stays; ++i) {
      const fm::ptr<item> p = there.find("stays " + std::to_string(i));
      found += p && p->id == i;
    }
    for (const auto& [key, p] : there)  // a value is of its key
      if (key.str().starts_with("goes ") && key.str() != "goes " + std::to_string(p->id % 300)) found = 0;
    if (sent != fm::errc::ok || found != stays || there.size() < stays || there.size() > stays + 300) {
      over = true;
      writer.join();
      INFO(sender.text());
      REQUIRE(sent == fm::errc::ok);
      REQUIRE(found == stays);
      REQUIRE(there.size() <= stays + 300);
    }
  }
  over = true;
  writer.join();
  d.require_over();
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("containers in containers may be as deep as a graph is large") {
  ends e("shm");
  constexpr std::uint64_t deep = sanitized ? 2000 : 20'000;
  fm::ptr<tree> top;
  for (std::uint64_t i = 0; i < deep; ++i) {
    const fm::ptr<tree> t = e.from.make<tree>({.depth = i});
    if (i % 2 == 0) {
      const fm::vector<fm::ref<tree>> below(e.from, {top, t});
      t.write()->below = below;
    } else {
      const fm::hash_map<std::uint32_t, fm::ref<tree>> by_number(e.from);
      by_number.insert_or_assign(1, top);
      t.write()->by_number = by_number;
    }
    top = t;
  }
  beside sender([&] { e.tx.send(top); });
  fm::ptr<tree> t = e.rx.recv<tree>();
  require_ok(sender);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = deep; i-- > 0;) {
    wrong += t->depth != i;
    if (i % 2 == 0) {
      const fm::vector<fm::ref<tree>> below = t->below;
      wrong += !(fm::ptr<tree>(below[1]) == t);
      t = below[0];
    } else {
      const fm::hash_map<std::uint32_t, fm::ref<tree>> by_number = t->by_number;
      t = by_number.find(1);
    }
  }
  REQUIRE(wrong == 0);
  REQUIRE_FALSE(t);
  require_sound(e.to);
}

TEST_CASE("the limits of a graph count what is in containers") {
  ends e("local", {.objects_max = 1000, .bytes_max = 64_KiB});
  const fm::vector<std::uint64_t> v(e.from);
  for (std::uint64_t i = 0; i < 10'000; ++i) v.push_back(i);
  beside sender([&] { e.tx.send(v); });
  REQUIRE(thrown_by([&] { e.rx.recv<fm::vector<std::uint64_t>>(); }).code == fm::errc::too_large);
  REQUIRE(sender.join() == fm::errc::too_large);
  REQUIRE(thrown_by([&] { e.tx.send(v, {.bytes_max = 1000}); }).code == fm::errc::too_large);
  REQUIRE(objects_left(e.to) == 0);
}

// ---- batches that no honest sender sends ----

TEST_CASE("batches of containers are read from their words, wherever parts are cut") {
  const std::vector<std::uint64_t> words{2, 5, 6};
  for (std::size_t cut = 0; cut <= words.size(); ++cut) {
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(cut);
    const std::vector<std::uint64_t> one(words.begin(), at), two(at, words.end());
    const fm::vector<std::uint64_t> v = read<fm::vector<std::uint64_t>>({one, two}, 1);
    REQUIRE(v.size() == 2);
    REQUIRE(v[1] == 6);
  }
  const fm::hash_map<std::uint64_t, std::uint64_t> m =
      read<fm::hash_map<std::uint64_t, std::uint64_t>>({{2, 1, 10, 2, 20}}, 1);
  REQUIRE(m.size() == 2);
  REQUIRE(m.find(2) == std::uint64_t{20});
}

TEST_CASE("a batch with too many entries, or too few, or none, is refused") {
  using numbers = fm::vector<std::uint64_t>;
  require_refused<numbers>(fm::errc::bad_frame, "at most 1024 go together", {{1025, 1, 2}}, 1);
  require_refused<numbers>(fm::errc::bad_frame, "at most 1024 go together", {{~std::uint64_t{0}}}, 1);
  require_refused<numbers>(fm::errc::bad_frame, "ends before", {{3, 1, 2}}, 1);
  require_refused<numbers>(fm::errc::bad_frame, "ends before", {{}}, 1);
  require_refused<numbers>(fm::errc::bad_frame, "follow", {{1, 1, 2}}, 1);
  std::vector<std::uint64_t> full(1025, 1);
  full[0] = 1024;
  require_refused<numbers>(fm::errc::bad_frame, "ends before", {full}, 1);  // another batch follows a full one
  full.push_back(0);
  const numbers v = read<numbers>({full}, 1);
  REQUIRE(v.size() == 1024);
  require_refused<numbers>(fm::errc::too_large, "bytes", {full}, 1, false, {10, 4000});
}

TEST_CASE("a key that comes twice or is null is refused, and so is an entry that names what it may not") {
  using plain = fm::hash_map<std::uint64_t, std::uint64_t>;
  require_refused<plain>(fm::errc::bad_frame, "comes twice", {{2, 1, 10, 1, 20}}, 1);
  require_refused<fm::hash_set<std::uint64_t>>(fm::errc::bad_frame, "comes twice", {{2, 7, 7}}, 1);
  using texts = fm::hash_map<fm::string, std::uint64_t>;
  // Objects 1 and 2 are keys; a text is its length and its bytes.
  REQUIRE(texts(read<texts>({{2, 2, 10, 3, 20, 1, 'a', 1, 'b'}}, 3)).find("b") == std::uint64_t{20});
  require_refused<texts>(fm::errc::bad_frame, "comes twice", {{2, 2, 10, 3, 20, 1, 'a', 1, 'a'}}, 3);
  require_refused<texts>(fm::errc::bad_frame, "comes twice", {{2, 2, 10, 2, 20, 1, 'a'}}, 2);
  require_refused<texts>(fm::errc::bad_frame, "is null", {{1, 0, 10}}, 1);
  require_refused<texts>(fm::errc::bad_frame, "names object 0, a '", {{1, 1, 10}}, 1);
  require_refused<texts>(fm::errc::bad_frame, "that are known", {{1, 9, 10}}, 1);
  require_refused<fm::vector<fm::ref<item>>>(fm::errc::bad_frame, "names object 0, a '", {{1, 1}}, 1);
  require_refused<fm::vector<fm::ref<item>>>(fm::errc::bad_frame, "counts 5 objects", {{1, 2, 9, 0}}, 5);
}

TEST_CASE("what was refused of containers is garbage, and the heap is sound") {
  REQUIRE(objects_left(words_heap()) == 0);
  require_sound(words_heap());
}

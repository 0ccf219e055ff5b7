// Programs of two versions: fields that were added, or stand elsewhere, alternatives that were added. The tests
// cover graphs of older programs, graphs that nobody takes, and descriptions that no honest sender sends.
#include "channel/graph/graph_evolution.h"

#include "channel/fixture.h"
#include "channel/graph/evolved.h"
#include "channel/words.h"
#include "program/live_agent.h"

using namespace channel_test;
using fm::errc;

namespace {

struct leaf {
  std::uint64_t value = 0;
};
struct other_leaf {
  std::uint64_t value = 0;
};
struct newer {
  fm::ref<leaf> first;
  std::uint32_t added = 42;
  fm::ref<leaf> second;
  std::uint32_t number = 1;
  fm::ref<fm::one_of<leaf, other_leaf>> choice;
};

struct two_refs {
  fm::ref<leaf> one;
  fm::ref<fm::one_of<leaf, other_leaf>> choice;
};
struct with_array {
  std::uint64_t added = 42;
  std::array<two_refs, 2> several;
};

void require_account(const fm::ptr<account>& a, std::uint32_t n) {
  REQUIRE(a->balance == -7);
  REQUIRE(a->flags == 5);
  REQUIRE(a->where.x == n);
  REQUIRE(a->where.y == 1);
  REQUIRE(a->where.weight == 1.5F);
  REQUIRE(fm::string(a->owner) == "owner " + std::to_string(n));
  REQUIRE_FALSE(a->tags);
  REQUIRE_FALSE(a->others);
  const fm::vector<point> points = a->points;
  const fm::hash_map<std::uint64_t, point> by_number = a->by_number;
  const fm::map<instant, point> by_time = a->by_time;
  REQUIRE(points.size() == n);
  REQUIRE(by_number.size() == n);
  REQUIRE(by_time.size() == n);
  std::uint64_t wrong = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const point p = points[i], m = by_number.find(i).value();
    wrong += p.x != 2 * i || p.y != i || p.weight != 1.5F || m.x != 3 * i || m.y != i || m.weight != 1.5F;
  }
  std::uint32_t i = 0;
  for (const auto& [time, p] : by_time) {
    wrong += !(time == instant{i / 24, i % 24, 30}) || p.x != 4 * i || p.y != i || p.weight != 1.5F;
    ++i;
  }
  REQUIRE(wrong == 0);
  const fm::read_pin array = a->array.read();
  REQUIRE(array->size() == 3);
  REQUIRE((*array)[2].x == 9);
  REQUIRE((*array)[2].weight == 1.5F);
}

/// A description of other types than `newer` has.
std::string described(const std::string& fields, std::uint32_t bytes = 40, const std::string& root = "") {
  const std::string name = fm::detail::schema_of<newer>().root;
  const std::string leaf_name = fm::detail::schema_of<leaf>().root;
  const std::string other = fm::detail::schema_of<other_leaf>().root;
  return name + "\t0\tlayout\to\t" + std::to_string(bytes) + "\n" + fields + leaf_name +
         "\t1\tlayout\to\t8\n\tvalue\t0\t8\tu64\n" + other + "\t1\tlayout\to\t8\n\tvalue\t0\t8\tu64\n.\t" +
         (root.empty() ? name : root) + "\n";
}
std::string ref_to_leaf() { return "ref<" + fm::detail::schema_of<leaf>().root + ">"; }

}  // namespace

TEST_CASE("a newer program takes what an older one sends: added fields, another order, added alternatives") {
  const std::string transport = GENERATE("shm", "tcp");
  INFO(transport);
  fm::heap here(small());
  {
    fm::channel_listener listener(here, fresh_url(transport));
    const fm::test::temporary_folder d;
    agent_test::process child({CHANNEL_EVOLVED_CHILD, "send", listener.url()}, d / "output");
    fm::channel c = listener.accept();
    REQUIRE(c.next_is<account>(std::chrono::seconds(30)));
    REQUIRE_FALSE(c.next_is<node>());
    for (int i = 0; i < 2; ++i) {  // the second time the types are known
      const fm::ptr<account> a = c.recv<account>();
      require_account(a, 3000);
      require_account(a->next, 5);
      REQUIRE(fm::as<account>(a->about) == fm::ptr<account>(a->next));
      REQUIRE(fm::as<remark>(a->next->about)->id == 77);
    }
    REQUIRE(child.end(0) == 0);
  }
  REQUIRE(objects_left(here) == 0);
  require_sound(here);
}

TEST_CASE("an older program refuses what a newer one sends, if fields would be lost, and both hear of it") {
  const std::string transport = GENERATE("shm", "tcp");
  INFO(transport);
  fm::heap here(small());
  fm::channel_listener listener(here, fresh_url(transport));
  const fm::test::temporary_folder d;
  agent_test::process child({CHANNEL_EVOLVED_CHILD, "receive", listener.url()}, d / "output");
  fm::channel c = listener.accept();
  const thrown t = thrown_by([&] { c.send(here.make<account>()); });
  INFO(t.text);
  REQUIRE(t.code == errc::layout_mismatch);
  REQUIRE(t.text.find("would be lost") != std::string::npos);
  REQUIRE(child.end(0) == 0);
}

TEST_CASE("an object of another layout becomes one of this, references in the sender's order") {
  const fm::detail::graph_schema& mine = fm::detail::schema_of<newer>();
  const std::string text = described(
      "\tnumber\t0\t4\tu32\n\tsecond\t8\t8\t" + ref_to_leaf() + "\n\tfirst\t16\t8\t" + ref_to_leaf() + "\n", 24);
  const fm::detail::graph_evolution e = fm::detail::evolve(mine, text);
  // number = 5; second is object 1, first is object 2; leaves 70 and 80.
  parts source({{5, 2, 3, 70, 80}}, 3);
  graph_reader r(words_heap().core().cache(), mine, {100, 1000}, false, source, &e);
  const auto root = fm::ptr<newer>::from_slot(r.read(source.first()).slot());
  REQUIRE(root->number == 5);
  REQUIRE(root->added == 42);
  REQUIRE(root->second->value == 70);
  REQUIRE(root->first->value == 80);
  REQUIRE_FALSE(root->choice);
}

TEST_CASE("alternatives are taken by name, and the place of one that cannot be is refused") {
  const fm::detail::graph_schema& mine = fm::detail::schema_of<newer>();
  const std::string other = fm::detail::schema_of<other_leaf>().root;
  const std::string text = described("\tchoice\t0\t8\tref to one of several\t" + other + "\n", 8);
  const fm::detail::graph_evolution e = fm::detail::evolve(mine, text);
  {
    parts source({{2, 0, 7}}, 2);
    graph_reader r(words_heap().core().cache(), mine, {100, 1000}, false, source, &e);
    const auto root = fm::ptr<newer>::from_slot(r.read(source.first()).slot());
    REQUIRE(fm::as<other_leaf>(root->choice)->value == 7);
    REQUIRE(root->number == 1);
  }
  parts source({{2, 1, 7}}, 2);
  graph_reader r(words_heap().core().cache(), mine, {100, 1000}, false, source, &e);
  const thrown t = thrown_by([&] { r.read(source.first()); });
  REQUIRE(t.code == errc::bad_frame);
  REQUIRE(t.text.find("alternative 1 of 1") != std::string::npos);
}

TEST_CASE("alternatives within an array of structs are taken if another field differs") {
  const fm::detail::graph_schema& mine = fm::detail::schema_of<with_array>();
  std::string text = mine.description;
  const std::size_t added = text.find("\tadded\t");
  REQUIRE(added != std::string::npos);
  text.erase(added, text.find('\n', added) + 1 - added);  // a sender whose type does not name these eight bytes
  const fm::detail::graph_evolution e = fm::detail::evolve(mine, text);
  // The array is {object 1, object 2}, {null, object 3}: a leaf, another leaf, and a leaf.
  parts source({{7, 2, 3, 0, 4, 70, 1, 80, 0, 90}}, 4);
  graph_reader r(words_heap().core().cache(), mine, {100, 1000}, false, source, &e);
  const auto root = fm::ptr<with_array>::from_slot(r.read(source.first()).slot());
  REQUIRE(root->added == 42);
  REQUIRE(root->several[0].one->value == 70);
  REQUIRE(fm::as<other_leaf>(root->several[0].choice)->value == 80);
  REQUIRE_FALSE(root->several[1].one);
  REQUIRE(fm::as<leaf>(root->several[1].choice)->value == 90);
}

TEST_CASE("a description that cannot be taken is refused with the field, and nothing of it is believed") {
  const fm::detail::graph_schema& mine = fm::detail::schema_of<newer>();
  const std::string leaf_name = fm::detail::schema_of<leaf>().root;
  const auto refused = [&](const std::string& text, const std::string& says) {
    const thrown t = thrown_by([&] { fm::detail::evolve(mine, text); });
    INFO(text);
    INFO(t.text);
    REQUIRE(t.code == errc::layout_mismatch);
    REQUIRE(t.text.find(says) != std::string::npos);
  };
  REQUIRE_NOTHROW(fm::detail::evolve(mine, mine.description));
  refused(described("\tsurplus\t0\t4\tu32\n"), "field 'surplus'");
  refused(described("\tnumber\t0\t4\tf32\n"),
          "field 'number' of '" + mine.root + "' is u32 here and f32 at the sender");
  refused(described("\tnumber\t0\t8\tu32\n"), "field 'number'");
  refused(described("\tnumber\t37\t4\tu32\n"), "does not lie in it");
  refused(described("\tnumber\t4294967295\t4\tu32\n"), "in place of a size");
  refused(described("\tnumber\t-1\t4\tu32\n"), "in place of a size");
  refused(described("\tnumber\t0\t4\tu32\n\tnumber\t4\t4\tu32\n"), "two fields");
  refused(described("", 0), "has no bytes");
  refused(described("\tfirst\t0\t8\t" + ref_to_leaf() + "\t" + leaf_name + "\n"), "refers to one type here");
  refused(described("\tchoice\t0\t8\tref to one of several\n"), "one of several types here");
  refused(described("\tchoice\t0\t8\tref to one of several\tunknown\n"), "'unknown' at the sender");
  refused(described("", 40, "somebody"), "the root is a 'somebody'");
  refused(described("\tnumber\n"), "a line that is none");
  refused("\tnumber\t0\t4\tu32\n", "a line that is none");
  refused("unknown\t0\tlayout\to\t8\n.\tunknown\n", "'unknown' is not known here");
  refused("", "not whole");
  const std::string all = mine.description;
  refused(all + "x", "goes on after its end");
  for (std::size_t n = 0; n < all.size(); ++n)
    if (thrown_by([&] { fm::detail::evolve(mine, all.substr(0, n)); }).code != errc::layout_mismatch) FAIL(n);
}

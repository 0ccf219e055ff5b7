// A store of JSON documents: each value is one of several types, and is known by the type of its object alone. Documents
// come from and go to text as nlohmann::json has it, which is what they must stay equal to: out of the cache, under
// collections, edited, and at the other end of a channel.
#include <nlohmann/json.hpp>
#include <random>

#include "channel/fixture.h"
#include "containers/fixture.h"

using fm::test::effort;
using json = nlohmann::json;

namespace {

struct json_null {};
struct json_flag {
  bool value = false;
};
struct json_number {
  double value = 0;
};
struct json_list;
struct json_object;
using json_value = fm::one_of<json_null, json_flag, json_number, fm::string, json_list, json_object>;
struct json_list {
  fm::ref<fm::vector<fm::ref<json_value>>> items;
};
struct json_object {
  fm::ref<fm::map<fm::string, fm::ref<json_value>>> members;
};
/// In the same heap: what is said about a document, of any type.
struct json_note {
  fm::ref<fm::object> about;
  fm::ref<json_note> next;
};

using value = fm::ptr<json_value>;

value stored(fm::heap& h, const json& from) {
  switch (from.type()) {
    case json::value_t::boolean: return h.make<json_flag>({.value = from.get<bool>()});
    case json::value_t::string: return h.str(from.get_ref<const std::string&>());
    case json::value_t::array: {
      const fm::vector<fm::ref<json_value>> items(h);
      for (const json& item : from) items.push_back(stored(h, item));
      return h.make<json_list>({.items = items});
    }
    case json::value_t::object: {
      const fm::map<fm::string, fm::ref<json_value>> members(h);
      for (const auto& [name, member] : from.items()) members.insert(name, stored(h, member));
      return h.make<json_object>({.members = members});
    }
    case json::value_t::null: return h.make<json_null>();
    default: return h.make<json_number>({.value = from.get<double>()});
  }
}

json shown(const value& v) {
  struct show {
    json operator()(const fm::ptr<json_null>&) const { return nullptr; }
    json operator()(const fm::ptr<json_flag>& f) const { return f->value; }
    json operator()(const fm::ptr<json_number>& n) const { return n->value; }
    json operator()(const fm::ptr<fm::string>& s) const { return fm::string(s).str(); }
    json operator()(const fm::ptr<json_list>& l) const {
      const fm::vector<fm::ref<json_value>> items = l->items;
      json all = json::array();
      for (const value& item : items) all.push_back(shown(item));
      return all;
    }
    json operator()(const fm::ptr<json_object>& o) const {
      const fm::map<fm::string, fm::ref<json_value>> members = o->members;
      json all = json::object();
      for (const auto& [name, member] : members) all[name.str()] = shown(member);
      return all;
    }
  };
  return fm::visit(show(), v);
}

/// A document of `nodes` values, more or less, in lists and objects up to six deep.
json generated(std::mt19937_64& rng, std::uint64_t& nodes, int depth = 0) {
  if (nodes != 0) --nodes;
  const auto text = [&] { return std::string(rng() % 40, char('a' + rng() % 26)) + std::to_string(rng() % 1'000); };
  if (depth < 3 || (depth < 6 && rng() % 3 == 0)) {
    const bool is_list = rng() % 2 == 0;
    json all = is_list ? json::array() : json::object();
    for (std::uint64_t n = depth == 0 ? 1'000'000 : 2 + rng() % 12; n != 0 && nodes != 0; --n) {
      json below = generated(rng, nodes, depth + 1);
      if (is_list)
        all.push_back(std::move(below));
      else
        all[text()] = std::move(below);
    }
    return all;
  }
  switch (rng() % 5) {
    case 0: return nullptr;
    case 1: return rng() % 2 == 0;
    case 2: return double(rng() % 100'000) / 8;
    default: return text();
  }
}

/// Changes the document and what it must equal: follows a random way down, and there replaces, adds or removes a value.
void edit(fm::heap& h, std::mt19937_64& rng, value v, json& expected) {
  json* at = &expected;
  for (;;) {
    const bool ends = rng() % 4 == 0;
    if (const auto list = fm::cast<json_list>(v)) {
      REQUIRE(at->is_array());
      const fm::vector<fm::ref<json_value>> items = list->items;
      REQUIRE(items.size() == at->size());
      if (items.empty() || ends) {
        const json added = std::to_string(rng());
        items.push_back(stored(h, added));
        at->push_back(added);
        if (rng() % 2 == 0) items.erase(items.begin()), at->erase(at->begin());
        return;
      }
      const std::size_t i = rng() % items.size();
      v = items[i], at = &(*at)[i];
    } else if (const auto object = fm::cast<json_object>(v)) {
      REQUIRE(at->is_object());
      const fm::map<fm::string, fm::ref<json_value>> members = object->members;
      REQUIRE(members.size() == at->size());
      if (members.empty() || ends) {
        const std::string name = "added " + std::to_string(rng() % 50);
        const json added = {{"n", double(rng() % 1'000)}, {"list", {true, nullptr, "text"}}};
        members.insert_or_assign(name, stored(h, added));
        (*at)[name] = added;
        const std::string first = members.first()->first.str();
        if (rng() % 3 == 0) REQUIRE((members.erase(first) && at->erase(first) == 1));
        return;
      }
      const auto i = std::next(at->begin(), std::ptrdiff_t(rng() % at->size()));
      v = members.find(i.key()), at = &i.value();
    } else {
      REQUIRE(at->is_primitive());
      return;
    }
  }
}

}  // namespace

TEST_CASE("a document store keeps its JSON: evicted, collected, edited and sent") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  channel_test::ends e(transport, {}, fm::test::tiny(), channel_test::small());
  std::mt19937_64 rng(11);
  const std::uint64_t nodes = effort(6'000);
  std::uint64_t left = nodes;
  json expected = generated(rng, left);
  REQUIRE(left == 0);
  const value document = stored(e.from, json::parse(expected.dump()));
  REQUIRE(shown(document).dump() == expected.dump());

  // A note that says nothing of its object's type keeps it, and what is under it.
  const auto note = e.from.make<json_note>({.about = fm::ptr<fm::object>(stored(e.from, expected))});
  for (int round = 0; round < 4; ++round) {
    for (std::uint64_t i = 0; i < effort(200); ++i) edit(e.from, rng, document, expected);
    REQUIRE(e.from.evict_all() == fm::errc::ok);
    REQUIRE(e.from.collect().ok());
    if (round == 0) {
      const auto kept = fm::cast<json_list>(note->about);
      const auto kept_object = fm::cast<json_object>(note->about);
      REQUIRE(bool(kept) != bool(kept_object));
      const json before = kept ? shown(kept) : shown(kept_object);
      REQUIRE(before != expected);  // which was edited, and the other copy was not
      note.write()->about = fm::ptr<fm::object>(document);
    }
    REQUIRE(shown(document).dump() == expected.dump());
  }
  REQUIRE(e.from.stats().misses > nodes / 10);

  channel_test::beside sender([&] { e.tx.send(document); });
  const value there = e.rx.recv<json_value>();
  channel_test::require_ok(sender);
  REQUIRE(shown(there).dump() == expected.dump());
  // The two are apart from now on.
  json edited = expected;
  for (int i = 0; i < 50; ++i) edit(e.to, rng, there, edited);
  REQUIRE(shown(there).dump() == edited.dump());
  REQUIRE(shown(document).dump() == expected.dump());
  fm::test::require_sound(e.from);
  fm::test::require_sound(e.to);
}

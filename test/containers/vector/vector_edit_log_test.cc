// Editing vectors of references while a collection marks: each reference that leaves its place is logged, so that a
// tracer that comes to its new place too early, and to its old one too late, hears of it. No root helps: the elements
// are named by the vector alone.
#include "support/marking.h"

#include "containers/fixture.h"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

using namespace fm::test;

namespace {

struct item {
  std::uint64_t id = 0;
};
using vector_of_refs = fm::vector<fm::ref<item>>;
using slots = std::vector<fm::detail::slot_t>;

slots slots_of(const vector_of_refs& v) {
  slots all;
  for (const fm::ptr<item>& p : v) all.push_back(p.slot());
  return all;
}

// Of a chunk that an edit drops as a whole, only the chunk is logged: so no edit here is so large.
void require_logged(std::uint64_t size, const std::function<void(const vector_of_refs&, const fm::ptr<item>&)>& edit) {
  fm::heap_options options = tiny();
  options.collect = false;
  fm::heap h(options);
  const vector_of_refs v(h);
  v.reserve(size + 8);
  for (std::uint64_t i = 0; i < size; ++i) v.push_back(h.make<item>({.id = i}));
  const fm::ptr<item> other = h.make<item>({.id = size});
  const slots before = slots_of(v);
  std::set<std::uint32_t> tablets;
  for (const fm::detail::slot_t s : before) tablets.insert(fm::detail::tablet_of(s));
  std::set<fm::detail::slot_t> logged;
  {
    const marking_on now;
    edit(v, other);
    logged = marking_on::logged({tablets.begin(), tablets.end()});
  }
  const slots after = slots_of(v);
  std::uint64_t left = 0, unknown = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i < after.size() && after[i] == before[i]) continue;
    ++left;
    unknown += !logged.contains(before[i]);
  }
  CHECK(left != 0);
  CHECK(unknown == 0);
  require_sound(h);
}

constexpr std::uint64_t in_one_chunk = 100, in_many_chunks = 3500;

}  // namespace

TEST_CASE("references that an edit of a vector moves or removes are logged while a collection marks") {
  const std::uint64_t size = GENERATE(in_one_chunk, in_many_chunks);
  CAPTURE(size);
  const auto at = [](const vector_of_refs& v, std::uint64_t i) { return v.begin() + std::ptrdiff_t(i); };
  SECTION("set") {
    require_logged(size, [&](const vector_of_refs& v, const fm::ptr<item>& other) { v.set(size / 2, other); });
  }
  SECTION("insert") {
    require_logged(size, [&](const vector_of_refs& v, const fm::ptr<item>& other) { v.insert(at(v, 3), other); });
  }
  SECTION("erase") {
    require_logged(size, [&](const vector_of_refs& v, const fm::ptr<item>&) { v.erase(at(v, 3)); });
  }
  SECTION("erase a range") {
    require_logged(size, [&](const vector_of_refs& v, const fm::ptr<item>&) {
      v.erase(at(v, 3), at(v, std::min<std::uint64_t>(size / 2, 300)));
    });
  }
  SECTION("pop_back") {
    require_logged(size, [&](const vector_of_refs& v, const fm::ptr<item>&) { v.pop_back(); });
  }
  SECTION("resize") {
    require_logged(size, [&](const vector_of_refs& v, const fm::ptr<item>&) { v.resize(size - 7); });
  }
}

TEST_CASE("each way to overwrite a reference is logged while a collection marks") {
  struct pair_of_refs {
    fm::ref<item> a, b;
  };
  fm::heap_options options = tiny();
  options.collect = false;
  fm::heap h(options);
  const fm::ptr<item> other = h.make<item>();
  const fm::ptr<pair_of_refs> p = h.make<pair_of_refs>({.a = h.make<item>(), .b = other});
  const fm::ptr<item> expected = p->a;  // given up, and logged, when nobody looks any more
  const fm::detail::slot_t was = expected.slot();
  const std::vector<std::uint32_t> tablets = {fm::detail::tablet_of(was)};
  const marking_on now;
  SECTION("by another one") {
    p.write()->a = other;
    CHECK(marking_on::logged(tablets).contains(was));
  }
  SECTION("by null") {
    p.write()->a = nullptr;
    CHECK(marking_on::logged(tablets).contains(was));
  }
  SECTION("if it is what was expected") {
    CHECK_FALSE(p.write()->a.compare_exchange(other, nullptr));
    CHECK_FALSE(marking_on::logged(tablets).contains(was));
    CHECK(p.write()->a.compare_exchange(expected, nullptr));
    CHECK(marking_on::logged(tablets).contains(was));
  }
}

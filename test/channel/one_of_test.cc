// Objects whose type is one of several: over every transport, as roots, fields and elements, and what a receiver makes of a choice that
// no honest sender makes.
#include "channel/fixture.h"
#include "channel/words.h"

using namespace channel_test;
using fm::errc;

namespace {

struct circle {
  double radius = 0;
};
struct square;
using shape = fm::one_of<circle, square, fm::vector<std::uint64_t>, fm::string>;
struct square {
  double a = 0;
  fm::ref<shape> inside;
};
struct drawing {
  fm::ref<shape> first;
  fm::ref<circle> round;
  fm::ref<fm::vector<fm::ref<shape>>> shapes;
};

fm::ptr<drawing> make_drawing(fm::heap& h, std::uint64_t n) {
  const fm::ptr<drawing> d = h.make<drawing>();
  const fm::ptr<circle> round = h.make<circle>({.radius = 3});
  const fm::vector<fm::ref<shape>> shapes(h);
  fm::ptr<shape> last = round;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(i);
    switch (i % 5) {
      case 0: last = h.make<circle>({.radius = x}); break;
      case 1: last = h.make<square>({.a = x, .inside = last}); break;
      case 2: last = fm::vector<std::uint64_t>(h, {i, i + 1}); break;
      case 3: last = h.str("shape " + std::to_string(i)); break;
      default: last = round;
    }
    shapes.push_back(last);
  }
  const fm::write_pin w = d.write();
  w->first = last;
  w->round = round;
  w->shapes = shapes;
  return d;
}

void require_drawing(const fm::ptr<drawing>& d, std::uint64_t n) {
  const fm::vector<fm::ref<shape>> shapes = d->shapes;
  REQUIRE(shapes.size() == n);
  REQUIRE(d->round->radius == 3);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const fm::ptr<shape> s = shapes[i];
    const double x = static_cast<double>(i);
    switch (i % 5) {
      case 0: wrong += fm::as<circle>(s)->radius != x; break;
      case 1: {
        const fm::ptr<square> q = fm::as<square>(s);
        wrong += q->a != x || !(fm::ptr<shape>(q->inside) == fm::ptr<shape>(shapes[i - 1]));
        break;
      }
      case 2: {
        const fm::vector<std::uint64_t> v = fm::as<fm::vector<std::uint64_t>>(s);
        wrong += v.size() != 2 || v[1] != i + 1;
        break;
      }
      case 3: wrong += !(fm::string(fm::as<fm::string>(s)) == "shape " + std::to_string(i)); break;
      default: wrong += !(fm::as<circle>(s) == fm::ptr<circle>(d->round));
    }
    if (i + 1 == n) wrong += !(s == fm::ptr<shape>(d->first));
  }
  REQUIRE(wrong == 0);
}

}  // namespace

TEST_CASE("objects of one of several types arrive as what they are, over every transport") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  INFO(transport);
  ends e(transport);
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{5}, std::uint64_t{3000}}) {
    const fm::ptr<drawing> d = make_drawing(e.from, n);
    REQUIRE(e.from.evict_all() == errc::ok);  // their types are at the agent
    beside sender([&] { e.tx.send(d); });
    const fm::ptr<drawing> there = e.rx.recv<drawing>();
    require_ok(sender);
    require_drawing(there, n);
  }
  const fm::ptr<shape> root = e.from.make<circle>({.radius = 4});
  beside sender([&] {
    e.tx.send(root);
    e.tx.send(fm::ptr<shape>(e.from.make<square>({.a = 5, .inside = root})), {.acyclic = true});
  });
  REQUIRE(fm::as<circle>(e.rx.recv<shape>())->radius == 4);
  REQUIRE(fm::as<circle>(fm::as<square>(e.rx.recv<shape>())->inside)->radius == 4);
  require_ok(sender);
  require_sound(e.to);
}

TEST_CASE("a choice that cannot be is refused, also when it becomes known after a reference to it") {
  // Root: first is object 1, then null, null. Object 1: which it is, and its payload.
  REQUIRE(fm::as<circle>(read<drawing>({{2, 0, 0, 0, 9}}, 2)->first));
  require_refused<drawing>(errc::bad_frame, "alternative 4 of 4", {{2, 0, 0, 4, 9}}, 2);
  require_refused<drawing>(errc::bad_frame, "alternative", {{2, 0, 0, ~std::uint64_t{0}, 9}}, 2);
  require_refused<drawing>(errc::bad_frame, "ends before", {{2, 0, 0}}, 2);
  // `round` names object 1 before that is there: as a circle it may, as a square not.
  const fm::ptr<drawing> good = read<drawing>({{2, 2, 0, 0, 9}}, 2);
  REQUIRE(fm::as<circle>(good->first) == fm::ptr<circle>(good->round));
  require_refused<drawing>(errc::bad_frame, "names object 1, a '", {{2, 2, 0, 1, 9, 0}}, 2);
  // A square that is there names the drawing, which is no shape, and itself, which is one.
  require_refused<drawing>(errc::bad_frame, "names object 0, a '", {{2, 0, 0, 1, 9, 1}}, 2);
  REQUIRE(read<drawing>({{2, 0, 0, 1, 9, 2}}, 2));
  require_refused<drawing>(errc::too_large, "bytes", {{2, 0, 0, 0, 9}}, 2, false, {10, 30});
}

TEST_CASE("what was refused of choices is garbage, and the heap is sound") {
  REQUIRE(objects_left(words_heap()) == 0);
  require_sound(words_heap());
}

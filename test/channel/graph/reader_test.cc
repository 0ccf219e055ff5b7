// What a receiver makes of bytes that no honest sender sends: every length, reference, type and count that is wrong.
#include "channel/graph/graph_reader.h"
#include "channel/path/channel_messages.h"
#include "heap/heap_core.h"

#include <atomic>
#include <numeric>
#include <thread>

#include "channel/fixture.h"
#include "channel/words.h"

using namespace channel_test;
using fm::detail::graph_reader;
using fm::detail::part_source;

namespace {

struct leaf {
  std::uint64_t value = 0;
};
struct branch {
  fm::ref<branch> left;
  fm::ref<leaf> a, b;
};

fm::heap& heap() { return words_heap(); }

}  // namespace

TEST_CASE("a graph is read from its words, wherever parts are cut") {
  // Root: left -> 1, a -> 2, b -> 3. Object 1: left -> root, a -> 3 (not there yet), b null. Then 2 and 3.
  const std::vector<std::uint64_t> words{2, 3, 4, 1, 4, 0, 70, 80};
  for (std::size_t cut = 0; cut <= words.size(); ++cut) {
    const std::vector<std::uint64_t> one(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(cut));
    const std::vector<std::uint64_t> two(words.begin() + static_cast<std::ptrdiff_t>(cut), words.end());
    const fm::ptr<branch> root = read<branch>({one, two}, 4);
    REQUIRE(root->left->left == root);
    REQUIRE(root->a->value == 70);
    REQUIRE(root->b->value == 80);
    REQUIRE(root->left->a == fm::ptr<leaf>(root->b));
    REQUIRE_FALSE(root->left->b);
  }
}

TEST_CASE("a reference to what nobody knows is refused") {
  require_refused<branch>(fm::errc::bad_frame, "reference to object 2 of 1 that are known", {{3, 0, 0}}, 1);
  require_refused<branch>(fm::errc::bad_frame, "of 1 that are known", {{~std::uint64_t{0}, 0, 0}}, 1);
  require_refused<branch>(fm::errc::bad_frame, "of 1 that are known", {{std::uint64_t{1} << 63, 0, 0}}, 1);
}

TEST_CASE("a reference to an object of another type is refused, whether it has arrived or not") {
  // The root is no leaf.
  require_refused<branch>(fm::errc::bad_frame, "names object 0, a '", {{0, 1, 0}}, 1);
  // Object 1 is a leaf, that has not arrived; the root's second leaf is known as one.
  require_refused<branch>(fm::errc::bad_frame, "names object 2, a '", {{2, 3, 0, 3, 0, 0}}, 3);
}

TEST_CASE("a reference back is refused in a graph that was announced as one without cycles") {
  require_refused<branch>(fm::errc::bad_frame, "are known", {{1, 0, 0}}, 1, true);
  const fm::ptr<branch> root = read<branch>({{2, 3, 0, 0, 0, 0, 9}}, 3, true);
  REQUIRE(root->a->value == 9);
}

TEST_CASE("a graph that ends early, or goes on after its end, is refused") {
  require_refused<branch>(fm::errc::bad_frame, "ends before it is complete", {{2, 0, 0}}, 2);
  require_refused<branch>(fm::errc::bad_frame, "ends before it is complete", {{2, 0}, {}}, 2);
  require_refused<branch>(fm::errc::bad_frame, "8 bytes follow", {{0, 0, 0, 0}}, 1);
  require_refused<branch>(fm::errc::bad_frame, "more follows", {{0, 0, 0}, {0}}, 1);
  require_refused<branch>(fm::errc::bad_frame, "more follows", {{0, 0, 0}, {}, {}}, 1);
  require_refused<branch>(fm::errc::bad_frame, "counts 2 objects", {{0, 0, 0}}, 2);
  require_refused<leaf>(fm::errc::bad_frame, "ends before it is complete", {{}}, 1);
}

TEST_CASE("a length that no object can have is refused, and one that nothing follows costs nothing for long") {
  for (const std::uint64_t length :
       {~std::uint64_t{0}, std::uint64_t{1} << 61, std::uint64_t{1} << 40, heap().object_bytes_max()}) {
    require_refused<double[]>(fm::errc::too_large, "elements", {{length, 1, 2}}, 1, false, {10, ~std::uint64_t{0}});
    require_refused<fm::ref<branch>[]>(fm::errc::too_large, "elements", {{length, 0, 0}}, 1, false,
                                       {10, ~std::uint64_t{0}});
  }
  require_refused<double[]>(fm::errc::bad_frame, "ends before", {{4, 1, 2}}, 1);
  require_refused<fm::ref<branch>[]>(fm::errc::bad_frame, "ends before", {{4, 0, 0}}, 1);
  require_refused<double[]>(fm::errc::bad_frame, "follow", {{1, 1, 2}}, 1);
}

#if !FM_TSAN
TEST_CASE("a length that changes while it is read is the one that was checked") {
  // The sender's other thread: an array of three, or of three hundred, in a part that has room for either.
  std::vector<std::uint64_t> words(1 + 300);
  std::iota(words.begin() + 1, words.end(), 0);
  std::atomic<bool> over{false};
  std::thread sender([&] {
    for (std::uint64_t i = 0; !over.load(std::memory_order_relaxed); ++i)
      __atomic_store_n(words.data(), i % 2 == 0 ? 3 : 300, __ATOMIC_RELAXED);
  });
  struct shared_part final : part_source {
    explicit shared_part(std::span<const std::uint64_t> w) : words(w) {}
    part next() override { throw fm::error(fm::errc::timed_out, "no more parts"); }
    std::span<const std::uint64_t> words;
  } source(words);
  bool sound = true, complete = true;
  for (int i = 0; i < 20'000 && sound; ++i) {
    graph_reader r(heap().core().cache(), fm::detail::schema_of<std::uint64_t[]>(), {1000, 1 << 20}, false, source);
    try {
      const part_source::part all{std::as_bytes(std::span(words)), true, 1};
      const auto array = fm::ptr<std::uint64_t[]>::from_slot(r.read(all).slot());
      const fm::scope s;
      sound = array.get(s)->size() == 300;
    } catch (const fm::error& e) {
      complete = complete && e.code() == fm::errc::bad_frame;  // three, and bytes that follow
    }
    // Either way the object that was made has the length that its frame was made for.
    if (i % 5000 == 0) sound = sound && heap().verify().ok();
  }
  over = true;
  sender.join();
  REQUIRE(sound);
  REQUIRE(complete);
  REQUIRE(heap().verify().ok());
}
#endif

TEST_CASE("limits of objects and of bytes hold") {
  require_refused<branch>(fm::errc::too_large, "more than the 2 objects", {{2, 3, 0, 0, 0, 0, 9}}, 3, false, {2, 1000});
  require_refused<branch>(fm::errc::too_large, "more than the 48 bytes", {{2, 3, 0, 0, 0, 0, 9}}, 3, false, {9, 48});
  require_refused<double[]>(fm::errc::too_large, "more than the 800 bytes", {{100, 1, 2}}, 1, false, {9, 800});
  REQUIRE(read<branch>({{2, 3, 0, 0, 0, 0, 9}}, 3, false, {3, 56}));
}

TEST_CASE("references that wait for their object count against the limit of bytes") {
  // The first element makes object 1 known, the others name it, before it has come: eight bytes each on the wire.
  constexpr std::uint64_t waiting = 100;
  std::vector<std::uint64_t> words{1 + waiting};
  words.insert(words.end(), 1 + waiting, 2);
  words.push_back(70);
  const std::uint64_t on_the_wire = words.size() * 8;
  require_refused<fm::ref<leaf>[]>(fm::errc::too_large, "bytes that are taken here", {words}, 2, false,
                                   {10, on_the_wire + waiting * 32 - 8});
  REQUIRE(read<fm::ref<leaf>[]>({words}, 2, false, {10, on_the_wire + waiting * 32}));
}

TEST_CASE("many roots: bits and references are checked, shared ones and null ones come back") {
  const auto read_each = [](std::vector<std::vector<std::uint64_t>> all, std::uint64_t objects) {
    parts source(std::move(all), objects);
    graph_reader r(heap().core().cache(), fm::detail::schema_of<leaf>(), {1000, 1 << 20}, false, source);
    return r.read_each(source.first());
  };
  const auto roots = read_each({{4, 0b1001, 0, 1, 70, 80}}, 2);
  REQUIRE(roots.size() == 4);
  REQUIRE_FALSE(roots[1]);
  REQUIRE(roots[2] == roots[0]);
  REQUIRE(fm::ptr<leaf>::from_slot(roots[3].slot())->value == 80);
  REQUIRE(read_each({{0}}, 0).empty());
  const auto code = [&](std::vector<std::uint64_t> words) {
    return thrown_by([&] { read_each({std::move(words)}, 1); }).code;
  };
  REQUIRE(code({1, 0b10, 70}) == fm::errc::bad_frame);     // a bit beyond the last
  REQUIRE(code({2, 0b01, 3, 70}) == fm::errc::bad_frame);  // shares what nobody knows
  REQUIRE(code({~std::uint64_t{0}, 0b01, 70}) == fm::errc::too_large);
  REQUIRE(code({2, 0b01}) == fm::errc::bad_frame);
}

TEST_CASE("what was refused is garbage, and the heap is sound") {
  REQUIRE(objects_left(heap()) == 0);
  require_sound(heap());
}

TEST_CASE("a message says both layouts of a type that differs, and quotes nothing that a terminal would act on") {
  const auto& mine = fm::detail::schema_of<branch>();
  const std::string name = mine.types[1].type->name == mine.root ? mine.types[2].type->name : mine.types[1].type->name;
  std::string theirs = mine.description;
  const std::size_t at = theirs.find(name + "\t");
  REQUIRE(at != std::string::npos);
  const std::size_t end = theirs.find('\n', at);
  theirs.replace(at, end - at, name + "\t0123456789abcdef\t16 bytes {0: f64, 8: \x1b[31m}");
  const std::string text = fm::detail::describe_mismatch(mine, theirs);
  INFO(text);
  REQUIRE(text.find("8 bytes {0: u64}") != std::string::npos);
  REQUIRE(text.find("16 bytes {0: f64, 8: ?[31m}") != std::string::npos);
  REQUIRE(fm::detail::describe_mismatch(mine, "").find(mine.root) != std::string::npos);
  REQUIRE(fm::detail::describe_mismatch(mine, "x\n\t\n\t\t\n").find(mine.root) != std::string::npos);
  const std::string other = fm::detail::describe_mismatch(mine, fm::detail::schema_of<leaf>().description);
  INFO(other);
  REQUIRE(other.find("branch") != std::string::npos);
  REQUIRE(other.find("leaf") != std::string::npos);
}

TEST_CASE("messages with anything wrong in their head are refused") {
  using namespace fm::detail::channel_wire;
  const auto decoded = [](const head& h, std::size_t payload) {
    std::vector<std::byte> message(sizeof h + payload);
    std::memcpy(message.data(), &h, sizeof h);
    head out;
    std::span<const std::byte> rest;
    return decode(message, out, rest);
  };
  head good = make(kind::part, 1);
  good.flags = flag_first | flag_last;
  good.bytes = 16;
  REQUIRE(decoded(good, 16) == fm::errc::ok);
  REQUIRE(decoded(good, 8) == fm::errc::bad_frame);
  const auto with = [&](auto change, std::size_t payload = 16) {
    head h = good;
    change(h);
    return decoded(h, payload);
  };
  REQUIRE(with([](head& h) { h.magic = 1; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.version = version_major + 1; }) == fm::errc::version_mismatch);
  REQUIRE(with([](head& h) { h.kind = 0; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.kind = 99; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.flags = 64; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.zero = 1; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.status = 5; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.status = 9999; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.bytes = 12; }, 12) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.bytes = 0; }, 0) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.bytes = ~0u; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) { h.flags = flag_abort; }) == fm::errc::bad_frame);
  REQUIRE(with([](head& h) {
            h.kind = 3;
            h.flags = 0;
          }) == fm::errc::bad_frame);
  REQUIRE(decoded(make(kind::want), 0) == fm::errc::ok);
  head aside = make(kind::aside);
  REQUIRE(decoded(aside, 0) == fm::errc::bad_frame);
  aside.bytes = aside_bytes_max;
  REQUIRE(decoded(aside, aside_bytes_max) == fm::errc::ok);
  ++aside.bytes;
  REQUIRE(decoded(aside, aside_bytes_max + 1) == fm::errc::bad_frame);
  head hello = make(kind::hello);
  hello.flags = flag_stream;
  REQUIRE(decoded(hello, 0) == fm::errc::ok);
  hello.flags = flag_stream | flag_ring;
  REQUIRE(decoded(hello, 0) == fm::errc::bad_frame);
  // Of a part that has not come whole, the head says how much is to come.
  std::vector<std::byte> half(sizeof good + 8);
  std::memcpy(half.data(), &good, sizeof good);
  head out;
  std::span<const std::byte> rest;
  REQUIRE(decode(half, out, rest, 8) == fm::errc::ok);
  REQUIRE(rest.size() == 8);
  REQUIRE(decode(half, out, rest, 16) == fm::errc::bad_frame);
  std::vector<std::byte> tiny(10);
  REQUIRE(decode(tiny, out, rest) == fm::errc::bad_frame);
}

// Heaps that outlive their process: what one owner leaves at the agents is what the next one finds, two never have it, and
// whatever fails leaves it as it was. Both owners are heaps of this process, one after the other.
#include "heap/heap_core.h"
#include "heap/heap_record.h"
#include "replicas_fixture.h"
#include "support/effort.h"
#include "support/error_code.h"
#include "support/temporary_folder.h"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

using namespace gc_test;
using fm::test::code_of;

namespace {

struct shelf {
  std::uint64_t books = 0;
  fm::ref<gc_node> first;
};

struct both {
  fm::ref<std::uint64_t[]> large;
  fm::ref<gc_node> list;
};

fm::heap_options on(const std::vector<std::string>& agents, std::uint32_t replicas = 1) {
  auto o = over(agents);
  o.replicas = replicas;
  o.reconnect_within = o.connect_within = std::chrono::seconds(1);
  return o;
}

/// A list of n nodes with a root, which only the shelf holds.
fm::ptr<shelf> make_shelf(fm::heap& h, std::uint64_t n) {
  const auto list = make_list(h, n);
  return h.make_with<shelf>([&](shelf& s) {
    s.books = n;
    s.first = list;
  });
}
void require_shelf(const fm::ptr<shelf>& s, std::uint64_t n) {
  REQUIRE(s->books == n);
  const fm::ptr<gc_node> first = s->first;
  require_list(first, n);
}

const fm::detach_options as_index{.name = "index", .secret = "tell nobody"};
const fm::attach_options the_index{.name = "index", .secret = "tell nobody"};

std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const fm::error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a heap is detached, and attached with all that its root reaches") {
  const std::string scheme = GENERATE("tcp", "shm");
  const std::size_t count = GENERATE(1u, 3u);
  const std::uint32_t replicas = count == 3 ? GENERATE(1u, 2u) : 1u;
  const fm::test::temporary_folder folder;
  std::vector<std::unique_ptr<meddled_agent>> agents;
  std::vector<std::string> urls;
  for (std::size_t i = 0; i < count; ++i) {
    agents.push_back(std::make_unique<meddled_agent>(folder.url(scheme, static_cast<int>(i))));
    urls.push_back(agents.back()->url());
  }
  const std::uint64_t n = fm::test::effort(scheme == "shm" ? 50'000 : 10'000);
  {
    fm::heap h(on(urls, replicas));
    const auto root = make_shelf(h, n);
    (void)make_list(h, fm::test::effort(10'000));  // garbage that goes along
    require_ok(h.collect("a cycle whose number the next owner must not use"));
    (void)make_list(h, fm::test::effort(10'000));
    h.detach(as_index, root);
    CHECK_FALSE(root);
    CHECK(code_of([&] { (void)h.make<gc_node>(); }) == fm::errc::heap_closed);
  }
  for (int round = 1; round <= 3; ++round) {
    auto [h, root] = fm::heap::attach<shelf>(the_index, on({urls.back()}, replicas));
    CHECK(h->agents() == urls);
    require_shelf(root, n);
    require_sound_at_home(*h);
    require_ok(h->collect("what the last owner left"));
    CHECK(h->collect("nothing more").freed == 0);
    require_shelf(root, n);
    // Written, made and thrown away, in slots that were free before.
    const auto more = make_some(*h, fm::test::effort(20'000));
    root->first->left.root().write()->rest[0] = static_cast<std::uint64_t>(round);
    require_ok(h->collect("beside new objects"));
    require_sound_at_home(*h);
    require_some(more);
    CHECK(root->first->left->rest[0] == static_cast<std::uint64_t>(round));
    if (round < 3)
      h->detach(as_index, root);
    else
      h->close();
  }
  for (const auto& a : agents) CHECK(a->store().heaps_left() == 0);
}

TEST_CASE("an attached heap asks for the places of many objects at once") {
  const std::string scheme = GENERATE("tcp", "shm");
  const fm::test::temporary_folder folder;
  meddled_agent agent(folder.url(scheme, 0));
  constexpr std::uint64_t pages = 64, n = pages * fm::detail::page_slots;
  {
    fm::heap h(on({agent.url()}));
    h.detach(as_index, make_shelf(h, n));
  }
  auto [h, root] = fm::heap::attach<shelf>(the_index, on({agent.url()}));
  require_shelf(root, n);
  // Of each group of pages, the first one and then all others. The list may begin and end within a group.
  const fm::heap_stats s = h->stats();
  CHECK(s.hit_bytes >= pages * fm::detail::page_bytes);
  CHECK(s.misses_by_slot <= 2 * (pages / fm::detail::limits::pages_asked_together + 2) + 2);
}

TEST_CASE("two processes attach a heap, and the second is told who has it") {
  meddled_agent first, second;
  {
    fm::heap h(on({first.url(), second.url()}));
    h.detach(as_index, make_shelf(h, 1'000));
  }
  auto o = on({second.url()});
  o.name = "the first one";
  auto [h, root] = fm::heap::attach<shelf>(the_index, o);
  const auto again = [&] { (void)fm::heap::attach<shelf>(the_index, on({first.url()})); };
  CHECK(code_of(again) == fm::errc::conflict);
  CHECK(text_of(again).find("the first one") != std::string::npos);
  require_shelf(root, 1'000);
}

TEST_CASE("of two threads that attach a heap at one moment, one has it") {
  meddled_agent first, second;
  const auto o = on({first.url(), second.url()});
  {
    fm::heap h(o);
    h.detach(as_index, make_shelf(h, 1'000));
  }
  for (int round = 0; round < 20; ++round) {
    std::array<fm::errc, 2> how{};
    std::array<fm::attached_heap<shelf>, 2> got;
    std::atomic<int> ready{0};
    const auto attach = [&](std::size_t i) {
      ready.fetch_add(1);
      while (ready.load() != 2) {
      }
      how[i] = code_of([&] { got[i] = fm::heap::attach<shelf>(the_index, o); });
    };
    std::thread other(attach, 1);
    attach(0);
    other.join();
    const std::size_t winner = how[0] == fm::errc::ok ? 0 : 1;
    REQUIRE(how[winner] == fm::errc::ok);
    REQUIRE(how[1 - winner] == fm::errc::conflict);
    require_shelf(got[winner].root, 1'000);
    got[winner].heap->detach(as_index, got[winner].root);
  }
}

TEST_CASE("an object that is too large for the next owner's cache is a typed error, and the others are there") {
  meddled_agent agent;
  auto o = on({agent.url()});
  {
    o.cache = 8_MiB;
    fm::heap h(o);
    const auto large = h.array<std::uint64_t>(50'000);
    const auto list = make_list(h, 100);
    h.detach(as_index, h.make_with<both>([&](both& b) {
      b.large = large;
      b.list = list;
    }));
  }
  o.cache = 512_KiB;
  auto [h, root] = fm::heap::attach<both>(the_index, o);
  const fm::ptr<std::uint64_t[]> large = root->large;
  const fm::ptr<gc_node> list = root->list;
  CHECK(code_of([&] { (void)large.read()->size(); }) == fm::errc::too_large);
  require_list(list, 100);
  require_ok(h->collect("beside it"));
  require_sound_at_home(*h);
  // It goes on to the next one, and is as it was where the cache takes it.
  h->detach(as_index, root);
  o.cache = 8_MiB;
  auto [again, its] = fm::heap::attach<both>(the_index, o);
  const fm::ptr<std::uint64_t[]> same = its->large;
  CHECK(same.read()->size() == 50'000);
}

TEST_CASE("whoever has not the name and the secret, or wants another root, gets a typed error, and the heap stays") {
  meddled_agent agent;
  const auto o = on({agent.url()});
  std::uint32_t tablet = 0;
  {
    fm::heap h(o);
    const auto root = make_shelf(h, 1'000);
    tablet = fm::detail::tablet_of(root.slot());
    h.detach(as_index, root);
  }
  const auto attach = [&](const char* name, const char* secret) {
    return code_of([&] { (void)fm::heap::attach<shelf>({.name = name, .secret = secret}, o); });
  };
  CHECK(attach("index", "") == fm::errc::access_denied);
  CHECK(attach("index", "tell nobody.") == fm::errc::access_denied);
  CHECK(attach("indices", "tell nobody") == fm::errc::not_found);
  CHECK(attach("", "tell nobody") == fm::errc::invalid_argument);
  CHECK(code_of([&] { (void)fm::heap::attach<shelf>(the_index, small()); }) == fm::errc::invalid_argument);
  CHECK(attach("index", std::string(64, 's').c_str()) == fm::errc::invalid_argument);
  CHECK(code_of([&] { (void)fm::heap::attach<gc_node>(the_index, o); }) == fm::errc::wrong_type);
  CHECK(fm::heap::try_attach<gc_node>(the_index, o).error().code() == fm::errc::wrong_type);
  CHECK(code_of([&] {
          (void)fm::heap::attach<shelf>({.name = "index", .secret = "tell nobody", .lost = {"tcp://127.0.0.1:9"}}, o);
        }) == fm::errc::invalid_argument);
  fm::detail::take_stored_tablets(nullptr, tablet, 1);  // as another heap of the process would
  CHECK(code_of([&] { (void)fm::heap::attach<shelf>(the_index, o); }) == fm::errc::slots_exhausted);
  fm::detail::give_back_tablets(tablet, 1);
  const auto [h, any] = fm::heap::attach<fm::object>(the_index, o);
  require_shelf(fm::as<shelf>(any), 1'000);
}

TEST_CASE("a heap that cannot be detached stays open, and says why") {
  meddled_agent first, second;
  fm::heap h(on({first.url(), second.url()}));
  const auto root = make_shelf(h, 1'000);
  fm::heap other(on({second.url()}));
  const auto elsewhere = make_shelf(other, 10);

  CHECK(code_of([&] { h.detach(as_index, fm::ptr<shelf>()); }) == fm::errc::null_handle);
  CHECK(code_of([&] { h.detach(as_index, elsewhere); }) == fm::errc::invalid_argument);
  CHECK(code_of([&] { h.detach({.name = std::string(64, 'n')}, root); }) == fm::errc::invalid_argument);
  {
    const auto pinned = root.write();
    CHECK(code_of([&] { h.detach({.name = "index", .within = std::chrono::milliseconds(300)}, root); }) ==
          fm::errc::timed_out);
    pinned->books = 1'000;
  }
  {
    auto embedded = small();
    fm::heap here(embedded);
    const auto mine = make_shelf(here, 10);
    CHECK(code_of([&] { here.detach(as_index, mine); }) == fm::errc::unsupported);
    require_shelf(mine, 10);
  }
  // The first agent would keep it, the second has the name. What the first one has is of no use when the heap goes on.
  other.detach(as_index, elsewhere);
  CHECK(code_of([&] { h.detach(as_index, root); }) == fm::errc::conflict);
  require_shelf(root, 1'000);
  const auto more = make_some(h, 1'000);
  require_sound_at_home(h);
  require_some(more);
  CHECK(code_of([&] { (void)fm::heap::attach<shelf>(the_index, on({first.url()})); }) == fm::errc::conflict);
  require_ok(h.collect("it goes on"));
  h.detach({.name = "another"}, root);
}

TEST_CASE("answers that are lost while a heap is detached and attached cost nothing") {
  using type = fm::protocol::message_type;
  const std::uint64_t books = fm::test::effort(20'000);
  const auto lost = GENERATE(meddling::lose_message, meddling::lose_answer);
  const type what = GENERATE(type::detach_heap, type::attach_heap, type::claim_heap);
  meddled_agent first, second;
  {
    fm::heap h(on({first.url(), second.url()}));
    const auto root = make_shelf(h, books);
    second.meddle(what, lost);
    h.detach(as_index, root);
  }
  // Of attaching, two are lost: the one that only looks, and the one that takes.
  for (int twice = 0; twice < 2; ++twice) {
    if (what != type::detach_heap) second.meddle(what, lost);
    auto [h, root] = fm::heap::attach<shelf>(the_index, on({first.url(), second.url()}));
    REQUIRE(second.met());
    require_shelf(root, books);
    h->detach(as_index, root);
  }
}

TEST_CASE("an agent that died while a heap was detached is done without, if replicas have its objects") {
  meddled_agent first, third;
  const std::uint64_t books = fm::test::effort(30'000);
  auto second = std::make_unique<meddled_agent>();
  const std::string gone = second->url();
  const std::uint32_t replicas = GENERATE(1u, 2u);
  {
    fm::heap h(on({first.url(), gone, third.url()}, replicas));
    h.detach(as_index, make_shelf(h, books));
  }
  second.reset();
  CHECK(code_of([&] { (void)fm::heap::attach<shelf>(the_index, on({first.url()}, replicas)); }) ==
        fm::errc::unreachable);
  const fm::attach_options without{.name = the_index.name, .secret = the_index.secret, .lost = {gone}};
  if (replicas == 1) {
    CHECK(code_of([&] { (void)fm::heap::attach<shelf>(without, on({first.url()})); }) == fm::errc::agent_lost);
    return;
  }
  auto [h, root] = fm::heap::attach<shelf>(without, on({first.url()}, replicas));
  require_shelf(root, books);
  require_whole(*h);  // the third agent has what the second one had
  require_ok(h->collect("with other primaries"));
  require_sound_at_home(*h);
  require_shelf(root, books);
}

TEST_CASE("an agent that was left out comes back with old memory, and is refused") {
  meddled_agent first, second, third;
  {
    fm::heap h(on({first.url(), second.url(), third.url()}, 2));
    h.detach(as_index, make_shelf(h, 10'000));
  }
  {
    auto [h, root] = fm::heap::attach<shelf>(
        {.name = the_index.name, .secret = the_index.secret, .lost = {third.url()}}, on({first.url()}, 2));
    const auto list = make_list(*h, 20'000);
    root.write()->first = list;
    root.write()->books = 20'000;
    h->detach(as_index, root);
  }
  CHECK(code_of([&] { (void)fm::heap::attach<shelf>(the_index, on({third.url()}, 2)); }) == fm::errc::stale);
  auto [h, root] = fm::heap::attach<shelf>(the_index, on({third.url(), second.url()}, 2));
  CHECK(h->agents() == std::vector<std::string>{first.url(), second.url()});
  require_shelf(root, 20'000);
  // When it is added again, its old memory gives way to what it gets now.
  h->add_agent(third.url());
  const auto more = make_some(*h, 10'000);
  h->detach(as_index, root);
  CHECK(third.store().heaps_left() == 1);
}

TEST_CASE("a detached heap is kept for so long as was said, and one that was attached as any other") {
  meddled_agent agent;
  const auto o = on({agent.url()});
  {
    fm::heap h(o);
    h.detach({.name = "index", .secret = "tell nobody", .keep_for = std::chrono::milliseconds(1)}, make_shelf(h, 100));
  }
  REQUIRE(fm::test::await([&] { return agent.store().heaps_left() == 0; }));
  CHECK(code_of([&] { (void)fm::heap::attach<shelf>(the_index, o); }) == fm::errc::not_found);
}

TEST_CASE("what was left of a heap is read again as it was written, and damage is noticed") {
  fm::detail::heap_record r;
  r.number = 3, r.id = 4, r.lineage[1] = 8, r.root = 5 * fm::detail::tablet_slots + 6, r.cycles = 7;
  r.agents = {"tcp://10.0.0.1:7070", "shm:///run/a"};
  r.types.push_back(fm::detail::descriptor_of<shelf>());
  r.types.push_back(fm::detail::array_descriptor_of<double>());
  fm::detail::replica_set set;
  set.set_primary(1);
  set.add(0);
  r.tablets = {{2, 4, set}, {9, 1, set}};
  const std::vector<std::byte> bytes = r.bytes();
  const auto again = fm::detail::heap_record::read(bytes);
  CHECK(again.bytes() == bytes);
  CHECK(again.agents == r.agents);
  CHECK(again.tablets.front().set == set);
  CHECK(again.types.front().layout == r.types.front().layout);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    REQUIRE(code_of([&] { (void)fm::detail::heap_record::read(std::span(bytes).first(n)); }) == fm::errc::corrupt);
  // Whatever one byte becomes: an error, or a record that can be written.
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (const unsigned change : {1u, 0x80u, 0xffu}) {
      std::vector<std::byte> other = bytes;
      other[i] ^= static_cast<std::byte>(change);
      std::vector<std::byte> written = other;
      const fm::errc e = code_of([&] { written = fm::detail::heap_record::read(other).bytes(); });
      REQUIRE((e == fm::errc::ok || e == fm::errc::corrupt));
      REQUIRE(written == other);
    }
  const auto damaged = [&](auto&& change) {
    auto other = r;
    change(other);
    return code_of([&] { (void)fm::detail::heap_record::read(other.bytes()); });
  };
  CHECK(damaged([](auto& d) { d.root = 4; }) == fm::errc::corrupt);
  CHECK(damaged([](auto& d) { d.agents[0] += '\n'; }) == fm::errc::corrupt);
  CHECK(damaged([](auto& d) { d.types[0].name = "b\u00fccher<\"x\">"; }) == fm::errc::ok);
  CHECK(damaged([](auto& d) { d.agents.pop_back(); }) == fm::errc::corrupt);
  CHECK(damaged([](auto& d) { d.agents.clear(); }) == fm::errc::corrupt);
  CHECK(damaged([](auto& d) { std::swap(d.tablets[0], d.tablets[1]); }) == fm::errc::corrupt);
  CHECK(damaged([](auto& d) { d.tablets[0].count = 8; }) == fm::errc::corrupt);
  CHECK(damaged([](auto& d) { d.tablets[1].count = 0; }) == fm::errc::corrupt);
  CHECK(damaged([](auto& d) { d.tablets[1].count = 1u << 31; }) == fm::errc::corrupt);
}

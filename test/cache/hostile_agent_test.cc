// An agent that changes what it stores: references of a home copy lead to what is no slot of the heap. The copy is refused with
// a typed error whichever way it comes, the program goes on, and all else is as it was.
#include "cache/object_cache.h"
#include "heap/heap_core.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <farmem/farmem.h>
#include <farmem/tasks/await.h>
#include <fmt/format.h>
#include <mutex>
#include <vector>

#include "support/await.h"
#include "support/served_store.h"

using namespace fm::literals;
using fm::detail::slot_t;

namespace {

struct link_node {
  std::uint64_t id = 0;
  fm::ref<link_node> next, other;
  std::array<std::uint64_t, 4> rest{};
};

// Over tcp:// each read passes through memory(), where the home copy can be changed.
class hostile_agent final : public fm::test::served_store {
 public:
  hostile_agent() : served_store({.memory_bytes = 64_MiB, .region_bytes = 1_MiB}) { serve(); }
  ~hostile_agent() override { stop(); }
  hostile_agent(const hostile_agent&) = delete;
  hostile_agent& operator=(const hostile_agent&) = delete;

  /// From now on word `word` of the payload of `slot` is this, in whatever is read of it. The size of objects: link_node.
  void scribble(slot_t slot, std::size_t word, std::uint64_t value) {
    const std::lock_guard lock(mutex_);
    slot_ = slot;
    word_ = word;
    value_ = value;
  }
  void stop_scribbling() { scribble(0, 0, 0); }
  /// Reads by hint are refused: owners ask by slot.
  void refuse_reads(bool on) {
    const std::lock_guard lock(mutex_);
    refuses_ = on;
  }
  /// The size class of each hint in answers by slot.
  void claim_size_class(std::uint8_t c) {
    const std::lock_guard lock(mutex_);
    size_class_ = c;
  }
  [[nodiscard]] std::uint64_t scribbled() const {
    const std::lock_guard lock(mutex_);
    return scribbled_;
  }

  std::byte* memory(fm::fabric::peer& p, const fm::fabric::remote& where, std::uint64_t bytes,
                    fm::fabric::access how) noexcept override {
    if (how == fm::fabric::access::read) {
      const std::lock_guard lock(mutex_);
      if (refuses_) return nullptr;
    }
    std::byte* const at = served_store::memory(p, where, bytes, how);
    if (at == nullptr || how != fm::fabric::access::read) return at;
    // A copy, so that what is stored stays as it is.
    const std::lock_guard lock(mutex_);
    std::vector<std::byte>& copy = copies_[next_copy_++ % copies_.size()];
    copy.assign(at, at + bytes);
    change(copy);
    return copy.data();
  }
  fm::errc message(fm::fabric::peer& p, std::span<const std::byte> payload, fm::fabric::answer& out) noexcept override {
    const fm::errc e = served_store::message(p, payload, out);
    if (e != fm::errc::ok || type_of(payload) != fm::protocol::message_type::fetch_slot) return e;
    const std::lock_guard lock(mutex_);
    change(out.payload);
    if (size_class_ != 0) {
      fm::protocol::fetch_slot_answer a{};
      const std::size_t words = sizeof(fm::protocol::answer_head) + sizeof a;
      if (out.payload.size() < words) return e;
      std::memcpy(&a, out.payload.data() + sizeof(fm::protocol::answer_head), sizeof a);
      claim(out.payload.data() + sizeof(fm::protocol::answer_head) + offsetof(fm::protocol::fetch_slot_answer, entry));
      for (std::size_t i = 0; i < a.page_entries; ++i) claim(out.payload.data() + words + i * 8);
    }
    return e;
  }

 private:
  void change(std::vector<std::byte>& bytes) {
    for (std::size_t i = 0; slot_ != 0 && i + 16 + word_ * 8 <= bytes.size(); i += 8) {
      std::uint64_t h = 0;
      std::memcpy(&h, bytes.data() + i, sizeof h);
      if (fm::detail::header::slot(h) != slot_ || fm::detail::header::type(h) == 0) continue;
      std::memcpy(bytes.data() + i + 8 + word_ * 8, &value_, sizeof value_);
      ++scribbled_;
    }
  }
  void claim(std::byte* at) const {
    std::uint64_t w = 0;
    std::memcpy(&w, at, sizeof w);
    if (!fm::detail::word::is_remote(w)) return;
    w = (w & ~std::uint64_t{0x3fc}) | std::uint64_t{size_class_} << 2;
    std::memcpy(at, &w, sizeof w);
  }

  mutable std::mutex mutex_;
  slot_t slot_ = 0;
  std::size_t word_ = 0;
  std::uint64_t value_ = 0;
  std::uint64_t scribbled_ = 0;
  bool refuses_ = false;
  std::uint8_t size_class_ = 0;
  // What is handed out is read until memory_done: by one connection, some requests at a time.
  std::array<std::vector<std::byte>, 64> copies_;
  std::size_t next_copy_ = 0;
};

fm::heap_options over(const hostile_agent& agent, bool elastic = false) {
  return {.cache = 4_MiB,
          .agents = {agent.url()},
          .segment = 64_KiB,
          .collect = false,
          .elastic = elastic,
          .access_within = std::chrono::minutes(5),
          .memory_within = std::chrono::minutes(5)};
}

constexpr std::uint64_t nodes = 200;

// Each refers to the one before.
std::vector<fm::ptr<link_node>> make_nodes(fm::heap& h) {
  std::vector<fm::ptr<link_node>> all;
  for (std::uint64_t i = 0; i < nodes; ++i) {
    all.push_back(h.make<link_node>({.id = i}));
    if (i != 0) all[i].write()->next = all[i - 1];
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  return all;
}

bool is_resident(const fm::ptr<link_node>& p) {
  return fm::detail::word::is_resident(fm::detail::word_at(p.slot()).load());
}

void require_corrupt(const std::string& url, const fm::ptr<link_node>& victim, std::uint64_t names) {
  try {
    (void)victim->id;
    FAIL("a copy that refers to " << names << " was believed");
  } catch (const fm::error& e) {
    INFO(e.what());
    CHECK(e.code() == fm::errc::corrupt);
    const std::string text = e.what();
    CHECK(text.find(fmt::format("{:#x}", victim.slot())) != std::string::npos);
    CHECK(text.find(fmt::format("{:#x}", names)) != std::string::npos);
    CHECK(text.find(url) != std::string::npos);
  }
  CHECK_FALSE(is_resident(victim));
}

void require_sound(fm::heap& h, const std::vector<fm::ptr<link_node>>& all) {
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    REQUIRE(all[i]->id == i);
    if (i != 0) REQUIRE(all[i]->next->id == i - 1);
  }
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

// A slot that cannot be, one of a tablet that nobody has, and one of another heap.
std::vector<std::uint64_t> foreign_slots(const fm::ptr<link_node>& of_another) {
  return {std::uint64_t{1} << 47, ~std::uint64_t{0}, fm::detail::hit.slots - 1, of_another.slot()};
}

struct two_heaps {
  fm::heap other{{.cache = 1_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 32_KiB, .collect = false}};
  fm::ptr<link_node> of_other = other.make<link_node>();
};

}  // namespace

TEST_CASE("a home copy that is read by hint and refers to no slot of the heap is corrupt, and nothing else is lost") {
  const two_heaps another;
  hostile_agent agent;
  fm::heap h(over(agent));
  const auto all = make_nodes(h);
  for (const std::uint64_t bad : foreign_slots(another.of_other))
    for (const std::size_t field : {1, 2}) {
      agent.scribble(all[7].slot(), field, bad);
      require_corrupt(agent.url(), all[7], bad);
      require_corrupt(agent.url(), all[8]->next, bad);
      CHECK_THROWS_AS(all[7].write(), fm::error);
      CHECK(all[6]->id == 6);
      agent.stop_scribbling();
      CHECK(all[7]->id == 7);
      REQUIRE(h.evict_all() == fm::errc::ok);
    }
  CHECK(h.stats().misses_by_slot == 0);
  CHECK(agent.scribbled() != 0);
  require_sound(h, all);
}

TEST_CASE("a home copy that comes with an answer by slot and refers to no slot of the heap is corrupt") {
  const two_heaps another;
  hostile_agent agent;
  fm::heap h(over(agent));
  const auto all = make_nodes(h);
  const bool unknown = GENERATE(false, true);
  agent.refuse_reads(true);
  for (const std::uint64_t bad : foreign_slots(another.of_other)) {
    if (unknown) {
      const fm::detail::section in_section;
      fm::detail::word_at(all[7].slot()).store(fm::detail::word::unknown);
    }
    const auto before = h.stats().misses_by_slot;
    agent.scribble(all[7].slot(), 1, bad);
    require_corrupt(agent.url(), all[7], bad);
    CHECK(h.stats().misses_by_slot > before);
    agent.stop_scribbling();
    CHECK(all[7]->id == 7);
    REQUIRE(h.evict_all() == fm::errc::ok);
  }
  agent.refuse_reads(false);
  require_sound(h, all);
}

TEST_CASE("a neighbour that refers to no slot of the heap is not installed, and those around it are") {
  const two_heaps another;
  hostile_agent agent;
  fm::heap h(over(agent, true));
  const auto all = make_nodes(h);
  for (const std::uint64_t bad : foreign_slots(another.of_other)) {
    agent.scribble(all[60].slot(), 1, bad);
    const auto before = h.stats().elastic_installs;
    for (std::uint64_t i = 0; i < nodes; ++i)
      if (i != 60) REQUIRE(all[i]->id == i);
    // Windows have grown to many objects by then, and came over it.
    CHECK(h.stats().elastic_installs - before > nodes / 2);
    CHECK(is_resident(all[59]));
    CHECK(is_resident(all[61]));
    require_corrupt(agent.url(), all[60], bad);
    agent.stop_scribbling();
    CHECK(all[60]->id == 60);
    REQUIRE(h.evict_all() == fm::errc::ok);
  }
  require_sound(h, all);
}

TEST_CASE("a prefetched home copy that refers to no slot of the heap is not installed, and who awaits it hears of it") {
  const two_heaps another;
  hostile_agent agent;
  fm::heap h(over(agent));
  const auto all = make_nodes(h);
  for (const std::uint64_t bad : foreign_slots(another.of_other)) {
    agent.scribble(all[7].slot(), 2, bad);
    REQUIRE(fm::prefetch(all[7]));
    REQUIRE(fm::prefetch(all[9]));
    REQUIRE(fm::test::await([&] {
      h.core().cache().detached().poll();
      const auto w = fm::detail::word_at(all[7].slot()).load();
      return !fm::detail::word::is_fetching(w) && is_resident(all[9]);
    }));
    CHECK_FALSE(is_resident(all[7]));
    require_corrupt(agent.url(), all[7], bad);
    fm::errc seen = fm::errc::ok;
    const auto awaits = [&]() -> fm::task<void> {
      try {
        (void)(co_await all[7].fetch())->id;
      } catch (const fm::error& e) {
        seen = e.code();
      }
    };
    fm::run(awaits());
    CHECK(seen == fm::errc::corrupt);
    agent.stop_scribbling();
    CHECK(all[7]->id == 7);
    REQUIRE(h.evict_all() == fm::errc::ok);
  }
  require_sound(h, all);
}

TEST_CASE("an array of references is looked through to its end") {
  hostile_agent agent;
  fm::heap h(over(agent));
  const auto target = h.make<link_node>({.id = 1});
  const auto refs = h.array<fm::ref<link_node>>(1000);
  {
    const auto pin = refs.write();
    (*pin)[999] = target;
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  agent.scribble(refs.slot(), 1 + 999, std::uint64_t{1} << 47);
  try {
    (void)refs.read();
    FAIL("the last reference was believed");
  } catch (const fm::error& e) {
    INFO(e.what());
    CHECK(e.code() == fm::errc::corrupt);
  }
  agent.stop_scribbling();
  const auto pin = refs.read();
  CHECK((*pin)[999]->id == 1);
}

TEST_CASE("a collection that meets a home copy with a foreign reference fails typed, and the next one is right") {
  hostile_agent agent;
  fm::heap h(over(agent));
  const auto all = make_nodes(h);
  h.core().gc().trace_by(fm::detail::tracing::compute_node);
  agent.scribble(all[7].slot(), 1, std::uint64_t{1} << 47);
  const auto failed = h.collect("hostile");
  CHECK_FALSE(failed.ok());
  CHECK(failed.status == fm::errc::corrupt);
  agent.stop_scribbling();
  const auto r = h.collect("honest");
  INFO(r.text());
  CHECK(r.ok());
  require_sound(h, all);
}

TEST_CASE("a hint to an object larger than any of the heap is corrupt, and nothing is evicted for it") {
  hostile_agent agent;
  fm::heap h(over(agent));
  const auto all = make_nodes(h);
  const std::uint8_t impossible = GENERATE(std::uint8_t{255}, fm::detail::size_class::of(2_MiB));
  {
    const fm::detail::section in_section;
    for (const auto& p : all) fm::detail::word_at(p.slot()).store(fm::detail::word::unknown);
  }
  agent.claim_size_class(impossible);
  CHECK(all[0]->id == 0);  // its copy came with the answer
  agent.claim_size_class(0);
  try {
    (void)all[1]->id;
    FAIL("an impossible size was believed");
  } catch (const fm::error& e) {
    INFO(e.what());
    CHECK(e.code() == fm::errc::corrupt);
  }
  CHECK_FALSE(fm::prefetch(all[2]));
  CHECK(is_resident(all[0]));
}

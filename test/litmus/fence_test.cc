// Litmus programs for each place that relies on the asymmetric fence (farmem/detail/sync.h): one side stores without a fence and looks,
// the other stores, executes the heavy fence, and looks. They must not both see what was before. Each is the pattern of its place
// with plain cells, once with the heavy fence and once without. At the end are the real functions.
#include <farmem/detail/barriers/epoch.h>

#include "runner.h"

namespace {

using namespace fm::litmus;
using fm::os::heavy_fence;
using fm::os::light_fence;

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto seq_cst = std::memory_order_seq_cst;

// As the code does where the sanitizer must see the order.
void announce(cell& c, std::uint64_t v) {
#if FM_TSAN
  c.value.exchange(v, seq_cst);
#else
  c.value.store(v, relaxed);
#endif
}

template <bool Fenced>
void maybe_heavy_fence() {
  if constexpr (Fenced) heavy_fence();
}

// epochs::enter against epochs::try_pass: a thread that is not seen in a section has not read the old word.
template <bool Fenced>
struct section_and_pass {
  cell epoch, word;
  std::uint64_t read = 0, seen = 0;
  void left() {
    announce(epoch, 1);
    light_fence();
    read = word.value.load(acquire);
  }
  void right() {
    word.value.store(1, relaxed);
    maybe_heavy_fence<Fenced>();
    seen = epoch.value.load(acquire);
  }
  [[nodiscard]] bool is_forbidden() const { return read == 0 && seen == 0; }
  void reset() { epoch.value = word.value = 0; }
};

// epochs::enter against epochs::pause: a thread that found the gate open is seen in its section.
template <bool Fenced>
struct section_and_gate {
  cell epoch, gate;
  std::uint64_t held = 0, seen = 0;
  void left() {
    announce(epoch, 1);
    light_fence();
    held = gate.value.load(relaxed);
  }
  void right() {
    gate.value.fetch_or(1, seq_cst);
    maybe_heavy_fence<Fenced>();
    seen = epoch.value.load(acquire);
  }
  [[nodiscard]] bool is_forbidden() const { return held == 0 && seen == 0; }
  void reset() { epoch.value = gate.value = 0; }
};

// epochs::enter against the looks that watch a thread no more: a section that is not seen has found the flag cleared.
template <bool Fenced>
struct section_and_look {
  cell epoch, cleared;
  std::uint64_t found = 0, seen = 0;
  void left() {
    announce(epoch, 1);
    light_fence();
    found = cleared.value.load(relaxed);
  }
  void right() {
    cleared.value.store(1, relaxed);
    maybe_heavy_fence<Fenced>();
    seen = epoch.value.load(acquire);
  }
  [[nodiscard]] bool is_forbidden() const { return found == 0 && seen == 0; }
  void reset() { epoch.value = cleared.value = 0; }
};

// A section that uses what it leases against lease_book::round: who is not seen in a section has found the limit null.
template <bool Fenced>
struct section_and_limit {
  cell epoch, limit;
  std::uint64_t own = 0, seen = 0, is_null = 0;
  void left() {
    announce(epoch, 1);
    light_fence();
    own = limit.value.load(relaxed);
  }
  void right() {
    limit.value.store(0, relaxed);
    maybe_heavy_fence<Fenced>();
    seen = epoch.value.load(acquire);
    is_null = limit.value.load(relaxed) == 0;
  }
  [[nodiscard]] bool is_forbidden() const { return own != 0 && seen == 0 && is_null != 0; }
  void reset() {
    epoch.value = 0;
    limit.value = 1;
  }
};

// mutator::begin_new and end_new against lease_book::round: who writes a new object outside of sections, and then enters one, is seen
// as the one or as the other all the while.
template <bool Fenced>
struct new_object_and_limit {
  cell writes_new, epoch, limit;
  std::uint64_t own = 0, is_idle = 0;
  void left() {
    announce(writes_new, 1);
    light_fence();
    own = limit.value.load(relaxed);
    announce(epoch, 1);
    light_fence();
    writes_new.value.store(0, release);
  }
  void right() {
    limit.value.store(0, relaxed);
    maybe_heavy_fence<Fenced>();
    is_idle = writes_new.value.load(acquire) == 0 && epoch.value.load(acquire) == 0;
  }
  [[nodiscard]] bool is_forbidden() const { return own != 0 && is_idle != 0; }
  void reset() {
    writes_new.value = epoch.value = 0;
    limit.value = 1;
  }
};

// A thread that has waited while it read nothing, against epochs::readers_passed: if it is taken for one that reads nothing, it sees
// that the region is gone before it reads.
template <bool Fenced>
struct reads_nothing_and_region {
  cell reads_nothing, region;
  std::uint64_t readable = 0, was_passed = 0;
  void left() {
    announce(reads_nothing, 0);
    light_fence();
    readable = region.value.load(acquire);
  }
  void right() {
    region.value.store(0, relaxed);
    maybe_heavy_fence<Fenced>();
    was_passed = reads_nothing.value.load(acquire);
  }
  [[nodiscard]] bool is_forbidden() const { return readable != 0 && was_passed != 0; }
  void reset() { reads_nothing.value = region.value = 1; }
};

// A handle that is copied and then overwritten, against snapshot::find_roots: if the thread found marking off, and so did not log, the
// scan finds the handle or its copy. The section of the log is entered in between.
template <bool Fenced>
struct root_and_marking {
  cell original, copy, marking, epoch;
  std::uint64_t was_logged = 0, found = 0;
  void left() {
    copy.value.store(7, relaxed);
    announce(epoch, 1);
    light_fence();
    was_logged = marking.value.load(relaxed);
    epoch.value.store(0, release);
    if (was_logged == 0) original.value.store(0, relaxed);
  }
  void right() {
    marking.value.store(1, relaxed);
    maybe_heavy_fence<Fenced>();
    found = copy.value.load(acquire);
    found |= original.value.load(acquire);
  }
  [[nodiscard]] bool is_forbidden() const { return was_logged == 0 && found == 0; }
  void reset() {
    copy.value = marking.value = epoch.value = 0;
    original.value = 7;
  }
};

// The real functions. A stamp that has passed: whoever was in a section then has left it.
struct real_pass {
  cell word, reclaimed;
  std::uint64_t read = 0, used = 0;
  void left() {
    fm::detail::epochs::enter();
    read = word.value.load(acquire);
    used = reclaimed.value.load(acquire);
    fm::detail::epochs::leave();
  }
  void right() {
    word.value.store(1, relaxed);
    if (fm::detail::epochs::try_pass(fm::detail::epochs::stamp())) reclaimed.value.store(1, release);
  }
  [[nodiscard]] bool is_forbidden() const { return read == 0 && used != 0; }
  void reset() { word.value = reclaimed.value = 0; }
};

// The same of a thread that looks pass over when its section begins, or are about to.
struct real_pass_of_quiet : real_pass {
  void right() {
    real_pass::right();
    for (int i = 0; i <= fm::detail::limits::looks_until_quiet; ++i)
      fm::detail::epochs::try_pass(fm::detail::epochs::stamp());
  }
};

// A pause: nobody is in a section while it runs.
struct real_pause {
  cell inside;
  std::uint64_t seen = 0;
  void left() {
    fm::detail::epochs::enter();
    inside.value.store(1, relaxed);
    fm::detail::cpu_relax();
    inside.value.store(0, relaxed);
    fm::detail::epochs::leave();
  }
  void right() {
    seen = 0;
    fm::detail::epochs::pause(
        std::chrono::microseconds(100),
        [](void* self) {
          auto& p = *static_cast<real_pause*>(self);
          for (int i = 0; i < 16; ++i) p.seen |= p.inside.value.load(acquire);
        },
        this);
  }
  [[nodiscard]] bool is_forbidden() const { return seen != 0; }
  void reset() { inside.value = 0; }
};

template <class Program>
void require_never(const char* name) {
  Program p;
  const outcome o = run(p);
  if (seconds_by_hand() != 0)
    std::printf("litmus %s: %llu of %llu\n", name, static_cast<unsigned long long>(o.forbidden),
                static_cast<unsigned long long>(o.rounds));
  CHECK(o.rounds != 0);
  CHECK(o.forbidden == 0);
}

}  // namespace

TEST_CASE("a thread that is not seen in a section has not read what was changed before") {
  require_ordered<section_and_pass>("section_and_pass");
}
TEST_CASE("a thread that is not seen in a section finds that it is watched no more") {
  require_ordered<section_and_look>("section_and_look");
}
TEST_CASE("a thread that finds the gate open is seen in its section") {
  require_ordered<section_and_gate>("section_and_gate");
}
TEST_CASE("a thread that is not seen in a section has not used what it is taken from") {
  require_ordered<section_and_limit>("section_and_limit");
}
TEST_CASE("a thread that writes a new object is not taken from, nor when it goes on in a section") {
  require_ordered<new_object_and_limit>("new_object_and_limit");
}
TEST_CASE("a thread that was seen to read nothing reads nothing of a region that was given back") {
  require_ordered<reads_nothing_and_region>("reads_nothing_and_region");
}
TEST_CASE("a handle that is overwritten without being logged is found, or its copy is") {
  require_ordered<root_and_marking>("root_and_marking");
}
TEST_CASE("nobody is in a section that began before a stamp that has passed") { require_never<real_pass>("real_pass"); }
TEST_CASE("nobody is in a section that began before a stamp that has passed, however long it was outside of sections") {
  require_never<real_pass_of_quiet>("real_pass_of_quiet");
}
TEST_CASE("nobody is in a section during a pause") { require_never<real_pause>("real_pause"); }

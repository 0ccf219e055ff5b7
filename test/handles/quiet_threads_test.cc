// Threads that are outside of sections for long: looks pass over them, and their next sections are seen as any.
#include <farmem/farmem.h>

#include <catch2/catch.hpp>
#include <thread>

#include "base/limits.h"
#include "support/await.h"

namespace {

namespace epochs = fm::detail::epochs;
using fm::detail::thread_state;

void look_often() {
  for (int i = 0; i <= fm::detail::limits::looks_until_quiet; ++i) epochs::try_pass(epochs::stamp());
}

/// A thread that does one thing after the other, when it is told to.
class stepped {
 public:
  template <class... Steps>
  explicit stepped(Steps... steps)
      : thread_([this, steps...] {
          state_ = &fm::detail::this_thread;
          int i = 0;
          ((await_step(++i), steps(), done_.store(i)), ...);
          await_step(++i);
        }) {}
  ~stepped() {
    step_ = 1000;
    thread_.join();
  }
  stepped(const stepped&) = delete;
  stepped& operator=(const stepped&) = delete;

  void begin_next() { ++step_; }
  void next() {
    begin_next();
    REQUIRE(has_done_all());
  }
  bool has_done_all() {
    return fm::test::await([&] { return done_ == step_; });
  }
  [[nodiscard]] bool has_done() const { return done_ == step_; }
  [[nodiscard]] bool is_watched() const { return state_.load()->watched.load(); }

 private:
  void await_step(int i) {
    fm::test::await([&] { return step_ >= i; });
  }
  std::atomic<int> step_{0}, done_{0};
  std::atomic<thread_state*> state_{nullptr};
  std::thread thread_;
};

void one_section() {
  epochs::enter();
  epochs::leave();
}

}  // namespace

TEST_CASE("a thread that is outside of sections for many looks is watched no more, until its next section") {
  stepped t(
      one_section, [] { epochs::enter(); }, [] { epochs::leave(); });
  t.next();
  CHECK(t.is_watched());
  look_often();
  CHECK_FALSE(t.is_watched());
  look_often();
  t.next();  // in a section now
  CHECK(t.is_watched());
  const std::uint64_t stamp = epochs::stamp();
  look_often();
  CHECK_FALSE(epochs::try_pass(stamp));
  t.next();
  CHECK(epochs::try_pass(stamp));
}

TEST_CASE("a section stays watched however long it is") {
  stepped t([] { epochs::enter(); }, [] { epochs::leave(); });
  t.next();
  const std::uint64_t stamp = epochs::stamp();
  for (int i = 0; i < 5; ++i) look_often();
  CHECK(t.is_watched());
  CHECK_FALSE(epochs::try_pass(stamp));
  t.next();
}

TEST_CASE("a pause holds back the next section of a thread that is watched no more") {
  stepped t(one_section, one_section);
  t.next();
  look_often();
  REQUIRE_FALSE(t.is_watched());
  bool entered = true;
  struct work {
    stepped* t;
    bool* entered;
  } w{&t, &entered};
  REQUIRE(epochs::pause(
      std::chrono::seconds(10),
      [](void* context) {
        auto& in = *static_cast<work*>(context);
        in.t->begin_next();
        // It announces itself before it finds the gate closed, and is watched by then.
        const bool watched = fm::test::await([&] { return in.t->is_watched(); });
        *in.entered = !watched || in.t->has_done();
      },
      &w));
  CHECK_FALSE(entered);
  CHECK(t.has_done_all());
}

TEST_CASE("every thread is visited, watched or not, and goes when it ends") {
  const auto count = [] {
    int n = 0;
    epochs::for_each_thread([](thread_state&, void* sum) { ++*static_cast<int*>(sum); }, &n);
    return n;
  };
  one_section();
  const int before = count();
  {
    stepped quiet(one_section), other(one_section);
    quiet.next();
    look_often();
    REQUIRE_FALSE(quiet.is_watched());
    other.next();
    CHECK(count() == before + 2);
  }
  CHECK(count() == before);
}

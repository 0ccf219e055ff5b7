// Who of a pool's two agents serves, by the promises that the backup has given. Time is the test's.
#include "agent/pools/membership.h"

#include <catch2/catch.hpp>
#include <random>

using namespace fm;
using namespace fm::agent;
using std::chrono::milliseconds;

namespace {

constexpr duration tenure = milliseconds(1000), lease = milliseconds(250);
time_point at(int ms) { return time_point(std::chrono::hours(1)) + milliseconds(ms); }

}  // namespace

TEST_CASE("a primary without a backup serves, and a paired one as long as it was promised") {
  pair_membership p(pair_role::alone, 1, tenure);
  CHECK(p.serves(at(0), lease));
  CHECK(p.serves(at(1'000'000), lease));
  p.join(2, at(0));
  CHECK(p.role() == pair_role::paired);
  CHECK(p.term() == 2);
  CHECK(p.serves(at(700), lease));
  CHECK_FALSE(p.serves(at(760), lease));
  p.promised(at(500));
  CHECK(p.serves(at(1200), lease));
  p.promised(at(100));  // an older answer
  CHECK(p.serves(at(1200), lease));
  CHECK_FALSE(p.serves(at(1260), lease));
  p.go_on_alone(2);  // no later term
  CHECK_FALSE(p.serves(at(1260), lease));
  p.go_on_alone(3);
  CHECK(p.serves(at(1'000'000), lease));
  p.end();
  CHECK_FALSE(p.serves(at(0), lease));
  p.join(4, at(0));
  p.promised(at(0));
  p.go_on_alone(5);
  CHECK(p.role() == pair_role::over);
}

TEST_CASE("a backup takes over from silence alone, and promises nothing while it does") {
  pair_membership b(pair_role::learning, 1, tenure);
  CHECK(b.hear(at(0)));
  CHECK(b.become_backup(2, at(0)));
  CHECK_FALSE(b.begin_taking_over(at(999)));
  CHECK(b.hear(at(900)));
  CHECK_FALSE(b.begin_taking_over(at(1999)));
  CHECK_FALSE(b.begin_taking_over(at(1901)));  // a little longer than was promised
  CHECK(b.silent_until() == at(1900) + tenure / 8);
  CHECK(b.begin_taking_over(b.silent_until()));
  CHECK_FALSE(b.hear(at(2100)));
  CHECK_FALSE(b.become_backup(3, at(2100)));
  CHECK_FALSE(b.serves(at(2100), lease));
  b.take_over(2);
  CHECK(b.role() == pair_role::backup);
  b.take_over(3);
  CHECK(b.role() == pair_role::alone);
  CHECK(b.serves(at(2100), lease));
  CHECK_FALSE(b.hear(at(2200)));
}

TEST_CASE("a primary that leaves serves no more, and its backup need not wait for silence") {
  pair_membership p(pair_role::alone, 1, tenure), b(pair_role::learning, 1, tenure);
  CHECK_FALSE(p.leave());  // nobody has what it has
  CHECK_FALSE(b.primary_has_left(1));
  CHECK(b.hear(at(0)));
  CHECK(b.become_backup(2, at(0)));
  p.join(2, at(0));
  CHECK(p.leave());
  CHECK(p.role() == pair_role::leaving);
  CHECK_FALSE(p.is_primary());
  p.promised(at(100));
  CHECK_FALSE(p.serves(at(100), duration{}));
  CHECK_FALSE(b.primary_has_left(1));  // said in an earlier term
  CHECK_FALSE(b.begin_taking_over(at(100)));
  CHECK(b.primary_has_left(2));
  CHECK(b.is_left());
  CHECK_FALSE(b.hear(at(100)));
  CHECK(b.begin_taking_over(at(100)));
  b.take_over(3);
  CHECK(b.serves(at(100), lease));
  // One that is told by the arbiter that it goes on is the primary again.
  pair_membership q(pair_role::alone, 1, tenure);
  q.join(2, at(0));
  CHECK(q.leave());
  q.go_on_alone(3);
  CHECK(q.role() == pair_role::alone);
  CHECK(q.serves(at(1'000'000), lease));
}

TEST_CASE("of two agents at most one serves, whatever is late and whichever message is lost") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    pair_membership p(pair_role::alone, 1, tenure), b(pair_role::learning, 1, tenure);
    bool told = false;
    std::vector<std::pair<int, int>> to_b, to_p;  // when it arrives, and when what it answers was sent
    const auto late = [&](int now) {
      return now + static_cast<int>(random() % 3 == 0 ? random() % 1500 : random() % 60);
    };
    REQUIRE(b.hear(at(0)));
    p.join(2, at(0));
    for (int now = 0; now < 12'000; now += 5) {
      if (random() % 8 == 0 && p.is_primary()) to_b.emplace_back(late(now), now);
      for (auto& [when, sent] : to_b) {
        if (when > now || when < 0) continue;
        when = -1;
        if (random() % 4 == 0) continue;
        const bool heard = told ? b.hear(at(now)) : b.become_backup(2, at(now));
        told = told || heard;
        if (heard) to_p.emplace_back(late(now), sent);
      }
      for (auto& [when, sent] : to_p) {
        if (when > now || when < 0) continue;
        when = -1;
        p.promised(at(sent));
      }
      // A primary that hears nothing for very long, or says nothing: the backup asks, and is told.
      if (random() % 50 == 0 && b.begin_taking_over(at(now))) b.take_over(3);
      REQUIRE_FALSE((p.serves(at(now), duration{}) && b.serves(at(now), duration{})));
    }
  }
}

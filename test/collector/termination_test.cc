// When marking by agents is over, by what they answer; src/collector/marking/termination.h says why.
#include "collector/marking/termination.h"

#include <catch2/catch.hpp>

using fm::detail::termination_rounds;
using fm::protocol::trace_counts;

namespace {

struct answer {
  bool idle = true;
  bool given = false;
  std::uint64_t sent = 0, received = 0;
};

/// Whether marking is over after this termination round of agents that talk.
bool round(termination_rounds& w, const std::vector<answer>& answers, bool owner_has = false) {
  w.begin(owner_has);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const trace_counts c{answers[i].sent, answers[i].received, 0, 0, 0};
    w.answered(i, answers[i].idle, answers[i].given, &c);
  }
  return w.end();
}

}  // namespace

TEST_CASE("one quiet round is enough where no remote references were sent") {
  termination_rounds w(2);
  CHECK_FALSE(round(w, {{.idle = false}, {}}));
  CHECK_FALSE(round(w, {{}, {.given = true}}));
  CHECK_FALSE(round(w, {{}, {}}, true));
  CHECK(round(w, {{}, {}}));
  w.begin(false);
  w.answered(0, true, false, nullptr);  // agents that do not talk
  w.answered(1, false, false, nullptr);
  CHECK_FALSE(w.end());
  w.begin(false);
  w.answered(0, true, false, nullptr);
  w.answered(1, true, false, nullptr);
  CHECK(w.end());
}

TEST_CASE("where remote references were sent it takes two quiet rounds in a row with the same counts") {
  termination_rounds w(2);
  const std::vector<answer> same{{.sent = 3, .received = 1}, {.sent = 1, .received = 3}};
  CHECK_FALSE(round(w, same));
  CHECK(w.quiet());
  CHECK_FALSE(w.agents_exchange());
  SECTION("and then it is over") { CHECK(round(w, same)); }
  SECTION("one agent has received more, and is idle again") {
    CHECK_FALSE(round(w, {{.sent = 3, .received = 2}, {.sent = 1, .received = 3}}));
    CHECK(w.agents_exchange());
    CHECK_FALSE(round(w, {{.sent = 3, .received = 2}, {.sent = 2, .received = 3}}));
    CHECK(round(w, {{.sent = 3, .received = 2}, {.sent = 2, .received = 3}}));
  }
  SECTION("one is busy in between") {
    CHECK_FALSE(round(w, {{.idle = false, .sent = 3, .received = 1}, {.sent = 1, .received = 3}}));
    CHECK_FALSE(round(w, same));
    CHECK(round(w, same));
  }
  SECTION("one is sent something") {
    CHECK_FALSE(round(w, {{.given = true, .sent = 3, .received = 1}, {.sent = 1, .received = 3}}));
    CHECK_FALSE(round(w, same));
    CHECK(round(w, same));
  }
  SECTION("the owner has something") {
    CHECK_FALSE(round(w, same, true));
    CHECK_FALSE(round(w, same));
    CHECK(round(w, same));
  }
  SECTION("somebody gives a peer up") {
    w.begin(false);
    const trace_counts lost{3, 1, 2, 1, 0}, other{1, 3, 0, 0, 0};
    CHECK(w.answered(0, true, false, &lost));
    CHECK_FALSE(w.answered(1, true, false, &other));
    CHECK_FALSE(w.end());
  }
}

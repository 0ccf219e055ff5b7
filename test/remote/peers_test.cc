// What an owner's agent session says and hears of agents that talk to each other: the bytes of the message, and answers
// of older agents and of ones that do not follow the protocol.
#include "fixture.h"

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using namespace fm::remote;
using namespace fm::remote::test;

namespace {

std::vector<std::byte> bytes_of(std::initializer_list<unsigned> b) {
  std::vector<std::byte> v;
  for (const unsigned n : b) v.push_back(static_cast<std::byte>(n));
  return v;
}

}  // namespace

TEST_CASE("what a link tells an agent of others, byte by byte") {
  std::vector<std::byte> body;
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t, std::span<const std::byte> b) {
    if (t != message_type::trace_peers) return verdict{};
    body.assign(b.begin(), b.end());
    return verdict{verdict::refuse, errc::refused};
  };
  x.open();
  const trace_peer one{"tcp://a:1", {1, 2}, {3, 4}, {{5, 6}, {7, 1}}}, other{"shm://12345678", {9, 8}, {7, 6}, {}};
  CHECK(x.l->trace_peers(3, std::vector{one, other}, soon()) == errc::refused);
  CHECK(body ==
        bytes_of({3,   0,   0,   0,   0,   0,   0,   0,   2,   0,   0,   0,   0,   0,   0, 0,  // the cycle, two peers
                  1,   0,   0,   0,   0,   0,   0,   0,   2,   0,   0,   0,   0,   0,   0, 0,  // the heap there
                  3,   0,   0,   0,   0,   0,   0,   0,   4,   0,   0,   0,   0,   0,   0, 0,  // the ticket
                  2,   0,   0,   0,   9,   0,   0,   0,  // two ranges, nine characters
                  5,   0,   0,   0,   6,   0,   0,   0,   7,   0,   0,   0,   1,   0,   0, 0,  //
                  't', 'c', 'p', ':', '/', '/', 'a', ':', '1', 0,   0,   0,   0,   0,   0, 0,
                  9,   0,   0,   0,   0,   0,   0,   0,   8,   0,   0,   0,   0,   0,   0, 0,  //
                  7,   0,   0,   0,   0,   0,   0,   0,   6,   0,   0,   0,   0,   0,   0, 0,  //
                  0,   0,   0,   0,   14,  0,   0,   0,                                        //
                  's', 'h', 'm', ':', '/', '/', '1', '2', '3', '4', '5', '6', '7', '8', 0, 0}));
  // What is too much for a message is left out, and goes through the owner.
  trace_peer wide = one;
  for (std::uint32_t i = 0; i < 200'000; ++i) wide.tablets.push_back({2 * i, 1});
  CHECK(x.l->trace_peers(3, std::vector{wide, other}, soon()) == errc::refused);
  CHECK(body.size() <= (1 << 20) - 4096 + sizeof(peers_body));
  CHECK(body.size() > 1'000'000);
  peers_body head;
  std::memcpy(&head, body.data(), sizeof head);
  CHECK(head.count == 1);
  const std::vector<trace_peer> many(trace_peers_max + 10, other);
  CHECK(x.l->trace_peers(3, many, soon()) == errc::refused);
  std::memcpy(&head, body.data(), sizeof head);
  CHECK(head.count == trace_peers_max);
}

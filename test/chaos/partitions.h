// A network of the test's own, in which packets to or from an agent's port are dropped as a broken switch drops them: no
// connection is reset, and nobody is told.
//
// Invariant: the machine's own network stays as it is. The test and the agents that it starts are in a network namespace
// with nothing but a loopback device, and it ends with them.
//
// nft drops the packets. Where namespaces or nft are not to be had, enter() says so and the caller tests less.
#pragma once

#include <string>

namespace chaos {

enum class cut : unsigned { to_agent = 1, from_agent = 2, both = 3 };

class network {
 public:
  /// The calling thread, and what it starts from now on, has a network of its own. Before the test has begun any thread
  /// or process. Empty: done; else why not.
  static std::string enter();
  /// Drops what goes to, or comes from, an address like tcp://127.0.0.1:7070.
  static void drop(const std::string& url, cut which);
  static void mend();
};

}  // namespace chaos

// The network of the simulation: agents and listeners of channels by name, the sessions to them (sim://NAME), and what
// goes wrong with both.
//
// A session is a transport like the others (src/fabric/client/driver.h). Every lane has threads that carry its requests out one after
// the other, each with a delay on the way there and one on the way back; so lanes and sessions overtake each other, and
// what is posted together on a lane is done in any order that the fabric's promises leave open. One-sided operations are done
// in pieces, on memory that is mapped here, as over shm:// and RDMA: no agent checks anything at that moment. A break at any
// moment loses what is on its way, there or back.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include "fabric/transport/transport.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fm::sim {

/// How long things take, and how often they go wrong. Times in ns.
struct network_options {
  std::uint64_t delay_min = 2'000, delay_max = 20'000;  ///< one way
  std::uint32_t slow_one_in = 64;                       ///< requests of which one way takes up to `slow_max`
  std::uint64_t slow_max = 2'000'000;
  std::uint32_t control_slow_one_in = 0;  ///< the same on the control lane, up to ten times as long
  std::uint32_t piece_bytes = 256;        ///< of one-sided operations
  std::uint32_t piece_slow_one_in = 64;   ///< pieces before which a one-sided operation rests, for up to `slow_max`
  std::uint32_t repeat_one_in = 16;       ///< index messages that come again later, and whose second answer is lost
  std::uint32_t refuse_one_in = 0;        ///< writes and index messages that fail for good, and are not done
  bool mapped = true;                     ///< session::direct gives memory out, as over shm://
};

class network;

/// A connection's other end, or what can break it.
class breakable {
 public:
  virtual ~breakable() = default;
  [[nodiscard]] virtual const std::string& host() const noexcept = 0;
  virtual void break_now() noexcept = 0;
  /// Whether notices were taken for it that its owner has not handled yet.
  [[nodiscard]] virtual bool has_notices() const noexcept = 0;
};

/// The one network of the process.
class network {
 public:
  static network& get();

  network_options options;

  /// A service of this name answers from now on: an agent's, or that of channels (fabric::listen).
  void add(const std::string& host, fabric::service& s);
  /// It does not any more: its connections break, and when this returns nobody calls the service.
  void remove(const std::string& host);
  /// The same when its peers have handled the notices that were given to them, or when the deadline is over.
  void remove_after_last_words(const std::string& host, time_point deadline);
  /// Breaks a random connection.
  void break_one();

  // ---- for sessions ----
  /// The service of a name, entered, or null. Whoever enters leaves.
  fabric::service* enter(const std::string& host);
  void leave(const std::string& host);
  void add(breakable& b);
  void remove(breakable& b);
  /// How long the next way takes.
  [[nodiscard]] std::uint64_t way(fabric::lane on) const;

  struct counters {
    std::uint64_t requests = 0, repeated = 0, breaks = 0, lost_on_the_way = 0;
  } counts;

 private:
  struct node {
    fabric::service* service = nullptr;
    std::uint32_t connections = 0;
  };
  std::mutex mutex_;
  std::condition_variable left_;
  std::map<std::string, node> nodes_;
  std::vector<breakable*> sessions_;
};

}  // namespace fm::sim

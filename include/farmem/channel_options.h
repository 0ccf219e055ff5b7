// What channels are opened with, and what they tell.
#pragma once

#include <farmem/units.h>
#include <string>

namespace fm {

/// When a send is over.
enum class delivery : std::uint8_t {
  accepted,  ///< the receiver has it: complete, checked, in its heap. Errors of the receiver are thrown by the send
  sent,  ///< it is on its way, within the receiver's window. Errors of the receiver are thrown by a later call, or by flush
};

/// Options of a channel; both ends have their own. The smaller window and part count.
struct channel_options {
  /// Bytes that may be on their way to this end and not received yet; credit. Over shm:// each direction of a channel has shared memory
  /// of that size, taken as it is used and kept until the channel goes.
  std::uint64_t window = 8ull << 20;
  std::uint32_t window_parts = 64;  ///< parts, small graphs that is, likewise; at most 64
  std::uint32_t part =
      256u << 10;  ///< bytes that a large graph travels in; 1 KiB to 512 KiB, at most a quarter of the window
  std::uint64_t objects_max = 1ull << 32;  ///< of a graph that this end takes
  std::uint64_t bytes_max = 1ull << 40;    ///< of a graph that this end takes
  duration connect_within = std::chrono::seconds(5);
  duration linger = std::chrono::seconds(1);  ///< close() waits so long for what was sent and is not accepted yet
  bool insecure = false;                      ///< listen on a plaintext TCP address that is not loopback
  std::uint32_t channels_max = 256;           ///< of a listener, at once
};

struct send_options {
  delivery until = delivery::accepted;
  bool acyclic =
      false;  ///< the graph is a tree: nothing is looked up. What is referred to twice is sent twice, and a cycle
              ///< ends at objects_max or bytes_max, with too_large
  duration within = std::chrono::seconds(30);  ///< then timed_out, and the receiver is told
  std::uint64_t objects_max = 1ull << 32;      ///< of this graph, then too_large
  std::uint64_t bytes_max = 1ull << 40;
};

struct recv_options {
  duration within =
      std::chrono::seconds(30);  ///< to the complete graph, then timed_out; a graph that has begun is refused
};

/// Counters since the channel was opened.
struct channel_stats {
  std::uint64_t graphs_sent = 0, objects_sent = 0, parts_sent = 0;
  std::uint64_t graphs_received = 0, objects_received = 0, parts_received = 0;
  std::uint64_t graphs_refused = 0;   ///< here, with an error that the sender was told
  std::uint64_t wire_bytes_sent = 0;  ///< of messages, heads and credits included
  std::uint64_t wire_bytes_received = 0;
  std::uint64_t waits_for_credit = 0;  ///< sends that had to wait for the receiver
};

}  // namespace fm

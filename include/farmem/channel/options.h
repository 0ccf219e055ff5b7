// Options of channels, of single sends and receives, and the counters of a channel. Application code fills options in;
// fm::channel checks them when it opens and names the option that is out of its bounds.
// docs/reference/options.md and docs/reference/metrics.md list the same fields in tables; a test compares them.
#pragma once

#include <farmem/base/units.h>
#include <string>

namespace fm {

/// When a send returns.
enum class delivery : std::uint8_t {
  accepted,  ///< when the graph is complete, checked and in the receiver's heap; the send throws the receiver's errors
  sent,  ///< when the graph is sent, within the receiver's window; a later call or flush throws the receiver's errors
};

/// Options of one end of a channel. For `window`, `window_parts` and `part` the smaller value of the two ends applies.
struct channel_options {
  /// Bytes that may be in flight to this end and not received yet (credit): from `4 * part` to 1 GiB. Over shm:// each
  /// direction has shared memory of that size, which the system allocates as it is used and frees with the channel.
  std::uint64_t window = 8ull << 20;
  /// Parts that may be in flight to this end and not received yet, from 4 to 64. A small graph is one part.
  std::uint32_t window_parts = 64;
  /// Bytes of a part, the unit in which large graphs travel: 1 KiB to 512 KiB, a multiple of 8, at most `window / 4`.
  /// Large arrays have powers of two elements, and the default has room for 256 KiB and an array's length.
  std::uint32_t part = 257u << 10;
  /// Most objects of a graph that this end accepts; more: too_large. 0: 2^32, but 2^24 if the other end may be on another
  /// machine, or its socket was adopted. Nobody authenticates the other end.
  std::uint64_t objects_max = 0;
  std::uint64_t bytes_max = 0;  ///< the same of bytes, what they become here included. 0: 1 TiB, but 4 GiB
  duration connect_within = std::chrono::seconds(5);  ///< given up when the peer has answered nothing for so long
  duration linger = std::chrono::seconds(1);  ///< how long close() waits for sent graphs that are not accepted yet
  bool insecure = false;                      ///< lets a listener bind a plaintext TCP address that is not loopback
  std::uint32_t channels_max = 256;           ///< most channels of a listener at one time; more connections are refused
};

/// Options of one send.
struct send_options {
  delivery until = delivery::accepted;  ///< when the send returns
  /// Promises that the graph is a tree, so that the writer looks up nothing. An object that is referred to twice is
  /// sent twice. A cycle ends at `objects_max` or `bytes_max`, with too_large.
  bool acyclic = false;
  duration within = std::chrono::seconds(30);  ///< deadline; after it, timed_out, and the receiver learns of it
  std::uint64_t objects_max = 1ull << 32;      ///< most objects of this graph; more: too_large
  std::uint64_t bytes_max = 1ull << 40;        ///< most bytes of this graph; more: too_large
};

/// Options of one receive.
struct recv_options {
  /// Deadline for the complete graph. After it, timed_out; a graph that has begun to arrive is refused.
  duration within = std::chrono::seconds(30);
};

/// Counters of one end since the channel was opened.
struct channel_stats {
  std::uint64_t graphs_sent = 0,      ///< graphs sent
      objects_sent = 0,               ///< objects of those graphs
      parts_sent = 0;                 ///< parts that those graphs travelled in
  std::uint64_t graphs_received = 0,  ///< graphs received and in this heap
      objects_received = 0,           ///< objects of those graphs
      parts_received = 0;             ///< parts received
  std::uint64_t graphs_refused = 0;   ///< graphs that this end refused with an error, which it reported to the sender
  std::uint64_t wire_bytes_sent = 0;  ///< bytes of all messages sent, headers and credits included
  std::uint64_t wire_bytes_received = 0;      ///< bytes of all messages received, headers and credits included
  std::uint64_t in_place_bytes_sent = 0;      ///< of graphs, bytes that were sent from where the objects lie
  std::uint64_t copied_bytes_sent = 0;        ///< of graphs, bytes that were copied to be sent
  std::uint64_t in_place_bytes_received = 0;  ///< of graphs, bytes that came straight to where the objects stay
  std::uint64_t copied_bytes_received = 0;    ///< of graphs, bytes that were received elsewhere and copied from there
  std::uint64_t waits_for_credit = 0;         ///< times that a send waited for the receiver's window
};

}  // namespace fm

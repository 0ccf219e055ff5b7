// The implementation of fm::channel: an endpoint, the heap, and the order of things in a send and in a receive. One
// send and one receive may run at a time; others wait for their turn, on a mutex each. fm::channel (core.cc) is its
// only caller.
#pragma once

#include "channel/graph/graph_reader.h"
#include <farmem/channel/channel.h>
#include <map>

#include "endpoint.h"
#include "listener.h"
#include "worker.h"

namespace fm::detail {

class channel_core {
 public:
  channel_core(object_cache& cache, const channel_options& options, std::shared_ptr<channel_listener_core> l,
               std::shared_ptr<endpoint> e)
      : cache_(cache), options_(options), listener_(std::move(l)), end_(std::move(e)) {}
  ~channel_core() { close(); }
  channel_core(const channel_core&) = delete;
  channel_core& operator=(const channel_core&) = delete;

  void send(slot_t root, const graph_schema& schema, const send_options& o);
  void send_each(std::span<const slot_t> roots, const graph_schema& schema, const send_options& o);
  ptr<char[]> recv(const graph_schema& schema, const recv_options& o);
  std::vector<ptr<char[]>> recv_each(const graph_schema& schema, const recv_options& o);
  /// The same on a thread of the channel's own.
  std::shared_ptr<transfer> send_async(slot_t root, const graph_schema& schema, const send_options& o);
  std::shared_ptr<transfer> recv_async(const graph_schema& schema, const recv_options& o);
  bool next_is(const graph_schema& schema, duration within);
  bool readable(duration within);
  void flush(duration within);
  void close() noexcept;
  [[nodiscard]] endpoint& end() noexcept { return *end_; }
  /// This is a child, after fork, of the process that opened the channel.
  [[nodiscard]] bool is_parents() const noexcept { return opened_in_ != os::fork_depth(); }

 private:
  template <class Write>
  void send_graph(const graph_schema& schema, const send_options& o, std::uint16_t flags, Write&& write);
  template <class Read>
  auto recv_graph(const graph_schema& schema, const recv_options& o, bool each, Read&& read);

  /// How a graph of a sender's schema becomes one of `schema`; null if they are the same. Throws layout_mismatch. The
  /// thread that receives calls it.
  const graph_evolution* evolution_for(const graph_schema& schema, std::uint64_t hash, time_point deadline);

  object_cache& cache_;
  const std::uint32_t opened_in_ = os::fork_depth();
  const channel_options options_;
  std::shared_ptr<channel_listener_core> listener_;  ///< before the endpoint: it outlives it
  std::shared_ptr<endpoint> end_;
  std::mutex sending_, receiving_;
  std::vector<std::byte> part_;  ///< receiving_; a copy of one that lies in shared memory
  /// A sender's types, compared with the own: how to take them, or why not.
  struct compared {
    std::optional<graph_evolution> how;
    std::string why_not;
  };
  std::map<std::pair<const graph_schema*, std::uint64_t>, compared> compared_;  ///< receiving_; by the sender's hash
  worker send_worker_, receive_worker_;
};

}  // namespace fm::detail

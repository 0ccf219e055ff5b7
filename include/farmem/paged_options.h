// What a paged range is opened with.
#pragma once

#include <farmem/error.h>
#include <farmem/units.h>
#include <functional>
#include <string>
#include <vector>

namespace fm {

/// How a thread that touches an absent page is served.
enum class fault_mode : std::uint8_t {
  /// Threads of the library read faults from the kernel. Completely transparent: system calls may be given pages that are away,
  /// too. Costs two thread switches a fault. Needs leave to use userfaultfd.
  threads,
  /// The faulting thread serves itself in a handler of SIGBUS: the fastest, and any user may. But a system call that is given an
  /// absent page returns EFAULT: call paged::populate for buffers that are passed to the kernel. The library's handler
  /// passes on what is not its own to the handler that was there before.
  sigbus,
};

/// How it is known which blocks differ from their home copies.
enum class dirty_tracking : std::uint8_t {
  write_protect,  ///< blocks that are only read are mapped read-only; the first write to one costs a fault. Linux 6.4
  none,           ///< every block is written back when it is evicted. Linux 5.14
};

/// What becomes of an access that cannot be served.
enum class fault_action : std::uint8_t {
  retry,   ///< try for another paged_options::access_within
  abort,   ///< end the process with a message that names the agent
  signal,  ///< the accessing thread gets SIGBUS. With fault_mode::threads that page stays so until it is discarded
};

/// An access that could not be served within paged_options::access_within.
struct fault_failure {
  void* address = nullptr;  ///< of the page
  const char* agent = "";   ///< URL of the agent that it concerns
  errc code = errc::ok;     ///< agent_lost, timed_out, agent_full, out_of_memory...
  bool for_room = false;    ///< the page could be had, but no other page could be written back to make room for it
};

/// Options of fm::paged. Every field has a default that works on any machine that allows userfaultfd.
struct paged_options {
  std::uint64_t capacity = 1ull << 30;  ///< bytes of the range; rounded up to whole blocks
  std::uint64_t local = 256ull << 20;   ///< bytes of it that may be in local memory; at least 8 blocks
  std::vector<std::string> agents = {
      "local:"};     ///< `local:`, `shm://PATH`, `tcp://HOST:PORT`; blocks are spread over all
  std::string name;  ///< for the agents' logs and status; default: the program's name
  /// The largest block that is fetched and evicted as one, bytes: a power of two, 4 KiB to 2 MiB.
  std::uint64_t block = 64ull << 10;
  /// Blocks from 4 KiB to `block`, as the accesses suggest (dcm, section 4). Otherwise all are of size `block`.
  bool elastic = true;
  fault_mode faults = fault_mode::threads;
  std::uint32_t fault_threads = 2;  ///< for fault_mode::threads, 1 to 64
  dirty_tracking tracking = dirty_tracking::write_protect;
  std::uint64_t read_ahead = 1ull << 20;  ///< bytes to fetch before they are touched, in a sequential stream; 0: never
  double promote_probability = 0.1;       ///< dcm's epsilon
  duration access_within = std::chrono::seconds(10);    ///< an access is retried so long, then it has failed
  duration reconnect_within = std::chrono::seconds(5);  ///< a broken connection is retried so long, then agent_lost
  duration connect_within = std::chrono::seconds(5);    ///< opening fails after this
  std::uint64_t local_region = 16ull << 20;             ///< region size of the agent in this process, for `local:`
  /// Decides about an access that has failed; without it, the process is aborted. Called by a thread of the library, or with
  /// fault_mode::sigbus by the accessing thread, within its signal handler: it may use siglongjmp there, and nothing of the
  /// range is locked. Must not touch the range.
  std::function<fault_action(const fault_failure&)> on_failure;
};

}  // namespace fm

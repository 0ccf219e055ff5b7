// fm::paged_options: everything that a paged range is opened with. fm::paged copies and checks the options when it
// opens, and names the option that is out of its bounds.
// Application code fills them in. docs/reference/options.md lists the same fields in a table; a test compares them.
#pragma once

#include <farmem/base/agent_event.h>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <functional>
#include <string>
#include <vector>

namespace fm {

/// How an access to an absent page is served.
enum class fault_mode : std::uint8_t {
  /// Threads of the library read the faults from the kernel. Transparent: system calls may also be given absent pages.
  /// Each fault costs two thread switches. The process needs permission to use userfaultfd for faults in the kernel.
  threads,
  /// The faulting thread serves itself in a handler of SIGBUS. Faster, and any user may do it. A system call that is
  /// given an absent page returns EFAULT: call paged::populate for buffers that are passed to the kernel. If a SIGBUS
  /// does not concern a range, the library's handler calls the handler that was installed before.
  sigbus,
};

/// How the library knows which blocks differ from their home copies.
enum class dirty_tracking : std::uint8_t {
  write_protect,  ///< blocks that are only read are mapped read-only, and the first write faults; needs Linux 6.4
  none,           ///< every block is written back when it is evicted; needs Linux 5.14
};

/// How to go on after an access that cannot be served; paged_options::on_failure returns it.
enum class fault_action : std::uint8_t {
  retry,   ///< try again for paged_options::access_within
  abort,   ///< end the process with a message that names the agent
  signal,  ///< raise SIGBUS in the accessing thread; with fault_mode::threads the page stays poisoned until discarded
};

/// An access that was not served within paged_options::access_within.
struct fault_failure {
  void* address = nullptr;  ///< address of the page
  const char* agent = "";   ///< URL of the agent concerned
  errc code = errc::ok;     ///< the reason, such as agent_lost, timed_out, agent_full or out_of_memory
  bool for_room = false;    ///< the page could be fetched, but no other page could be written back to make room for it
};

/// Options of fm::paged. Every field has a default that works on any machine that allows userfaultfd. Sizes are bytes.
struct paged_options {
  std::uint64_t capacity = 1ull << 30;  ///< bytes of the range, at most 64 TiB; rounded up to whole blocks
  /// Bytes of the range that may be in local memory; at least 8 blocks, and with n agents 4/3 · (n - 1).
  std::uint64_t local = 256ull << 20;
  /// URLs of the agents: `local:`, `shm://PATH`, `tcp://HOST:PORT`, `verbs://HOST:PORT`. Blocks are spread over all of
  /// them, evenly where they have the room. With `replicas` of 2 and more, none may be named twice.
  std::vector<std::string> agents = {"local:"};
  /// Agents that store each page, 1 to 4. With 2, an agent may die: its pages are served by the others, no access fails,
  /// and the range copies them to another agent. Each replica costs its share of the agents' memory, and a write-back of
  /// every block once more.
  std::uint32_t replicas = 1;
  /// If fewer agents than this store a page, what is written to it stays in local memory until there are enough again. 1:
  /// the range goes on with fewer. Accesses that find no room then fail with under_replicated.
  std::uint32_t min_replicas = 1;
  /// With `replicas` of 2 and more: no two agents of one zone (farmem-agent --zone) store a page. A range that has too few
  /// zones is not opened (invalid_argument); one that loses a zone stores pages on fewer agents. Otherwise replicas share a
  /// zone where it cannot be helped, and a warning says so.
  bool strict_zones = false;
  /// With `replicas` of 2 and more: an agent that is silent or cannot be reached for so long is given up if the agents that
  /// have its pages answer. It is lost then, even if it comes back.
  duration suspect_within = std::chrono::milliseconds(500);
  /// Name of the range in the agents' logs and status, at most 47 bytes. Empty: the name of the program.
  std::string name;
  /// Bytes of the largest block that is fetched and evicted as one: a power of two, 4 KiB to 2 MiB.
  std::uint64_t block = 64ull << 10;
  /// Adapts block sizes from 4 KiB to `block` to the accesses (dcm, section 4). If false, all blocks have `block`
  /// bytes.
  bool elastic = true;
  fault_mode faults = fault_mode::threads;  ///< how an access to an absent page is served
  std::uint32_t fault_threads = 2;          ///< threads that serve faults, 1 to 64; only for fault_mode::threads
  dirty_tracking tracking = dirty_tracking::write_protect;  ///< how dirty blocks are known
  /// Bytes that are fetched ahead of a sequential stream of accesses; at most `local / 8` is used. 0: none.
  std::uint64_t read_ahead = 1ull << 20;
  /// Probability, in [0, 1], that a filled block enters the proactive queue at once: epsilon of dcm, section 3.2.
  double promote_probability = 0.1;
  duration access_within = std::chrono::seconds(10);    ///< how long an access is retried before it has failed
  duration reconnect_within = std::chrono::seconds(5);  ///< how long a broken connection is retried, then agent_lost
  duration connect_within = std::chrono::seconds(5);    ///< opening: given up after so long without an answer
  std::uint64_t local_region = 16ull << 20;  ///< bytes of a region of the agent in this process; only `local:`
  /// Decides how to go on after an access that has failed. Empty: the process aborts. A thread of the library calls it,
  /// or with fault_mode::sigbus the accessing thread, inside its signal handler. There it may call siglongjmp: the
  /// library holds no lock then. It must not touch the range.
  std::function<fault_action(const fault_failure&)> on_failure;
  /// Is called when an agent falls silent, returns, is lost, wants to be left, is left or added, and when each page is on
  /// `replicas` agents again. Events come in order, one at a time, on a thread of the range that does nothing else. The
  /// function may use the range and may block; it must not close the range. An exception that it throws is logged. At most
  /// 256 events wait; further ones are dropped and counted in agent_event::missed.
  std::function<void(const agent_event&)> on_agent_event;
};

}  // namespace fm

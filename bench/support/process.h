// Child processes of a benchmark: workers, which are this same program run again in a mode of its own, and agents.
//
// A child dies with its parent, starts on the core and in the memory cgroup that it is to be measured in, and is
// stopped and waited for by its owner's destructor. Every wait has a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace fm::bench {

struct spawn_options {
  std::vector<std::string> argv;  ///< argv[0] is the path of the program
  int core = -1;                  ///< -1: wherever the parent may run; -2: every core
  std::string cgroup_procs;       ///< cgroup.procs file of the group to enter before exec; empty: the parent's
  bool pipes = false;             ///< connect stdin and stdout to the parent
};

/// An owned child process. Not thread-safe.
class child {
 public:
  child() = default;
  /// Throws fm::error naming the program when it cannot be started.
  explicit child(const spawn_options& options);
  ~child() { stop(std::chrono::seconds(5)); }
  child(child&& o) noexcept { *this = std::move(o); }
  child& operator=(child&& o) noexcept;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] int in() const noexcept { return in_; }    ///< its stdin: a socket to send on
  [[nodiscard]] int out() const noexcept { return out_; }  ///< read end of its stdout
  /// Waits for the end; false on the deadline. `status` as from waitpid.
  bool wait(std::chrono::milliseconds within, int& status) noexcept;
  /// End of file on its stdin.
  void close_in() noexcept;
  /// SIGTERM, then SIGKILL after `grace`; waits for the end. Idempotent.
  void stop(std::chrono::milliseconds grace) noexcept;

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1, in_ = -1, out_ = -1;
};

/// Answers of a worker: names and figures.
using figures = std::map<std::string, double>;

/// This program, run again as `name`. It is asked line by line and answers with one line of `key=value` each.
class worker {
 public:
  /// Waits until the worker has said that it is ready. Throws fm::error with what it printed instead.
  worker(const std::string& name, const std::vector<std::string>& args, int core, const std::string& cgroup_procs = {},
         std::chrono::seconds ready_within = std::chrono::seconds(600));
  worker(worker&&) noexcept = default;
  worker& operator=(worker&&) noexcept = default;

  [[nodiscard]] pid_t pid() const noexcept { return child_.pid(); }
  [[nodiscard]] const figures& ready() const noexcept { return ready_; }
  /// Throws fm::error when the worker reports a failure, ends, or does not answer in time.
  figures ask(const std::string& command, std::chrono::seconds within = std::chrono::seconds(600)) {
    post(command);
    return answer(command, within);
  }
  /// The two halves of it, so that several workers can work at the same time.
  void post(const std::string& command);
  /// Lets it end by itself, so that what it holds elsewhere (at agents, say) is given back before the next one starts. A worker that
  /// takes longer than `within`, or is only destroyed, is killed.
  void finish(std::chrono::milliseconds within = std::chrono::seconds(20)) noexcept;
  figures answer(const std::string& what, std::chrono::seconds within = std::chrono::seconds(600));

 private:
  child child_;
  std::string name_, buffered_;
  figures ready_;
};

/// The worker's side. `main` gets the arguments and returns the exit code.
using worker_main = std::function<int(const std::vector<std::string>&)>;

/// To be called first in main: when this process was started as a worker, runs it and exits.
void become_worker_if_asked(int argc, char** argv, const std::vector<std::pair<std::string, worker_main>>& workers);

/// Says that the worker is ready, then handles commands until stdin ends. An exception becomes an `error` answer.
int serve_commands(const figures& ready, const std::function<figures(const std::vector<std::string>&)>& handle);

/// Directory of this program, for finding its neighbours.
std::string own_directory();

/// A running farmem-agent.
class agent {
 public:
  /// Starts `binary` (empty: $FARMEM_AGENT, or the one of this build) listening at `url`, and waits for its ready file.
  /// `tcp://127.0.0.1:0` picks a free port. Throws fm::error (timed_out, not_found, refused) naming the URL.
  agent(const std::string& binary, const std::string& url, int core, const std::vector<std::string>& more_args = {});
  ~agent();
  agent(agent&&) noexcept = default;
  agent& operator=(agent&&) noexcept = default;

  [[nodiscard]] pid_t pid() const noexcept { return child_.pid(); }
  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  child child_;
  std::string url_, directory_;
};

/// Path of the agent binary, or empty when this build has none.
std::string agent_binary(const std::string& wanted = {});

}  // namespace fm::bench

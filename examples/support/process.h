// Another process that an example starts: an agent, or itself in another role. It says that it is ready with one line on
// descriptor 3, and ends when this process does, in whatever way.
#pragma once

#include <sys/types.h>

#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <string>
#include <vector>

namespace fm::example {

class process {
 public:
  /// Starts a program with its arguments, its path first, and waits for its line. Throws fm::error: refused (it ended before),
  /// timed_out, out_of_memory. From a thread that lives as long as the process is wanted.
  explicit process(const std::vector<std::string>& words, duration ready_within = std::chrono::seconds(20));
  ~process();
  process(process&& o) noexcept;
  process& operator=(process&&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// What it wrote when it was ready.
  [[nodiscard]] const std::string& line() const noexcept { return line_; }
  /// Sends it SIGTERM.
  void ask_to_end() const noexcept;
  /// Waits until it has ended, and kills it at the deadline: its exit code, 128 and the signal's number when it was killed.
  int wait(time_point deadline) noexcept;

 private:
  pid_t pid_ = -1;
  std::string line_;
};

/// Writes the line, in the process that was started: nothing when nobody waits for it.
void say_ready(const std::string& line);
/// This program and the arguments that it was started with.
std::vector<std::string> own_command();

}  // namespace fm::example

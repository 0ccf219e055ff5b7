// How busy an agent is: the processor time that its threads ask for, of what the processors it may use can give. A thread
// that is ready to run and has to wait asks for it, too. So an agent whose machine is busy with something else
// says so, although it runs little.
//
// A thread that serves fetches over a socket polls for some microseconds behind each request, and that counts. One-sided
// reads of memory that is mapped or registered take no processor of the agent's, and do not count.
#pragma once

#include "base/base.h"

#include <mutex>

namespace fm::agent {

class load_meter {
 public:
  /// 1: all of it; more if threads wait. Over the time since it was last measured, which is a second at least. Thread-safe;
  /// reads some files of /proc once a second.
  [[nodiscard]] double busy(time_point now);

 private:
  std::mutex mutex_;
  time_point at_{};  ///< of the last measurement; none yet
  std::uint64_t ran_ns_ = 0, waited_ns_ = 0;
  double busy_ = 0;
};

}  // namespace fm::agent

// Closing a descriptor; see file_descriptor.h.
//
// Invariant: the member is -1 before the system call is made, so that nothing closes the number twice.
#include "file_descriptor.h"
#include <unistd.h>

namespace fm::os {

void descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace fm::os

// Closing a descriptor, and duplicating one; see file_descriptor.h.
//
// Invariant: the member is -1 before the system call is made, so that nothing closes the number twice.
#include "file_descriptor.h"
#include <fcntl.h>
#include <unistd.h>

namespace fm::os {

descriptor descriptor::duplicate_of(int fd) noexcept { return descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

void descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace fm::os

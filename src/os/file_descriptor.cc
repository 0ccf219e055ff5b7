#include "file_descriptor.h"
#include <unistd.h>

namespace fm::os {

void descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace fm::os

#include "transports.h"

namespace fm::fabric {

std::span<const transport* const> built_in_transports() noexcept {
  static const transport* const all[] = {&local_transport, &shm_transport, &tcp_transport};
  return all;
}

}  // namespace fm::fabric

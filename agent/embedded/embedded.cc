// The options of an agent that serves the process that it is in; see embedded.h.
// This is the one place where they differ from the program's defaults, with the reason for each.
// Called by src/heap, src/pool, src/paged and src/testing through start_embedded alone.
#include "embedded.h"

#include "agent/service/service.h"

namespace fm::agent {

std::unique_ptr<fabric::service> start_embedded(const embedded_options& options) {
  store_options o;
  o.memory_bytes = options.memory_bytes;
  o.region_bytes = options.region_bytes;
  switch (options.use) {
    case embedded_for::heap:
      o.peers = false;   // to send to an agent elsewhere, this process would connect to it once more
      o.trace_nice = 0;  // here it is the program that would outrun it, and fill the memory with garbage
      break;
    case embedded_for::pages:
      o.clean_reserve = 0;  // nothing is cleaned
      o.trace_nice = 0;
      break;
    case embedded_for::pool:
    case embedded_for::tests: break;
  }
  return store::create(o);
}

}  // namespace fm::agent

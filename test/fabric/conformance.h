// The transports that the tests of conformance run over.
#pragma once

#include "fixture.h"

#ifdef FARMEM_CONFORMANCE_OF  // one transport that not every machine has: test/rdma
#define ALL_TRANSPORTS FARMEM_CONFORMANCE_OF
#define CONNECTED_TRANSPORTS FARMEM_CONFORMANCE_OF
#else
#define ALL_TRANSPORTS over_local, over_shm, over_tcp
// Those whose requests can be held by the peer; with `local:` a request is done when post returns.
#define CONNECTED_TRANSPORTS over_shm, over_tcp
#endif

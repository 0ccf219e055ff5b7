// The words of the protocols (src/protocol), made names of the agent: a message is as much the agent's own as its
// heaps.
//
// Invariant: nothing else is declared here. Every part that handles messages or formats includes this header.
#pragma once

#include "protocol/heap_messages.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_format.h"
#include "protocol/pool_messages.h"

namespace fm::agent {

using namespace protocol;

}  // namespace fm::agent

// The umbrella header of the server half: listeners over any transport, and the service that they call. The agent and
// channels include it, and none of the headers beside it.
//
// Invariant: it never includes the client half, so what answers requests depends on no session.
#pragma once

#include "fabric/server/service.h"
#include "fabric/wire/request.h"
#include "fabric/wire/url.h"

// The umbrella header of the client half: sessions over any transport, and the requests that they carry. Layers above
// the fabric include it, and none of the headers beside it.
//
// Invariant: it never includes the server half, so what posts requests depends on no listener.
#pragma once

#include "fabric/client/session.h"
#include "fabric/wire/request.h"
#include "fabric/wire/url.h"

// The half of the fabric that an agent uses: listeners over any transport, and the service that they call.
#pragma once

#include "fabric/server/service.h"
#include "fabric/wire/request.h"
#include "fabric/wire/url.h"

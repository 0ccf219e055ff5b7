// The half of the fabric that a program uses: sessions over any transport, and the requests that they carry.
#pragma once

#include "fabric/client/session.h"
#include "fabric/wire/request.h"
#include "fabric/wire/url.h"

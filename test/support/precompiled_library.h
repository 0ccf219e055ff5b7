// The precompiled header of the test programs whose tests are programs of the library's users; see precompiled.h.
#pragma once

#include "precompiled.h"
#include <farmem/farmem.h>

// Layer `base`: errors, checks, units, checksums, histograms, limits, named mistakes for the simulation.
//
// Invariant: nothing in it knows of heaps, agents or connections, and nothing of it calls the layers above. Every layer
// may use it, and includes this header alone.
#pragma once

#include "base/copy.h"
#include "base/crc32c.h"
#include "base/limits.h"
#include "base/mutation.h"
#include "base/patience.h"
#include <farmem/base/error.h>
#include <farmem/base/histogram.h>
#include <farmem/base/pauses.h>
#include <farmem/base/units.h>
#include <farmem/detail/check.h>

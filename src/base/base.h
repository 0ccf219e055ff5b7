// Layer `base`: errors, checks, units, checksums, histograms, named mistakes for the simulation. The layers above include this header alone.
#pragma once

#include "base/copy.h"
#include "base/crc32c.h"
#include "base/limits.h"
#include "base/mutation.h"
#include <farmem/detail/check.h>
#include <farmem/error.h>
#include <farmem/histogram.h>
#include <farmem/pauses.h>
#include <farmem/units.h>

// Layer `base`: errors, checks, units, checksums, histograms, logging. Includes nothing of farmem but its own.
#pragma once

#include <farmem/base/check.h>
#include <farmem/base/copy.h>
#include <farmem/base/crc32c.h>
#include <farmem/base/error.h>
#include <farmem/base/histogram.h>
#include <farmem/base/mutation.h>
#include <farmem/base/pauses.h>
#include <farmem/base/units.h>

// Layer `pool`: explicitly allocated objects that processes share, read one-sidedly, and compacted where they lie (CoRM).
#pragma once

#include <farmem/pool/options.h>
#include <farmem/pool/pool.h>
#include <farmem/pool/ptr.h>
#include <farmem/pool/stats.h>

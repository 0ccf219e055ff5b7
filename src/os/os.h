// Layer `os`: memory, file descriptors, futexes, fences and threads. The layers above include this header alone.
#pragma once

#include "base/base.h"
#include "os/file_descriptor.h"
#include "os/memory.h"
#include <farmem/detail/sync.h>

// Layer `os`: memory, file descriptors, futexes, fences and threads.
//
// Invariant: system calls that concern memory and threads are made here and not above. The layers above may use all of
// it, and include this header alone.
#pragma once

#include "base/base.h"
#include "os/file_descriptor.h"
#include "os/fork.h"
#include "os/memory.h"
#include "os/spin.h"
#include <farmem/detail/sync.h>

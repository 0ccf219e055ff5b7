// Layer `channel`: object graphs from heap to heap.
#pragma once

#include <farmem/channel/channel.h>

// Everything that an application needs. Each concept has a header of its own beside this one, which compiles alone.
// Headers in farmem/detail/ are what templates and inline functions of these need, and no API.
// A program that includes this header sees neither the cache nor the agents behind it.
#pragma once

#include <farmem/array.h>
#include <farmem/await.h>
#include <farmem/channel.h>
#include <farmem/channel_operation.h>
#include <farmem/channel_options.h>
#include <farmem/collect.h>
#include <farmem/error.h>
#include <farmem/hash_map.h>
#include <farmem/hash_set.h>
#include <farmem/heap.h>
#include <farmem/histogram.h>
#include <farmem/log.h>
#include <farmem/managed.h>
#include <farmem/map.h>
#include <farmem/object.h>
#include <farmem/optional.h>
#include <farmem/options.h>
#include <farmem/paged.h>
#include <farmem/pauses.h>
#include <farmem/pool.h>
#include <farmem/pool_operation.h>
#include <farmem/prefetch.h>
#include <farmem/ptr.h>
#include <farmem/queue.h>
#include <farmem/run.h>
#include <farmem/scope.h>
#include <farmem/set.h>
#include <farmem/stats.h>
#include <farmem/string.h>
#include <farmem/string_builder.h>
#include <farmem/task.h>
#include <farmem/units.h>
#include <farmem/variant.h>
#include <farmem/vector.h>
#include <farmem/walk.h>

// Everything that an application needs. Each concept has a header of its own beside this one, which compiles alone.
// Headers in farmem/detail/ are what templates and inline functions of these need, and no API.
// A program that includes this header sees neither the cache nor the agents behind it.
#pragma once

#include <farmem/base/agent_event.h>
#include <farmem/base/error.h>
#include <farmem/base/histogram.h>
#include <farmem/base/log.h>
#include <farmem/base/pauses.h>
#include <farmem/base/units.h>
#include <farmem/channel/channel.h>
#include <farmem/channel/operation.h>
#include <farmem/channel/options.h>
#include <farmem/containers/hash_map.h>
#include <farmem/containers/hash_set.h>
#include <farmem/containers/map.h>
#include <farmem/containers/queue.h>
#include <farmem/containers/set.h>
#include <farmem/containers/string.h>
#include <farmem/containers/string_builder.h>
#include <farmem/containers/vector.h>
#include <farmem/handles/prefetch.h>
#include <farmem/handles/ptr.h>
#include <farmem/handles/scope.h>
#include <farmem/handles/walk.h>
#include <farmem/heap/collect.h>
#include <farmem/heap/heap.h>
#include <farmem/heap/options.h>
#include <farmem/heap/stats.h>
#include <farmem/object/array.h>
#include <farmem/object/managed.h>
#include <farmem/object/object.h>
#include <farmem/object/optional.h>
#include <farmem/object/variant.h>
#include <farmem/paged/paged.h>
#include <farmem/pool/operation.h>
#include <farmem/pool/pool.h>
#include <farmem/tasks/await.h>
#include <farmem/tasks/run.h>
#include <farmem/tasks/task.h>

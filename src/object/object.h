// Layer `object`: the managed types, their layout and their registry, in one header.
//
// Invariant: it knows of no heap, table or agent. Code in src/ and agent/ that needs types includes this header alone.
#pragma once

#include <farmem/detail/types/describe.h>
#include <farmem/detail/types/fields.h>
#include <farmem/detail/types/reflect.h>
#include <farmem/detail/types/type_descriptor.h>
#include <farmem/detail/types/type_layout.h>
#include <farmem/object/managed.h>

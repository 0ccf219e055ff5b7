// Layer `object`: the managed types, their layout and their registry, in one header.
//
// Invariant: it knows of no heap, table or agent. Code in src/ and agent/ that needs types includes this header alone.
#pragma once

#include <farmem/detail/describe.h>
#include <farmem/detail/fields.h>
#include <farmem/detail/reflect.h>
#include <farmem/detail/type_descriptor.h>
#include <farmem/detail/type_layout.h>
#include <farmem/managed.h>

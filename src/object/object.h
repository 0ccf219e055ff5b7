// The managed types, their layout and their registry, in one header: code in src/ and agent/ that needs types includes
// this alone.
#pragma once

#include <farmem/detail/describe.h>
#include <farmem/detail/fields.h>
#include <farmem/detail/reflect.h>
#include <farmem/detail/type_descriptor.h>
#include <farmem/detail/type_layout.h>
#include <farmem/managed.h>

// Layer `type`: managed types, found by reflection.
#pragma once

#include <farmem/type/check.h>
#include <farmem/type/describe.h>
#include <farmem/type/descriptor.h>
#include <farmem/type/fields.h>
#include <farmem/type/layout.h>
#include <farmem/type/reflect.h>

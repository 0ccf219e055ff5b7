// Layer `type`: managed types, found by reflection.
#pragma once

#include <farmem/type/descriptor.h>

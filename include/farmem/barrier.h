// Layer `barrier`: from a slot to a pointer.
#pragma once

#include <farmem/barrier/read.h>

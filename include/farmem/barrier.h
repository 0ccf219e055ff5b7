// Layer `barrier`: from a slot to a pointer, and the log of what is overwritten while a cycle marks.
#pragma once

#include <farmem/barrier/read.h>
#include <farmem/barrier/satb.h>

// Layer `gc`: roots, and the hooks of the barriers that a collection needs.
#pragma once

#include <farmem/gc/roots.h>
#include <farmem/gc/satb.h>

// Gives the precompiled header a source to be compiled for: catch_main.cc cannot use it, because it needs more of
// catch.hpp than the header has kept.
#include <support/precompiled.h>

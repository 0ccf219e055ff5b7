// expect: farmem/no_such_header.h
// refused: a file is missing
#include <farmem/no_such_header.h>

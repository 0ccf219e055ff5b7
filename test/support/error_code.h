// The error that a call ends with, for tests that compare codes.
#pragma once

#include <farmem/base/error.h>

namespace fm::test {

/// The code of the fm::error that `f` throws; ok when it throws none.
template <class F>
errc code_of(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return e.code();
  }
  return errc::ok;
}

}  // namespace fm::test

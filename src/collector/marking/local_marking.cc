// The loop of local_marking.h: a step of the tracer, then what was logged meanwhile.
#include "collector/marking/local_marking.h"

#include "collector/snapshot.h"

namespace fm::detail {

void local_marking::mark() {
  bool logged = false;
  do {
    snapshot_.check_stop();
    snapshot_.pace();
    logged = snapshot_.take_logged();
  } while (tracer_.step() || logged);
  cache_.give_back_pieces();
}

}  // namespace fm::detail

// Around a sleep of a thread that polls for answers otherwise: meanwhile the agents' sessions look for them.
//
// Invariant: each session that was told of the sleep is told of its end, also where agents were added in between.
#pragma once

#include "remote/agent_session.h"

#include <cstddef>

namespace fm::detail {

class polling_pause {
 public:
  template <class Links>
  explicit polling_pause(const Links& links) noexcept : first_(links.begin()), count_(links.size()) {
    for (std::size_t i = 0; i < count_; ++i) first_[i]->session().stop_polling();
  }
  ~polling_pause() {
    for (std::size_t i = 0; i < count_; ++i) first_[i]->session().resume_polling();
  }
  polling_pause(const polling_pause&) = delete;
  polling_pause& operator=(const polling_pause&) = delete;

 private:
  const std::unique_ptr<remote::agent_session>* first_;
  std::size_t count_;
};

}  // namespace fm::detail

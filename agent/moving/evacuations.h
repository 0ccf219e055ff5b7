// The evacuations of all heaps: the message by which an owner asks for one and learns how far it is, and the steps that
// carry them out. agent/service owns the one object, gives it to heaps::add, and calls step from one thread at a time.
//
// Invariant owned here: a heap has one evacuation that was asked for last; an older number is refused, and the same
// number asks for exactly the same.
#pragma once

#include <functional>

#include "agent/heaps/heaps.h"

namespace fm::agent {

class evacuations final : public heap_part {
 public:
  /// `wake` is called when there is something to evacuate.
  evacuations(environment& e, heaps& all, std::function<void()> wake)
      : agent_(e), heaps_(all), wake_(std::move(wake)) {}

  std::optional<errc> message(session& s, heap& h, message_type type, body b, fabric::answer& out) override;
  /// One step of the evacuation of every heap that has one under way; true when there is more to do at once.
  bool step();

 private:
  environment& agent_;
  heaps& heaps_;
  const std::function<void()> wake_;
};

}  // namespace fm::agent

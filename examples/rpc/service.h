// The server: a catalogue of parts in the far heap, larger than local memory, and a thread for each client that takes orders from a
// channel and answers with bills.
#pragma once

#include <atomic>
#include <farmem/farmem.h>

#include "messages.h"
#include "parts.h"

namespace fm::example {

struct part;
struct part_use {
  std::uint64_t count = 0;
  fm::ref<part> of;
};
struct part {
  std::uint64_t cents = 0;
  fm::ref<fm::string> name;
  fm::ref<part_use[]> made_from;
};

class service {
 public:
  /// Builds the catalogue.
  service(fm::heap& h, const plain_parts& parts);

  /// Serves one client until it goes, or until the program is to stop. A request that is not one is refused, and the next is taken.
  /// Throws what ends the channel otherwise.
  void serve(fm::channel client);

  [[nodiscard]] std::uint64_t answered() const noexcept { return answered_; }
  [[nodiscard]] std::uint64_t items() const noexcept { return items_; }      ///< of all bills
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }  ///< graphs that were no request
  [[nodiscard]] fm::heap& heap() const noexcept { return heap_; }

 private:
  fm::ptr<response> answer(const fm::ptr<request>& r);

  fm::heap& heap_;
  fm::hash_map<fm::string, fm::ref<part>> by_name_;
  std::atomic<std::uint64_t> answered_{0}, items_{0}, refused_{0};
};

}  // namespace fm::example

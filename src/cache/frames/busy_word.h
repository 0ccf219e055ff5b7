// Looking at a resident object without touching it: its word is made busy where that is needed, so that its frame
// stays, and a cold object stays cold.
//
// Invariant: outside of pauses the frame of a live object moves or goes only while its word is cold and somebody
// else's. So a warm word's frame stays for the section, and a cold word's frame stays while the busy bit is ours. Dead
// objects are freed while eviction is held back, and by the collection that found them.
//
// Scans, counts and the marking of young objects use it.
#pragma once

#include "table/table.h"
#include <farmem/detail/barriers/frame.h>

namespace fm::detail {

/// A frame that stays where it is.
struct held_frame {
  char* payload;
  word_t word;   ///< as it was when the frame was found
  bool is_busy;  ///< the word is ours and cannot change; otherwise it is warm, and its flags may
};

/// Runs `f(held_frame)` if the word is resident; its frame stays meanwhile. In a section. False when it is not
/// resident.
template <class F>
bool with_frame(std::atomic<word_t>& word, F&& f) {
  for (;;) {
    word_t w = word.load(std::memory_order_acquire);
    if (!word::is_resident(w)) return false;
    if (!word::is_cold(w)) {
      f(held_frame{word::payload(w), w, false});
      return true;
    }
    if (word::is_busy(w)) {
      cpu_relax();
      continue;
    }
    if (!word.compare_exchange_weak(w, w | word::busy_bit, std::memory_order_acq_rel)) continue;
    const struct let_go {
      std::atomic<word_t>& word;
      ~let_go() { word.fetch_and(~word::busy_bit, std::memory_order_acq_rel); }
    } busy{word};  // also if there is no memory for what `f` notes
    f(held_frame{word::payload(w), w, true});
    return true;
  }
}

}  // namespace fm::detail

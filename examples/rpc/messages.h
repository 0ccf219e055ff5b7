// What client and server say to each other: object graphs, as they lie in either heap. An order names parts by text; the answer is a
// bill, in which a part that is needed in several places is one object. Both programs have these types; a channel
// compares them when the first graph comes.
#pragma once

#include <cstdint>
#include <farmem/farmem.h>

namespace fm::example {

/// What becomes of a request; the text of the answer says more.
enum class outcome : std::uint32_t { ok, unknown_part, bad_quantity, deadline_exceeded, too_large };

inline const char* name_of(outcome o) {
  switch (o) {
    case outcome::ok: return "ok";
    case outcome::unknown_part: return "unknown_part";
    case outcome::bad_quantity: return "bad_quantity";
    case outcome::deadline_exceeded: return "deadline_exceeded";
    case outcome::too_large: return "too_large";
  }
  return "an outcome that is not known here";
}

// ---- to the server ----

struct order_line {
  fm::ref<fm::string> part;
  std::uint32_t quantity = 0;
};
struct request {
  std::uint64_t number = 0;
  std::uint64_t within_us = 0;  ///< that the server may take
  fm::ref<order_line[]> lines;
};

// ---- and back ----

struct bill_item;
struct bill_use {
  std::uint64_t count = 0;  ///< in one of what it is a part of; in the bill itself: what was ordered
  fm::ref<bill_item> of;
};
struct bill_item {
  fm::ref<fm::string> part;
  std::uint64_t needed = 0;       ///< in all of the bill
  std::uint64_t cents = 0;        ///< of one, its own parts included
  fm::ref<bill_use[]> made_from;  ///< null for what is bought
};
struct response {
  std::uint64_t number = 0;
  std::uint32_t what = 0;    ///< an outcome
  fm::ref<fm::string> text;  ///< unless it is ok
  std::uint64_t items = 0;   ///< in the bill
  fm::ref<bill_use[]> bill;
};

}  // namespace fm::example

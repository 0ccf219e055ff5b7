// The session of a heap's owner: its messages about types, tablets, entries, regions and batches, and its one-sided
// access to the heap's regions. Messages about collecting, evacuating and peers go to the parts that heaps::add has
// been given.
//
// Invariants owned here
//   - Every field of a message is checked before it is used, and all of them before anything is applied.
//   - Whatever changes a heap is done under its mutex, and only while this session owns it.
// heaps::open makes one; agent/service calls it as a tenant.
#pragma once

#include "heaps.h"

namespace fm::agent {

class heap_session final : public tenant {
 public:
  heap_session(heaps& of, session& s, std::shared_ptr<heap> h)
      : of_(of), agent_(of.agent_), regions_(of.regions_), s_(s), keep_(std::move(h)), h_(*keep_) {}

  errc message(message_type type, body b, fabric::answer& out) override;
  std::byte* memory(const fabric::remote& where, std::uint64_t bytes, fabric::access how) noexcept override;
  void disconnected() noexcept override;

 private:
  // ---- messages.cc ----
  errc close_heap(body b, fabric::answer& out);
  errc renew(body b, fabric::answer& out);
  errc register_types(body b, fabric::answer& out);
  /// Of grants, replicas and promotions, which differ in what the heap does.
  errc take_tablets(message_type type, errc (heap::*how)(std::uint32_t, std::uint32_t), body b, fabric::answer& out);
  errc fetch_slot(body b, fabric::answer& out);
  errc read_entries(body b, fabric::answer& out);
  errc audit(body b, fabric::answer& out);
  errc statistics(body b, fabric::answer& out);
  errc census(body b, fabric::answer& out);       ///< object_counts.cc
  errc detach_heap(body b, fabric::answer& out);  ///< detachment.cc, as the next
  errc claim_heap(body b, fabric::answer& out);

  // ---- region_messages.cc ----
  errc open_region(body b, fabric::answer& out);
  errc region_info(body b, fabric::answer& out);
  errc seal_region(body b, fabric::answer& out);
  errc retired_region(body b, fabric::answer& out);
  errc index(body b, fabric::answer& out);
  /// The region that a message names. When it stays null, `out` and what is returned are the handler's. heap.mutex.
  errc find_or_refuse(const region_name& n, message_type type, fabric::answer& out, region*& r);

  heaps& of_;
  environment& agent_;
  region_pool& regions_;
  session& s_;
  const std::shared_ptr<heap> keep_;
  heap& h_;
};

}  // namespace fm::agent

// The messages of a collection cycle (protocol/heap_messages.h, "Collecting"), applied by the heap's tracer; see
// cycles.h.
// A message of a cycle that does not run is refused as stale; one that no correct owner sends is bad_frame and ends
// the connection.
// Called by heap_session for messages, and by the tracing threads for steps.
#include "base/log.h"
#include <fmt/format.h>

#include "agent/base/limits.h"
#include "cycles.h"

namespace fm::agent {

namespace {

/// A slot, or one that is to be scanned at home.
constexpr bool is_slot(std::uint64_t s) { return (s & ~scan_at_home) != 0 && (s & ~scan_at_home) < detail::slot_limit; }

/// The rest of a body as `count` slots; false unless it is exactly that, with no null and no impossible slot.
bool read_slots(std::span<const std::byte> b, std::uint32_t count, std::vector<slot_t>& out) {
  if (b.size() != std::uint64_t{count} * 8) return false;
  out.resize(count);
  if (count != 0) std::memcpy(out.data(), b.data(), b.size());
  return std::all_of(out.begin(), out.end(), is_slot);
}

/// The rest of a body as `count` pages of slots; false unless it is exactly that.
bool read_pages(std::span<const std::byte> b, std::uint32_t count, std::vector<slot_bits>& out) {
  if (b.size() != std::uint64_t{count} * sizeof(slot_bits)) return false;
  out.resize(count);
  if (count != 0) std::memcpy(out.data(), b.data(), b.size());
  return std::all_of(out.begin(), out.end(), [](const slot_bits& p) {
    return p.first_slot % heap::page_slots == 0 && p.first_slot < detail::slot_limit;
  });
}

errc refuse_stale(fabric::answer& out, message_type type, const heap& h, std::uint64_t cycle) {
  return refuse(out, type, errc::stale, fmt::format("cycle {} of heap {} does not run", cycle, h.name));
}

}  // namespace

std::optional<errc> cycles::message(session& s, heap& h, message_type type, body b, fabric::answer& out) {
  switch (type) {
    case message_type::begin_cycle: return begin_cycle(s, h, b, out);
    case message_type::add_dirty: return add_dirty(s, h, b, out);
    case message_type::trace: return trace(s, h, b, out);
    case message_type::read_marks: return read_marks(s, h, b, out);
    case message_type::release_slots: return release_slots(s, h, b, out);
    case message_type::end_cycle: return end_cycle(s, h, b, out);
    default: return {};
  }
}

std::shared_ptr<tracer> find_cycle(session& s, heap& h, std::uint64_t cycle, message_type type, fabric::answer& out,
                                   errc& result) {
  std::lock_guard lock(h.mutex);
  if (h.owner != &s) {
    result = not_the_owner(h, out, type);
    return nullptr;
  }
  auto running = running_tracer(h);
  if (running != nullptr && running->cycle == cycle) return running;
  result = refuse_stale(out, type, h, cycle);
  return nullptr;
}

trace_ticket cycles::new_ticket() {
  if (!agent_.options.peers) return {};
  const std::lock_guard lock(tickets_mutex_);
  return std::array{ticket_random_.next(), ticket_random_.next()};
}

errc cycles::begin_cycle(session& s, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::begin_cycle;
  cycle_name m;
  if (!read_exactly(b, m) || m.cycle == 0) return errc::bad_frame;
  std::lock_guard lock(h.mutex);
  if (h.owner != &s) return not_the_owner(h, out, type);
  const auto running = running_tracer(h);
  const bool repeated = running != nullptr && running->cycle == m.cycle && !running->has_traced();
  if (!repeated) {
    if (m.cycle <= h.cycle_begun)
      return refuse(out, type, errc::stale, fmt::format("cycle {} after cycle {}", m.cycle, h.cycle_begun));
    auto next =
        std::make_shared<tracer>(h, m.cycle,
                                 trace_limits{agent_.options.trace_queue_slots, agent_.options.trace_references_max,
                                              agent_.options.trace_threads, agent_.options.peer_within},
                                 new_ticket(), bell_, peers_bell_);
    h.end_cycle();
    h.begin_cycle(std::move(next));
    h.cycle_begun = m.cycle;
  }
  begin_answer(out, type, nullptr, 0);
  if (const trace_ticket t = running_tracer(h)->ticket) {
    const begin_cycle_answer a{{(*t)[0], (*t)[1]}};
    append_answer(out, &a, sizeof a);
  }
  return errc::ok;
}

errc cycles::add_dirty(session& s, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::add_dirty;
  dirty_body m;
  std::vector<slot_bits> pages;
  if (!read_front(b, m) || m.zero != 0 || !read_pages(b, m.count, pages)) return errc::bad_frame;
  errc result = errc::ok;
  const auto running = find_cycle(s, h, m.cycle, type, out, result);
  if (running == nullptr) return result;
  if (!running->add_dirty(pages)) return refuse_stale(out, type, h, m.cycle);
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc cycles::trace(session& s, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::trace;
  trace_body m;
  std::vector<slot_t> slots;
  if (!read_front(b, m) || m.zero != 0 || m.number == 0 || !read_slots(b, m.count, slots)) return errc::bad_frame;
  errc result = errc::ok;
  const auto running = find_cycle(s, h, m.cycle, type, out, result);
  if (running == nullptr) return result;
  m.references_max = std::min(m.references_max, limits::answer_references_max);
  auto how = tracer::sequence::ok;
  tracer::reply a{};
  if (!running->post(m, slots, how, a)) return refuse_stale(out, type, h, m.cycle);
  if (how == tracer::sequence::gap) return errc::bad_frame;
  if (how == tracer::sequence::stale)
    return refuse(out, type, errc::stale, fmt::format("trace message {} of cycle {} comes late", m.number, m.cycle));
  out.payload.reserve(sizeof(answer_head) + sizeof a.answer + sizeof(trace_counts) + a.remote_references.size() * 8);
  begin_answer(out, type, &a.answer, sizeof a.answer);
  if (a.counts) append_answer(out, &*a.counts, sizeof *a.counts);
  append_answer(out, a.remote_references.data(), a.remote_references.size() * 8);
  return errc::ok;
}

errc cycles::read_marks(session& s, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::read_marks;
  read_marks_body m;
  if (!read_exactly(b, m) || m.count == 0 || m.count > marks_tablets_max || m.first_tablet >= heap::tablet_limit ||
      m.count > heap::tablet_limit - m.first_tablet)
    return errc::bad_frame;
  errc result = errc::ok;
  const auto running = find_cycle(s, h, m.cycle, type, out, result);
  if (running == nullptr) return result;
  std::vector<std::uint64_t> bits(std::size_t{m.count} * (marks_bytes / 8), ~std::uint64_t{0});
  for (std::uint32_t t = 0; t < m.count; ++t) {
    const std::uint64_t word = h.tablet_words()[m.first_tablet + t].load(std::memory_order_acquire);
    if ((word & heap::in_cycle) == 0) continue;
    const heap::bits_t* const from = heap::marks(heap::block_in(word));
    for (std::size_t i = 0; i < marks_bytes / 8; ++i)
      bits[t * (marks_bytes / 8) + i] = from[i].load(std::memory_order_acquire);
  }
  begin_answer(out, type, bits.data(), bits.size() * 8);
  return errc::ok;
}

errc cycles::release_slots(session& s, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::release_slots;
  release_body m;
  std::vector<slot_bits> pages;
  if (!read_front(b, m) || m.zero != 0 || !read_pages(b, m.count, pages)) return errc::bad_frame;
  for (const slot_bits& p : pages)
    if (h.tablet_block_of(detail::tablet_of(p.first_slot)) == nullptr) return errc::bad_frame;
  release_answer a{};
  std::size_t i = 0;
  do {
    std::lock_guard lock(h.mutex);
    if (h.owner != &s) return not_the_owner(h, out, type);
    const auto running = h.running_cycle();
    if (running == nullptr || running->cycle != m.cycle) return refuse_stale(out, type, h, m.cycle);
    for (const std::size_t end = std::min(pages.size(), i + limits::release_pages_at_once); i < end; ++i) {
      // What is dead is for the owner to say, but never of an object that was reached here.
      if (!h.is_dead(pages[i]))
        return refuse(
            out, type, errc::corrupt,
            fmt::format("slots from {} on of heap {} are not dead in cycle {}", pages[i].first_slot, h.name, m.cycle));
      h.release(pages[i], a);
    }
  } while (i < pages.size());
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

errc cycles::end_cycle(session& s, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::end_cycle;
  cycle_name m;
  if (!read_exactly(b, m) || m.cycle == 0) return errc::bad_frame;
  std::lock_guard lock(h.mutex);
  if (h.owner != &s) return not_the_owner(h, out, type);
  if (m.cycle != h.cycle_begun) return refuse_stale(out, type, h, m.cycle);
  h.end_cycle();  // for the second time: its answer is still there
  begin_answer(out, type, &h.cycle_ended_with, sizeof h.cycle_ended_with);
  agent_.wake();  // there may be something to clean
  return errc::ok;
}

bool cycles::step(std::uint32_t worker) {
  bool more = false;
  for (const auto& h : heaps_.all()) {
    const auto running = running_tracer(*h);
    if (running == nullptr || !running->has_traced()) continue;
    const step_result r = running->step(worker);
    if (r.tell) h->tell_traced(*running);
    more = more || r.more;
  }
  return more;
}

}  // namespace fm::agent

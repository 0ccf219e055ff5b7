// The line that tells of a collection; see cycle_report::text.
#include <farmem/heap/collect.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace fm {

namespace {

std::string evacuation_text(const cycle_part& a) {
  if (a.evacuated_objects == 0 && a.sparse_regions == 0 && a.evacuation == errc::ok) return {};
  constexpr const char* orders[] = {"in address order", "depth first", "breadth first"};
  return fmt::format(
      ", {} objects, {} bytes evacuated {} in {:.1f} ms, {} of {} sparse regions emptied{}{}", a.evacuated_objects,
      a.evacuated_bytes, orders[static_cast<std::uint32_t>(a.order)], double(a.evacuation_ns) / 1e6, a.emptied_regions,
      a.sparse_regions, a.left_behind ? ", no room for others" : "",
      a.evacuation == errc::ok ? std::string() : fmt::format(", not waited for: {}", to_string(a.evacuation)));
}

}  // namespace

std::string cycle_report::text() const {
  const auto ms = [](std::uint64_t ns) { return double(ns) / 1e6; };
  if (status != errc::ok)
    return fmt::format("{} {} ({}) given up after {:.1f} ms: {}",
                       of == generation::young ? "young collection" : "cycle", number, cause, ms(total_ns), failure);
  if (of == generation::young)
    return fmt::format(
        "young collection {} ({}): {:.1f} ms (scan {:.1f}, mark {:.1f}, sweep {:.1f}, slept {:.1f}; {:.1f} of CPU), "
        "pauses "
        "{:.3f} and {:.3f} ms, {} abandoned; {} roots, {} young, {} traced, {} overwritten; {} marked, {} dead, {} "
        "freed of "
        "{} bytes, {} of them weakly named",
        number, cause, ms(total_ns), ms(scan_ns), ms(mark_ns), ms(sweep_ns), ms(paced_ns), ms(cpu_ns),
        ms(snapshot_pause_ns), ms(final_pause_ns), pauses_abandoned, roots, dirty, traced_here, overwritten, marked,
        dead, freed, freed_bytes, weak_cleared);
  std::string s = fmt::format(
      "cycle {} ({}): {:.1f} ms (scan {:.1f}, mark {:.1f}, sweep {:.1f}, evacuation {:.1f}, slept {:.1f}; {:.1f} of "
      "CPU), pauses {:.3f} "
      "and {:.3f} ms, "
      "{} abandoned; "
      "{} "
      "roots, {} dirty frames, {} traced here, {} overwritten, {} termination rounds; {} marked, {} dead, {} freed, {} "
      "of the dead weakly named",
      number, cause, ms(total_ns), ms(scan_ns), ms(mark_ns), ms(sweep_ns), ms(evacuate_ns), ms(paced_ns), ms(cpu_ns),
      ms(snapshot_pause_ns), ms(final_pause_ns), pauses_abandoned, roots, dirty, traced_here, overwritten,
      termination_rounds, marked, dead, freed, weak_cleared);
  for (const cycle_part& a : agents)
    s += fmt::format(
             "; {}: {} marked and {} bytes scanned in {:.1f} ms, remote references: {} through the owner, {} to other "
             "agents{}, {} "
             "objects of {} bytes freed, {} of {} left in {} regions",
             a.agent, a.marked, a.scanned_bytes, ms(a.tracing_ns), a.remote_references, a.references_sent,
             a.peers_lost == 0 ? std::string() : fmt::format(" ({} not reached)", a.peers_lost), a.freed_objects,
             a.freed_bytes, a.objects, a.live_bytes, a.regions) +
         evacuation_text(a);
  return s;
}

}  // namespace fm

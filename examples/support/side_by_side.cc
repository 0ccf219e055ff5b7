// Flags and the far side of a comparison; see side_by_side.h.
#include "side_by_side.h"

namespace fm::example {

namespace {

agent_options agents_of(const side_by_side_options& o, const memory_plan& plan) {
  agent_options agents = o.machine.agents;
  agents.owner = o.name;
  agents.memory_bytes = plan.agent_bytes;
  return agents;
}

}  // namespace

void declare(CLI::App& app, side_by_side_options& o, const std::string& what) {
  app.add_option("--seed", o.seed, fmt::format("of the {} and the operations", what))->capture_default_str();
  app.add_flag("!--far-only", o.plain, fmt::format("leave the local {} out", o.kind));
  app.add_flag("--check", o.check, fmt::format("compare the answers of both {}, and verify the heap", o.kinds));
  declare(app, o.machine, o.name);
}

far_side::far_side(const side_by_side_options& o, std::uint64_t heap_bytes, const memory_plan& plan)
    : options_(o),
      heap_bytes_(heap_bytes),
      plan_(plan),
      agents_(agents_of(o, plan)),
      limit_(o.name, plan.local_bytes),
      heap_({.cache = plan.cache_bytes, .agents = agents_.urls(), .name = o.name}) {
  print_machine(o.name, heap_bytes, plan, limit_, agents_);
}

int far_side::finish(bool same_answers) {
  const heap_stats st = heap_.stats();
  print_local_memory(plan_, limit_, heap_bytes_, options_.name);
  print_collections(st);
  if (!options_.check) return 0;
  fmt::print("check: both {} {}\n", options_.kinds, same_answers ? "gave the same answers" : "gave DIFFERENT answers");
  return verify_home(heap_) && same_answers ? 0 : 1;
}

}  // namespace fm::example

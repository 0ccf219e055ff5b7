// What all examples have in common: the agents and the local memory as flags, how the local memory is divided, stopping on a
// signal, and the lines of a summary that say what the heap did. A program declares the flags, makes a plan from its
// estimate of the heap, starts the agents, limits itself, and opens the heap.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <farmem/farmem.h>
#include <functional>
#include <string>

#include "agents.h"
#include "memory_limit.h"

namespace fm::example {

/// Set by SIGINT and SIGTERM in run_program; long loops end soon after.
extern std::atomic<bool> stop_requested;

/// The main of a program: reads the flags, catches signals, runs, and says on stderr what went wrong. Gives the exit code:
/// 2 for a mistake in the flags, 1 for an error, otherwise what `run` gave.
int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& run);

struct machine_options {
  agent_options agents;
  std::uint64_t local_bytes = 0, cache_bytes = 0, agent_bytes = 0;  ///< 0: decided by make_plan
};

/// Declares --transport, --address, --agents, --agent and --region.
void declare(CLI::App& app, agent_options& a);
/// Those, and --memory, --local and --cache. `what` is what the heap holds: "index".
void declare(CLI::App& app, machine_options& m, const std::string& what);
/// Declares a size, like 64MiB.
CLI::Option* add_size(CLI::App& app, const std::string& name, std::uint64_t& to, const std::string& help);

/// How much memory each has.
struct memory_plan {
  std::uint64_t local_bytes = 0, cache_bytes = 0, agent_bytes = 0;
};
/// What the options leave open: local memory of a quarter of the heap plus what a program needs, the cache two thirds of
/// what is left of it beside the table of `heap_objects` objects and the program's own `own_bytes`, agents with
/// `agent_share` times the heap among them. Throws fm::error(invalid_argument), with the figure that would do, when the
/// local memory that was asked for is too little for the rest.
memory_plan make_plan(const machine_options& m, std::uint64_t heap_bytes, std::uint64_t heap_objects,
                      double agent_share, std::uint64_t own_bytes = 0);

/// Resident bytes of a process, 0 for this one: all of them (VmRSS), and those of shared mappings (RssShmem). Reads /proc.
struct process_memory {
  std::uint64_t total_bytes = 0, shared_bytes = 0;
};
process_memory memory_of(int pid = 0);

/// "1.5 MiB"
std::string mib(std::uint64_t bytes);
/// One line about the local memory and one for each agent.
void print_machine(const std::string& what, std::uint64_t heap_bytes, const memory_plan& p, const memory_limit& limit,
                   const agent_processes& agents);

// Lines of the summary. ------------------------------------------------------------------------------------------------

void print_local_memory(const memory_plan& p, const memory_limit& limit, std::uint64_t heap_bytes,
                        const std::string& what);
/// Misses, fetches and write-back. `operations` are the accesses that the hit ratio is of, `each` says what they are.
void print_traffic(const heap_stats& st, std::uint64_t operations, const std::string& each);
/// Collections, what they freed, and for how long they stopped the program.
void print_collections(const heap_stats& st);
/// Resident memory of this process and of the agents.
void print_processes(const agent_processes& agents);

/// Sends everything home and verifies both sides; prints the verdict, which is bad also with more than
/// `objects_max` objects. Only while nothing else uses the heap.
bool verify_home(heap& h, std::uint64_t objects_max = ~std::uint64_t{0});

}  // namespace fm::example

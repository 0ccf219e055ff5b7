// Limits of replica sets, with the reason beside each number; see limits.h for what belongs here.
// src/cache (replica_set.h, replication.cc, losses.cc), src/collector and src/remote read it.
#pragma once

#include <chrono>
#include <cstdint>

namespace fm::detail::limits {

/// How long an access waits for a replica to take over: a failover takes milliseconds once an agent is known to be lost.
constexpr auto failover_within = std::chrono::seconds(30);
/// Tablets that are remembered because threads wait for them while an agent's are promoted.
constexpr std::size_t awaited_tablets = 16;
/// Looks in a row, within heap_options::suspect_within, in which nothing was heard of an agent before it is given up.
constexpr std::uint32_t silent_looks = 8;
/// Agents that store an object, at most: each multiplies memory and writes. Two or three are usual elsewhere.
constexpr std::uint32_t replicas_max = 4;
/// Bytes that are read at once from a member of a set for a new one: as much as a batch has.
constexpr std::uint64_t import_read_bytes = 256 << 10;
/// Entries that one message asks for: 64 KiB, which is a moment for any agent and link. A group of pages has as many.
constexpr std::uint32_t entries_read_at_once = 8192;
/// Batches for a new member that are not acknowledged yet. Those of the program go to it as well.
constexpr std::uint32_t imports_in_flight = 4;
/// A tablet's new member is given up when nothing of it was acknowledged for so long.
constexpr auto import_within = std::chrono::seconds(5);
/// Sets that found no new member are looked at again after so long.
constexpr auto replicate_again_after = std::chrono::seconds(1);
/// A tablet that is handed over is closed until batches are settled that were just sent, and until the sections of all
/// threads have ended. Threads that want an object of it wait meanwhile. So the first attempts are short, and the longest
/// one is no longer than a failover takes.
constexpr auto handover_batches_within = std::chrono::seconds(1);
constexpr auto handover_readers_first = std::chrono::milliseconds(20);
constexpr auto handover_readers_most = std::chrono::seconds(2);
/// Agents of a heap, those that it has left or lost included: their records are never given back, and take some kilobytes
/// together.
constexpr std::uint32_t agents_max = 256;
/// Rebalancing begins when the fullest agent has so much larger a share of its memory in use than the emptiest one. It
/// makes them equal, so that it begins again only after as much has changed.
constexpr double rebalance_from = 0.2;
/// What agents say of their load counts every so often. An agent is overloaded when its threads have asked for more than
/// `overloaded_from` of its processors in `overloaded_looks` looks in a row (moving waits
/// longer where it did not help, up to `overloaded_looks_most`: eight minutes), and no more so when it is less than
/// `relaxed_below` in one. What lies in between, and bursts, change nothing.
constexpr auto load_look_every = std::chrono::seconds(5);
constexpr double overloaded_from = 0.8, relaxed_below = 0.6;
constexpr std::uint32_t overloaded_looks = 3, overloaded_looks_most = 96;
/// Tablets move from an overloaded agent to one that is less busy by so much: a half of that remains to move back.
constexpr double load_apart = 0.3;
/// Of the tablets that an overloaded agent serves, at most so many move before its load is looked at anew. Other owners may be
/// doing the same, and who gets them has to bear the copying besides.
constexpr double load_share_most = 0.125;
/// An owner with fewer misses than so many a second is not what makes its agents busy.
constexpr double load_misses_least = 1000;
/// Because of load, an agent may become fuller than the one that is relieved, by so much of its memory: half of what has
/// rebalancing by room begin, which would move the same tablets back.
constexpr double load_fuller_most = rebalance_from / 2;
/// What an overloaded agent gets of new objects, of what it would get by its room.
constexpr double overloaded_weight = 0.25;
/// The share of a core that copying to new members takes while the program asks the cache for something.
constexpr double replication_share = 0.5;

}  // namespace fm::detail::limits

// Limits and tuning constants of a pool's clients, with the reason beside each number; see base/limits.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm::pool_detail::pool_limits {

/// A session does not tell its owner when it is up; whoever waits for that looks again after so long.
constexpr auto until_up = std::chrono::milliseconds(1);
/// A call that compacts waits so long for blocks that it has emptied, and that a client may still be reading. Those take a
/// millisecond if their threads get a processor.
constexpr auto graves_within = std::chrono::milliseconds(20);
/// It asks again after so long.
constexpr auto graves_look_every = std::chrono::microseconds(200);
/// It leaves the agent to others between two steps, for as long as the agent says, and no longer than that.
constexpr auto compaction_rest_most = std::chrono::milliseconds(10);
/// An object that could not keep its slot is in the next free one: one read looks at so many slots and bytes.
constexpr std::uint32_t probe_bytes = 4096;
constexpr std::uint32_t probe_slots_max = 16;
/// Where a read is a copy, looking on is cheaper than asking, for so many slots; of objects above so many bytes the
/// header alone.
constexpr std::uint32_t seek_slots_max = 256;
constexpr std::uint32_t seek_whole_upto = 256;
/// Of a second, what the clocks of two machines may differ in rate: a thousandth, several times what crystals do and
/// twice what daemons correct.
constexpr std::int64_t clock_drift_share = 1000;
/// A new pool with replicas is told when a part has its backup, and looks itself after so long: the agent's notice may
/// have found its queue full, and agents before version 3.5 send none.
constexpr auto until_paired = std::chrono::milliseconds(100);
/// As many as the list of addresses that an agent takes may have, and itself (agent/base/limits.h, backup_urls_max).
constexpr std::size_t replicated_agents_max = 17;
/// A primary that answers nothing for so many leases (two tenures) may have been replaced.
constexpr int silent_leases = 8;
/// A one-sided read of a part with replicas: its agent may be silent, and another one its primary by then.
constexpr auto one_sided_within = std::chrono::seconds(2);
/// Changes that a backup may not have confirmed yet, at most: a version farther ahead is an old one.
constexpr std::uint32_t uncounted_max = 1u << 22;
/// What counts is looked at again at once for so long, by a thread that gives way to others: a backup on the same host
/// answers within that. Then after naps, which take 50 us more than they should. (With 50 us of looking, writes over tcp
/// take half as long again; an EPYC.)
constexpr auto count_spin_for = std::chrono::microseconds(200);
constexpr auto count_nap_most = std::chrono::milliseconds(1);
/// Changes with payloads up to this go where somebody polls for requests, and where they are in the way of reads.
constexpr std::size_t quick_upto = 16384;
/// Reads of an object that met a writer each time, before the agent is asked.
constexpr int torn_max = 32;
/// Reads of read_many that are in flight at a time: with the largest objects, half of a session's credit of bytes.
constexpr std::size_t read_many_round = 64;

}  // namespace fm::pool_detail::pool_limits

// Limits of a range's agents, with the reason beside each number; paged/paged_limits.h has the others of paged ranges.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fm::detail::paged_limits {

/// Pages of a stripe, 2^n of them: 64 KiB at least, so that the map is small beside what it is about.
constexpr std::uint32_t stripe_order_least = 4;
/// Agents that store a page, at most: as many as of a heap.
constexpr std::uint32_t replicas_max = 4;
/// Agents that a range counts, those that it has left or lost included: as many as a heap. Each keeps its records.
constexpr std::size_t agents_max = 256;
/// An agent that has no memory for what it promised is passed over for so long: other tenants' regions come back.
constexpr auto full_for = std::chrono::seconds(1);
/// Agents that have no room for more are believed for so long: an agent may come back, and others' memory become free. While
/// places are lacking they are asked more often, so that no write waits.
constexpr auto no_more_for = std::chrono::seconds(1);

}  // namespace fm::detail::paged_limits

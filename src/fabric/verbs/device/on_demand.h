// On-demand paging: memory that is registered and not pinned. The device looks pages up when it needs them, so that
// registering takes no time for each page and nothing of the limit on locked memory. Which of it a device can do is
// decided here, and nowhere else; nothing is called here.
//
// The memory's purpose says what is needed. A peer's operations need the device to be able to do each kind that the
// registration allows. Memory that is registered for local use is where this side's reads end and where its writes
// begin. Buffers of messages are always pinned: receiving into a page that is not there would be receiver-not-ready.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace fm::fabric::verbs {

/// What memory of an agent is registered with, at most.
constexpr int region_access =
    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
/// What a program's own memory is registered with.
constexpr int local_access = IBV_ACCESS_LOCAL_WRITE;

/// Operations of reliable connections (ibv_odp_transport_cap_bits) that memory registered with `access`
/// (ibv_access_flags) takes part in.
constexpr std::uint32_t on_demand_needs(int access) noexcept {
  std::uint32_t needs = 0;
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) needs |= IBV_ODP_SUPPORT_READ;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) needs |= IBV_ODP_SUPPORT_WRITE;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) needs |= IBV_ODP_SUPPORT_ATOMIC;
  return needs != 0 ? needs : std::uint32_t(IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE);
}

/// Of these, what a device lacks.
constexpr std::uint32_t on_demand_missing(const ibv_odp_caps& caps, int access) noexcept {
  const bool any = (caps.general_caps & IBV_ODP_SUPPORT) != 0;
  return on_demand_needs(access) & ~(any ? caps.per_transport_caps.rc_odp_caps : 0u);
}

/// The same in words: "reads, atomics". Empty when it lacks nothing.
inline std::string on_demand_lacks(const ibv_odp_caps& caps, int access) {
  if ((caps.general_caps & IBV_ODP_SUPPORT) == 0) return "everything";
  const std::uint32_t lacks = on_demand_missing(caps, access);
  std::string words;
  const auto add = [&](std::uint32_t bit, const char* word) {
    if ((lacks & bit) != 0) words += (words.empty() ? "" : ", ") + std::string(word);
  };
  add(IBV_ODP_SUPPORT_READ, "reads");
  add(IBV_ODP_SUPPORT_WRITE, "writes");
  add(IBV_ODP_SUPPORT_ATOMIC, "atomics");
  return words;
}

/// How a device's user wants memory registered, and what the device can do of it. Everything is pinned by default.
class paging {
 public:
  paging() = default;
  paging(bool wanted, const ibv_odp_caps& caps) noexcept : wanted_(wanted), caps_(caps) {}
  /// Flags for ibv_reg_mr: `access`, and IBV_ACCESS_ON_DEMAND if that is wanted and the device can do it.
  [[nodiscard]] int flags(int access) const noexcept {
    const bool on_demand = wanted_ && on_demand_missing(caps_, access) == 0;
    return on_demand ? access | IBV_ACCESS_ON_DEMAND : access;
  }

 private:
  bool wanted_ = false;
  ibv_odp_caps caps_{};
};

}  // namespace fm::fabric::verbs

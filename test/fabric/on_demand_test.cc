// What of on-demand paging suffices for what; no device is needed to decide it.
#if __has_include(<infiniband/verbs.h>)
#include "fabric/verbs/device/on_demand.h"

#include <catch2/catch.hpp>

using namespace fm::fabric::verbs;

namespace {

ibv_odp_caps device(std::uint32_t reliable, bool any = true) {
  ibv_odp_caps c{};
  c.general_caps = any ? IBV_ODP_SUPPORT : 0;
  c.per_transport_caps.rc_odp_caps = reliable;
  return c;
}

constexpr std::uint32_t reads = IBV_ODP_SUPPORT_READ, writes = IBV_ODP_SUPPORT_WRITE, atomics = IBV_ODP_SUPPORT_ATOMIC;
constexpr int read_only = IBV_ACCESS_REMOTE_READ;

}  // namespace

TEST_CASE("memory is registered on demand when the device can do every operation that it is registered for") {
  CHECK(on_demand_lacks(device(reads), read_only).empty());
  CHECK(on_demand_lacks(device(reads | writes | atomics), region_access).empty());
  CHECK(on_demand_lacks(device(reads | writes), local_access).empty());
  CHECK(on_demand_lacks(device(reads | writes), 0).empty());  // what is only written from is read by the device, too
}

TEST_CASE("what a device lacks is named, each operation by itself") {
  CHECK(on_demand_lacks(device(reads | writes), region_access) == "atomics");
  CHECK(on_demand_lacks(device(reads), region_access) == "writes, atomics");
  CHECK(on_demand_lacks(device(0), region_access) == "reads, writes, atomics");
  CHECK(on_demand_lacks(device(writes), read_only) == "reads");
  CHECK(on_demand_lacks(device(reads), local_access) == "writes");
  CHECK(on_demand_lacks(device(writes), local_access) == "reads");
}

TEST_CASE("a device without the general capability has none, whatever it says of single operations") {
  CHECK(on_demand_lacks(device(reads | writes | atomics, false), read_only) == "everything");
  CHECK(on_demand_lacks(device(reads | writes | atomics, false), local_access) == "everything");
}

TEST_CASE("what messages and other transports can do on demand counts for nothing") {
  ibv_odp_caps c = device(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV);
  c.per_transport_caps.uc_odp_caps = c.per_transport_caps.ud_odp_caps = ~0u;
  CHECK(on_demand_lacks(c, region_access) == "reads, writes, atomics");
}

TEST_CASE("on-demand paging is used only if it is asked for, and registration by registration") {
  const ibv_odp_caps able = device(reads | writes | atomics), partly = device(reads | writes);
  CHECK(paging().flags(region_access) == region_access);
  CHECK(paging(false, able).flags(region_access) == region_access);
  CHECK(paging(true, able).flags(region_access) == (region_access | IBV_ACCESS_ON_DEMAND));
  CHECK(paging(true, partly).flags(region_access) == region_access);
  CHECK(paging(true, partly).flags(read_only) == (read_only | IBV_ACCESS_ON_DEMAND));
  CHECK(paging(true, partly).flags(local_access) == (local_access | IBV_ACCESS_ON_DEMAND));
  CHECK(paging(true, ibv_odp_caps{}).flags(local_access) == local_access);
}
#endif

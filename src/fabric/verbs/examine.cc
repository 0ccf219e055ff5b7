// The doctor's questions to each RDMA device: the state, MTU and addresses of its ports, and on-demand paging. Opens
// devices, closes them, and changes nothing. The doctor calls it through the table of transports.
#include "examine.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fabric/verbs/device/queue_pair.h"

namespace fm::fabric::verbs {
namespace {

using level = finding::level;

unsigned mtu_bytes(ibv_mtu m) noexcept { return 128u << unsigned(m); }

/// The GIDs that an address of the network interface makes; link-local ones reach nobody that has another address.
std::vector<std::string> addresses_of(ibv_context* device, std::uint8_t port, int entries) {
  std::vector<std::string> found;
  for (int i = 0; i < std::min(entries, 256); ++i) {
    ibv_gid gid{};
    constexpr std::uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (ibv_query_gid(device, port, i, &gid) != 0 || (gid.global.interface_id == 0 && gid.global.subnet_prefix == 0))
      continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (std::memcmp(gid.raw, mapped, sizeof mapped) == 0)
      ::inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
    else if (gid.raw[0] == 0xfe && gid.raw[1] == 0x80)
      continue;
    else
      ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
    if (std::find(found.begin(), found.end(), text) == found.end()) found.emplace_back(text);
  }
  return found;
}

void examine_port(ibv_context* device, const char* name, std::uint8_t port, std::vector<finding>& out) {
  ibv_port_attr p{};
  if (ibv_query_port(device, port, &p) != 0) return;
  const bool ethernet = p.link_layer == IBV_LINK_LAYER_ETHERNET;
  const std::string what = fmt::format("port {} of {}: {}, {}, MTU {} of {}, messages up to {} KiB", unsigned(port),
                                       name, ethernet ? "Ethernet" : "InfiniBand", ibv_port_state_str(p.state),
                                       mtu_bytes(p.active_mtu), mtu_bytes(p.max_mtu), p.max_msg_sz >> 10);
  if (p.state != IBV_PORT_ACTIVE) {
    out.push_back({level::wrong, what,
                   ethernet ? "bring its network interface up: ip link set DEVICE up; and check the cable"
                            : "check the cable, and that a subnet manager runs (opensm)"});
    return;
  }
  if (p.active_mtu < p.max_mtu && ethernet)
    out.push_back(
        {level::note, what, fmt::format("ip link set DEVICE mtu {} gives larger packets", mtu_bytes(p.max_mtu) + 104)});
  else
    out.push_back({level::good, what, {}});
  const auto addresses = addresses_of(device, port, p.gid_tbl_len);
  if (!addresses.empty())
    out.push_back({level::good,
                   fmt::format("port {} of {}: addresses {}", unsigned(port), name, fmt::join(addresses, ", ")),
                   {}});
  else
    out.push_back({ethernet ? level::wrong : level::note,
                   fmt::format("port {} of {} has no address", unsigned(port), name),
                   "give its network interface one: ip addr add ADDRESS/24 dev DEVICE"});
}

}  // namespace

void examine(std::vector<finding>& out) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) {
    out.push_back({level::wrong, "rdma-core finds no device it has a driver for",
                   "install ibverbs-providers, and see above for the kernel"});
  }
  for (int i = 0; list != nullptr && i < count; ++i) {
    const char* name = ibv_get_device_name(list[i]);
    const handle<ibv_context, ibv_close_device> device(ibv_open_device(list[i]));
    if (!device) {
      out.push_back({level::wrong, fmt::format("{} cannot be opened: {}", name, std::strerror(errno)),
                     "modprobe ib_uverbs; the package rdma-core has the udev rules for its permissions"});
      continue;
    }
    ibv_device_attr_ex x{};
    if (ibv_query_device_ex(device.get(), nullptr, &x) != 0) continue;
    const ibv_device_attr& a = x.orig_attr;
    const auto on_demand = [&x](int access) {
      const std::string lacks = on_demand_lacks(x.odp_caps, access);
      return lacks.empty() ? "yes" : lacks == "everything" ? "no" : "without " + lacks;
    };
    const bool deep = a.max_qp_wr >= int(queue_pair::depth);
    out.push_back(
        {deep ? level::good : level::wrong,
         fmt::format("{}: firmware {}, queues of {}, {} shared receive queues of {}, {} reads outstanding, regions up "
                     "to {} MiB, atomics {}, "
                     "on-demand paging of an agent's memory {}, of a program's {}",
                     name, a.fw_ver, a.max_qp_wr, a.max_srq, a.max_srq_wr, a.max_qp_rd_atom, a.max_mr_size >> 20,
                     a.atomic_cap != IBV_ATOMIC_NONE ? "yes" : "no", on_demand(region_access), on_demand(local_access)),
         deep ? std::string() : fmt::format("verbs:// needs queues of {}: use another device", queue_pair::depth)});
    for (std::uint8_t port = 1; port <= a.phys_port_cnt; ++port) examine_port(device.get(), name, port, out);
  }
  if (list != nullptr) ibv_free_device_list(list);
}

}  // namespace fm::fabric::verbs

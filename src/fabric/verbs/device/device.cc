// Opening devices, registering memory, and saying what to change where that fails; see device.h. Owns the devices that
// sessions and listeners of this process share. Nothing here throws. The client and the server half call it.
#include "device.h"

#include "base/log.h"
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "os/memlock.h"

namespace fm::fabric::verbs {
namespace {

/// Devices that this process has shares in.
struct shared_device {
  std::uint32_t shares = 0;
  bool removed = false;
};
struct shared_devices {
  std::mutex mutex;
  std::map<ibv_context*, shared_device> all;
};
shared_devices& devices() {
  static auto& d = *new shared_devices;  // sessions may end later than static objects
  return d;
}

/// Closes the kernel's files of a device; the handle's owner still closes the descriptors, which are of /dev/null then.
void close_files(const ibv_context& device) noexcept {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  bool closed = nothing >= 0;
  for (const int fd : {device.cmd_fd, device.async_fd}) closed = closed && ::dup3(nothing, fd, O_CLOEXEC) >= 0;
  if (!closed)
    log::error("the RDMA device that was removed stays open in this process, and may not go before it ends: {}",
               std::strerror(errno));
  if (nothing >= 0) ::close(nothing);
}

}  // namespace

failure system_failure(errc code, const char* what) {
  return {code, fmt::format("{}: {}", what, std::strerror(errno))};
}

failure device_share::make(rdma_event_channel* channel, rdma_cm_id* bound, device_share& out) {
  rdma_cm_id* made = nullptr;
  if (rdma_create_id(channel, &made, nullptr, RDMA_PS_TCP) != 0)
    return system_failure(errc::unsupported, "creating a connection id");
  device_share s;
  s.anchor_.reset(made);
  const sockaddr* const address = rdma_get_local_addr(bound);
  sockaddr_storage at{};
  if (address->sa_family == AF_INET6) {
    std::memcpy(&at, address, sizeof(sockaddr_in6));
    reinterpret_cast<sockaddr_in6&>(at).sin6_port = 0;
  } else {
    std::memcpy(&at, address, sizeof(sockaddr_in));
    reinterpret_cast<sockaddr_in&>(at).sin_port = 0;
  }
  if (rdma_bind_addr(made, reinterpret_cast<sockaddr*>(&at)) != 0)
    return system_failure(errc::unreachable, "binding to the RDMA device");
  if (made->verbs == nullptr || made->verbs != bound->verbs)
    return {errc::unreachable, "the RDMA device has changed meanwhile"};
  {
    const std::lock_guard lock(devices().mutex);
    shared_device& d = devices().all[made->verbs];
    if (d.removed) return {errc::unreachable, "the RDMA device is being removed"};
    ++d.shares;
    s.device_ = made->verbs;
  }
  out = std::move(s);
  return {};
}

device_share::~device_share() {
  if (device_ == nullptr) return;
  const std::lock_guard lock(devices().mutex);
  const auto found = devices().all.find(device_);
  found->second.removed = found->second.removed || removed_;
  if (--found->second.shares != 0) return;
  if (found->second.removed) close_files(*device_);
  devices().all.erase(found);
}

failure query(ibv_context* device, std::uint8_t port, limits& out) {
  ibv_device_attr d{};
  ibv_port_attr p{};
  if (ibv_query_device(device, &d) != 0 || ibv_query_port(device, port, &p) != 0)
    return system_failure(errc::unsupported, "querying the RDMA device");
  out.message_bytes_max = std::max<std::uint64_t>(p.max_msg_sz, 4096);
  out.outstanding_reads = std::uint32_t(std::clamp(std::min(d.max_qp_rd_atom, d.max_qp_init_rd_atom), 1, 64));
  out.queue_depth = std::uint32_t(std::max(d.max_qp_wr, 0));
  out.cq_depth = std::uint32_t(std::max(d.max_cqe, 0));
  out.sge_max = std::uint32_t(std::max(d.max_sge, 1));
  out.atomics = d.atomic_cap != IBV_ATOMIC_NONE;
  return {};
}

failure check_memlock(std::uint64_t bytes) {
  const os::memlock m = os::memlock_now();
  if (m.unlimited || m.locked_bytes + bytes <= m.limit_bytes) return {};
  return {errc::out_of_memory,
          fmt::format("registering {} KiB of memory for RDMA: {} KiB are locked, and RLIMIT_MEMLOCK allows {} KiB; {}",
                      bytes >> 10, m.locked_bytes >> 10, m.limit_bytes >> 10, os::memlock_fix)};
}

paging paging_of(ibv_context* device, bool wanted, int access, const std::string& user) {
  if (!wanted) return {};
  ibv_device_attr_ex x{};
  ibv_query_device_ex(device, nullptr, &x);  // a device that does not answer can do none of it
  if (const std::string lacks = on_demand_lacks(x.odp_caps, access); !lacks.empty())
    log::warn("{}: {} cannot do on-demand paging (it lacks {}): memory is locked", user,
              ibv_get_device_name(device->device), lacks);
  return {wanted, x.odp_caps};
}

failure register_memory(ibv_pd* domain, void* base, std::uint64_t bytes, int access, memory_region& out) {
  if ((access & IBV_ACCESS_ON_DEMAND) == 0)
    if (failure f = check_memlock(bytes); f.failed()) return f;
  out.reset(ibv_reg_mr(domain, base, bytes, access));
  if (out) return {};
  return system_failure(errc::out_of_memory, fmt::format("registering {} KiB of memory for RDMA", bytes >> 10).c_str());
}

slab::~slab() {
  region_.reset();
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

failure slab::make(ibv_pd* domain, std::uint64_t bytes, slab& out) {
  slab s;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) return system_failure(errc::out_of_memory, "memory for RDMA buffers");
  s.base_ = static_cast<std::byte*>(at);
  s.bytes_ = bytes;
  if (failure f = register_memory(domain, at, bytes, IBV_ACCESS_LOCAL_WRITE, s.region_); f.failed()) return f;
  out = std::move(s);
  return {};
}

failure make_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return system_failure(errc::unsupported, "fcntl");
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return {};
}

failure make_channel(event_channel& out) {
  out.reset(rdma_create_event_channel());
  if (!out)
    return {errc::unsupported,
            fmt::format("no RDMA connection manager: {}; load the module rdma_ucm, and see farmem-agent --doctor",
                        std::strerror(errno))};
  return make_non_blocking(out->fd);
}

bool next_event(rdma_event_channel* channel, connection_event& out) noexcept {
  rdma_cm_event* e = nullptr;
  if (rdma_get_cm_event(channel, &e) != 0) return false;
  out.type = e->event;
  out.status = e->status;
  out.id = e->id;
  out.device = e->id != nullptr ? e->id->verbs : nullptr;
  out.parameters = e->param.conn;
  const std::size_t n = e->param.conn.private_data != nullptr
                            ? std::min<std::size_t>(e->param.conn.private_data_len, sizeof out.private_data)
                            : 0;
  if (n != 0) std::memcpy(out.private_data, e->param.conn.private_data, n);
  out.parameters.private_data = out.private_data;
  out.parameters.private_data_len = std::uint8_t(n);
  rdma_ack_cm_event(e);
  return true;
}

}  // namespace fm::fabric::verbs

#include "device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "../memlock.h"

namespace fm::fabric::verbs {

failure system_failure(errc code, const char* what) {
  return {code, fmt::format("{}: {}", what, std::strerror(errno))};
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
  const memlock m = memlock_now();
  if (m.unlimited || m.locked_bytes + bytes <= m.limit_bytes) return {};
  return {errc::out_of_memory,
          fmt::format("registering {} KiB of memory for RDMA: {} KiB are locked, and RLIMIT_MEMLOCK allows {} KiB; {}",
                      bytes >> 10, m.locked_bytes >> 10, m.limit_bytes >> 10, memlock_fix)};
}

failure register_memory(ibv_pd* domain, void* base, std::uint64_t bytes, int access, memory_region& out) {
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

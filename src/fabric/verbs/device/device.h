// Handles of libibverbs and librdmacm that free themselves, registered memory, and what a device can do. Every failure
// is an errc with a text that says what to change; nothing here throws.
//
// Invariant: whatever is made here is freed by its handle, once. Sessions and listeners of verbs:// call it.
#pragma once

#include <rdma/rdma_cma.h>

#include "base/base.h"
#include <memory>
#include <string>
#include <utility>

#include "on_demand.h"

namespace fm::fabric::verbs {

struct failure {
  errc code = errc::ok;
  std::string text;
  [[nodiscard]] bool failed() const noexcept { return code != errc::ok; }
};

/// errno as a failure: "what: strerror".
failure system_failure(errc code, const char* what);

template <class T, auto Free>
struct freed_by {
  void operator()(T* p) const noexcept { Free(p); }
};
template <class T, auto Free>
using handle = std::unique_ptr<T, freed_by<T, Free>>;

using event_channel = handle<rdma_event_channel, rdma_destroy_event_channel>;
using connection_id = handle<rdma_cm_id, rdma_destroy_id>;
using protection_domain = handle<ibv_pd, ibv_dealloc_pd>;
using completion_channel = handle<ibv_comp_channel, ibv_destroy_comp_channel>;
using completion_queue = handle<ibv_cq, ibv_destroy_cq>;
using memory_region = handle<ibv_mr, ibv_dereg_mr>;

/// A share in this process's use of a device. librdmacm opens a device when a first id is bound to it, and keeps it
/// open, also when it was removed, until it meets a new one. A driver that cannot take a device from under its users,
/// as soft-RoCE's, waits for them: the device would never go, and so never come back. Therefore the last holder of a
/// device that was removed closes the kernel's files under librdmacm's handle; librdmacm drops the handle when it meets
/// the device's successor.
///
/// A holder has an id of its own, bound to the device and reporting to the holder's channel. So librdmacm keeps the
/// handle, and the holder hears of the removal, whatever became of other ids. Shares may be made and dropped by any
/// thread, one share by one thread at a time.
class device_share {
 public:
  device_share() = default;
  ~device_share();
  device_share(device_share&& o) noexcept
      : anchor_(std::move(o.anchor_)), device_(std::exchange(o.device_, nullptr)), removed_(o.removed_) {}
  device_share& operator=(device_share&& o) noexcept {
    std::swap(anchor_, o.anchor_);
    std::swap(device_, o.device_);
    std::swap(removed_, o.removed_);
    return *this;
  }
  /// Of the device that `bound` is bound to. Fails when the device is on its way out.
  static failure make(rdma_event_channel* channel, rdma_cm_id* bound, device_share& out);
  [[nodiscard]] ibv_context* device() const noexcept { return device_; }
  /// The device was removed (RDMA_CM_EVENT_DEVICE_REMOVAL). To be dropped once the holder has nothing of it any more.
  void removed() noexcept { removed_ = true; }

 private:
  connection_id anchor_;
  ibv_context* device_ = nullptr;
  bool removed_ = false;
};

/// What of a device's limits matters here.
struct limits {
  std::uint64_t message_bytes_max = 0;  ///< of one operation (port's max_msg_sz)
  std::uint32_t outstanding_reads = 1;  ///< max_qp_rd_atom, as initiator and as responder
  std::uint32_t queue_depth = 0;        ///< max_qp_wr
  std::uint32_t cq_depth = 0;
  std::uint32_t sge_max = 1;
  bool atomics = false;
};
failure query(ibv_context* device, std::uint8_t port, limits& out);

/// Whether `bytes` more may be locked; the failure names the limit and how to raise it. Processes with CAP_IPC_LOCK
/// have no limit.
failure check_memlock(std::uint64_t bytes);

/// What `device` can do of on-demand paging, if it is wanted; where it cannot do all that `access` needs, a warning
/// names it and `user` (an address).
paging paging_of(ibv_context* device, bool wanted, int access, const std::string& user);

/// Registers memory that stays the caller's. With IBV_ACCESS_ON_DEMAND none of it is locked.
failure register_memory(ibv_pd* domain, void* base, std::uint64_t bytes, int access, memory_region& out);

/// Anonymous memory, faulted in and registered for local use.
class slab {
 public:
  slab() = default;
  ~slab();
  slab(slab&& o) noexcept : region_(std::move(o.region_)), base_(std::exchange(o.base_, nullptr)), bytes_(o.bytes_) {}
  slab& operator=(slab&& o) noexcept {
    std::swap(region_, o.region_);
    std::swap(base_, o.base_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  static failure make(ibv_pd* domain, std::uint64_t bytes, slab& out);
  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::uint32_t key() const noexcept { return region_->lkey; }

 private:
  memory_region region_;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// A channel for connection events that does not block.
failure make_channel(event_channel& out);
failure make_non_blocking(int fd);

/// Takes the next event, if there is one: a copy whose private data points into `private_data`. The event has been
/// acknowledged when this returns.
struct connection_event {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  ibv_context* device = nullptr;  ///< that the id was bound to
  rdma_conn_param parameters{};
  std::byte private_data[256]{};
};
bool next_event(rdma_event_channel* channel, connection_event& out) noexcept;

}  // namespace fm::fabric::verbs

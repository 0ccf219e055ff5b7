// Handles of libibverbs and librdmacm that free themselves, registered memory, and what a device can do. Every failure
// is an errc with a text that says what to change; nothing here throws.
#pragma once

#include <rdma/rdma_cma.h>

#include <farmem/base.h>
#include <memory>
#include <string>
#include <utility>

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

/// Registers memory that stays the caller's.
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
  rdma_conn_param parameters{};
  std::byte private_data[256]{};
};
bool next_event(rdma_event_channel* channel, connection_event& out) noexcept;

}  // namespace fm::fabric::verbs

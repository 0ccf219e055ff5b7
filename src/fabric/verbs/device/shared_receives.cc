// Making the shared receive queue of a session, and posting its buffers; see shared_receives.h. Called by the
// listener's thread alone.
#include "shared_receives.h"

#include "base/log.h"

namespace fm::fabric::verbs {

std::unique_ptr<shared_receives> shared_receives::make(ibv_pd* domain, std::uint32_t lanes) {
  std::unique_ptr<shared_receives> s(new shared_receives(lanes));
  ibv_device_attr d{};
  if (ibv_query_device(domain->context, &d) != 0 || d.max_srq < 1 || d.max_srq_sge < 1 || d.max_srq_wr < int(s->count_))
    return nullptr;
  ibv_srq_init_attr a{};
  a.attr.max_wr = s->count_;
  a.attr.max_sge = 1;
  s->queue_.reset(ibv_create_srq(domain, &a));
  if (!s->queue_) return nullptr;  // all that it has are in use
  if (failure f = slab::make(domain, std::uint64_t(s->count_) * packet::bytes_max, s->buffers_); f.failed()) {
    log::debug("verbs: {}", f.text);
    return nullptr;
  }
  for (std::uint32_t i = 0; i < s->count_; ++i)
    if (!s->post(i)) return nullptr;
  return s;
}

bool shared_receives::post(std::uint64_t i) noexcept {
  ibv_sge s{reinterpret_cast<std::uintptr_t>(buffer(i)), packet::bytes_max, buffers_.key()};
  ibv_recv_wr w{};
  w.wr_id = receive_mark | i;
  w.sg_list = &s;
  w.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  if (ibv_post_srq_recv(queue_.get(), &w, &refused) != 0) return false;
  ++posted_;
  return true;
}

}  // namespace fm::fabric::verbs

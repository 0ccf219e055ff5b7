// The client half of verbs://. A TCP connection begins a session and brings its one-time id; every lane is a queue
// pair, connected by the connection manager, that presents it. The TCP connection stays and carries the requests about
// regions: attach() asks the agent to register a region for this session and learns its address and key, detach() ends
// that, before the agent hears that the region may go.
//
// The connection manager's channel and the end of the TCP connection are watched with the lanes, by the session thread
// and by whoever sleeps on a lane: a peer that died shows there, while posted work would wait for a long time.
#pragma once

#include "base/limits.h"
#include "fabric/wire/url.h"

#include "fabric/client/lane_session.h"
#include "lane.h"

namespace fm::fabric::verbs {

class verbs_session final : public lane_session, private lane_home {
 public:
  verbs_session(const std::string& url, const session_options& options, session_events& events);
  ~verbs_session() override;

  errc attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes, memory_key key) noexcept override;
  void detach(std::uint32_t region) noexcept override;
  std::byte* direct(std::uint32_t) noexcept override { return nullptr; }
  void lend(std::byte* base, std::uint64_t bytes, std::uint64_t slab_bytes) override {
    memory_.lend(base, bytes, slab_bytes);
  }
  void take_back(std::byte* base, std::uint64_t bytes, bool for_good) noexcept override {
    memory_.take_back(base, bytes, for_good);
  }
  [[nodiscard]] std::uint64_t bounced_bytes() const noexcept override {
    return bounced_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t events_index = ~0u - 1;  ///< in lane_epoll()
  static constexpr std::uint32_t control_index = ~0u - 2;

  // driver
  errc dial(std::uint32_t generation, time_point deadline) override;
  void hang_up(errc why) noexcept override;
  void interrupt(std::uint32_t generation, errc why) noexcept override;
  // lane_session
  void on_watched(std::uint32_t index) noexcept override;
  // lane_home
  [[nodiscard]] const region_keys& regions() const noexcept override { return regions_; }
  [[nodiscard]] local_memory& memory() noexcept override { return memory_; }
  void count_bounced(std::uint64_t bytes) noexcept override { bounced_.fetch_add(bytes, std::memory_order_relaxed); }
  [[nodiscard]] int events_fd() const noexcept override { return events_->fd; }
  void take_events() noexcept override;

  failure dial_lanes(std::uint32_t generation, time_point deadline);
  failure greet(std::uint32_t generation, time_point deadline, packet::welcome& w);
  failure connect_lane(std::uint32_t index, const packet::welcome& w, time_point deadline, lane_connection& out);
  failure next_step(rdma_cm_id* id, rdma_cm_event_type wanted, time_point deadline, connection_event& got);
  failure use_device(rdma_cm_id* bound, bool first);
  /// Whether the event tells of the removal of the device in use, which is noted.
  bool note_removal(const connection_event& e) noexcept;
  void leave_removed_device() noexcept;
  errc ask(const packet::region_request& q, packet::region_answer& a) noexcept;
  void ask_to_detach(std::uint32_t region) noexcept;
  void watch(int fd, std::uint32_t index, std::uint32_t events) noexcept;
  verbs_lane& lane_at(std::uint32_t index) noexcept { return static_cast<verbs_lane&>(*lanes_[index]); }

  event_channel events_;
  device_share device_;
  protection_domain domain_;  ///< on it; kept from connection to connection, because memory is registered with it
  std::atomic<ibv_context*> used_device_{nullptr};  ///< device_'s, for whoever takes events
  std::atomic<bool> device_gone_{false};
  region_keys regions_;
  local_memory memory_;
  std::atomic<std::uint64_t> bounced_{0};

  std::mutex control_mutex_;  ///< one question about a region at a time
  descriptor control_;
  std::mutex end_mutex_;  ///< control_ is shut down while it exists
  std::uint32_t control_generation_ = 0;
};

}  // namespace fm::fabric::verbs

// The client half of tcp:// and shm://: a session over stream connections. tcp has a control lane, several fetch lanes
// and a bulk lane, each a connection of its own; shm has one connection for messages, and does one-sided operations by
// copying on the mapped regions while they are posted.
#pragma once

#include "fabric/wire/url.h"

#include "fabric/client/lane_session.h"
#include "fabric/client/region_map.h"
#include "stream_lane.h"

namespace fm::fabric {

class stream_session final : public lane_session {
 public:
  stream_session(const address& to, const std::string& url, const session_options& options, session_events& events);
  ~stream_session() override;

  errc attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes, memory_key key) noexcept override;
  void detach(std::uint32_t region) noexcept override;
  std::byte* direct(std::uint32_t region) noexcept override;
  void touch_ahead(std::uint32_t region, std::uint64_t bytes) noexcept override;
  void forget_memory() noexcept override;
  errc open_stream(std::uint16_t index, time_point deadline, descriptor& socket) noexcept override;

 private:
  struct greeting {
    std::uint64_t token[2] = {0, 0};
    std::uint32_t requests_in_flight = 0;
  };

  errc dial(std::uint32_t generation, time_point deadline) override;
  bool perform_here(request& r, errc& status) noexcept override;
  errc greet(int socket, std::uint16_t lane, std::uint16_t index, std::uint32_t generation, time_point deadline,
             greeting& known) noexcept;
  stream_lane& lane_at(std::uint32_t index) noexcept { return static_cast<stream_lane&>(*lanes_[index]); }

  const bool shared_memory_;
  region_map regions_;  ///< shm only
  greeting greeting_;   ///< of the connection that was made last; the session thread's
};

}  // namespace fm::fabric

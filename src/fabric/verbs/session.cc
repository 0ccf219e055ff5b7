// Dialling a verbs session, its control connection, and the events of its devices; see session.h. Owns the lanes'
// connections from dial to hang_up. Called by the session thread; attach and detach come from the session's owner.
#include "session.h"
#include "base/limits.h"

#include "base/log.h"
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace fm::fabric::verbs {

verbs_session::verbs_session(const std::string& url, const session_options& options, session_events& events)
    : lane_session(url, options, events, fetch_lanes_of(options), false) {
  if (failure f = make_channel(events_); f.failed()) throw error(f.code, fmt::format("{}: {}", url, f.text));
  for (std::uint32_t i = 0; i < lane_count(); ++i)
    lanes_.push_back(std::make_unique<verbs_lane>(static_cast<lane_owner&>(*this), static_cast<lane_home&>(*this), i,
                                                  options.requests_in_flight, options.message_bytes_max));
}

verbs_session::~verbs_session() {
  close();
  leave_removed_device();
  memory_.use(nullptr);
}

void verbs_session::watch(int fd, std::uint32_t index, std::uint32_t events) noexcept {
  epoll_event e{};
  e.events = events;
  e.data.u32 = index;
  ::epoll_ctl(lane_epoll(), EPOLL_CTL_ADD, fd, &e);
}

failure verbs_session::greet(std::uint32_t generation, time_point deadline, packet::welcome& w) {
  packet::hello h{};
  h.magic = packet::magic;
  h.major = packet::version_major;
  h.minor = packet::version_minor;
  h.lanes = std::uint16_t(lane_count());
  h.generation = generation;
  h.message_bytes_max = std::min(options_.message_bytes_max, wire::message_bytes_limit);
  if (const errc e = send_all(control_.get(), std::as_bytes(std::span(&h, 1)), deadline); e != errc::ok) return {e, {}};
  std::array<std::byte, sizeof(packet::welcome)> answer;
  if (const errc e = receive_all(control_.get(), answer, deadline); e != errc::ok) return {e, {}};
  if (const auto d = packet::decode_welcome(answer, w); d.code != errc::ok)
    return {d.code == errc::version_mismatch ? d.code : errc::bad_frame, d.reason};
  return {static_cast<errc>(w.status), {}};
}

/// Waits for the connection manager's next word on `id`.
failure verbs_session::next_step(rdma_cm_id* id, rdma_cm_event_type wanted, time_point deadline,
                                 connection_event& got) {
  for (;;) {
    while (!next_event(events_.get(), got)) {
      pollfd p{events_->fd, POLLIN, 0};
      if (!wait_sockets({&p, 1}, deadline)) return {errc::timed_out, {}};
    }
    note_removal(got);
    if (got.id != id) {
      if (got.type == RDMA_CM_EVENT_DISCONNECTED || got.type == RDMA_CM_EVENT_DEVICE_REMOVAL)
        return {errc::unreachable, "a lane was closed while the others were being connected"};
      continue;
    }
    if (got.type == wanted) return {};
    const errc e = got.type == RDMA_CM_EVENT_REJECTED ? errc::stale : errc::unreachable;
    return {e, fmt::format("{} ({})", rdma_event_str(got.type), got.status)};
  }
}

bool verbs_session::note_removal(const connection_event& e) noexcept {
  // The address may lead to another device by now, of which something was held for a moment only.
  if (e.type != RDMA_CM_EVENT_DEVICE_REMOVAL || e.device != used_device_.load()) return false;
  if (!device_gone_.exchange(true)) log::warn("{}: the RDMA device was removed", url());
  return true;
}

failure verbs_session::use_device(rdma_cm_id* bound, bool first) {
  if (bound->verbs == device_.device() && domain_) return {};
  if (!first) return {errc::unreachable, "the lanes of one session lead to different RDMA devices"};
  memory_.use(nullptr);
  domain_.reset();
  used_device_ = nullptr;
  device_ = device_share();
  if (failure f = device_share::make(events_.get(), bound, device_); f.failed()) return f;
  used_device_ = device_.device();
  domain_.reset(ibv_alloc_pd(device_.device()));
  if (!domain_) return system_failure(errc::out_of_memory, "a protection domain");
  memory_.use(domain_.get(), paging_of(device_.device(), options_.on_demand_paging, local_access, url()));
  return {};
}

failure verbs_session::connect_lane(std::uint32_t index, const packet::welcome& w, time_point deadline,
                                    lane_connection& out) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (::getpeername(control_.get(), reinterpret_cast<sockaddr*>(&peer), &length) != 0)
    return system_failure(errc::unreachable, "getpeername");
  if (peer.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&peer)->sin6_port = htons(w.port);
  else
    reinterpret_cast<sockaddr_in*>(&peer)->sin_port = htons(w.port);

  rdma_cm_id* made = nullptr;
  if (rdma_create_id(events_.get(), &made, nullptr, RDMA_PS_TCP) != 0)
    return system_failure(errc::unsupported, "creating a connection id");
  out.id.reset(made);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now()).count();
  const int timeout_ms = int(std::clamp<long>(left, 1, 60'000));
  connection_event got;
  if (rdma_resolve_addr(made, nullptr, reinterpret_cast<sockaddr*>(&peer), timeout_ms) != 0)
    return system_failure(errc::unreachable, "no RDMA device leads to that address; see farmem-agent --doctor");
  if (failure f = next_step(made, RDMA_CM_EVENT_ADDR_RESOLVED, deadline, got); f.failed()) {
    if (got.type == RDMA_CM_EVENT_ADDR_ERROR) f.text += "; no RDMA device leads there, see farmem-agent --doctor";
    return f;
  }
  if (rdma_resolve_route(made, timeout_ms) != 0) return system_failure(errc::unreachable, "resolving the route");
  if (failure f = next_step(made, RDMA_CM_EVENT_ROUTE_RESOLVED, deadline, got); f.failed()) return f;

  if (failure f = use_device(made, index == 0); f.failed()) return f;
  out.channel.reset(ibv_create_comp_channel(made->verbs));
  if (!out.channel) return system_failure(errc::out_of_memory, "a completion channel");
  if (failure f = make_non_blocking(out.channel->fd); f.failed()) return f;
  out.qp = std::make_unique<queue_pair>();
  if (failure f = out.qp->create(made, domain_.get(), out.channel.get(), nullptr); f.failed()) return f;
  if (failure f = slab::make(domain_.get(), std::uint64_t(verbs_lane::bounces) * verbs_lane::bounce_bytes, out.bounce);
      f.failed())
    return f;

  packet::join j{};
  j.magic = packet::magic;
  j.major = packet::version_major;
  j.length = sizeof j;
  j.lane = std::uint16_t(index);
  std::memcpy(j.id, w.id, sizeof j.id);
  j.credits = out.qp->own_credits();
  std::uint8_t timeout = queue_pair::ack_timeout();
  rdma_set_option(made, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);  // older kernels: theirs
  rdma_conn_param p = out.qp->parameters(&j, sizeof j);
  if (rdma_connect(made, &p) != 0) return system_failure(errc::unreachable, "connecting a lane");
  if (failure f = next_step(made, RDMA_CM_EVENT_ESTABLISHED, deadline, got); f.failed()) return f;
  packet::joined answer{};
  const std::span<const std::byte> data(got.private_data, got.parameters.private_data_len);
  if (const auto d = packet::decode_joined(data, answer); d.code != errc::ok) return {errc::bad_frame, d.reason};
  out.qp->connected(answer.credits, std::min(got.parameters.initiator_depth, got.parameters.responder_resources));
  return {};
}

failure verbs_session::dial_lanes(std::uint32_t generation, time_point deadline) {
  descriptor socket;
  if (const errc e = connect_socket(destination(), deadline, socket); e != errc::ok) return {e, {}};
  {
    const std::lock_guard lock(end_mutex_);
    control_ = std::move(socket);
    control_generation_ = generation;
  }
  packet::welcome w{};
  if (failure f = greet(generation, deadline, w); f.failed()) return f;
  progressed();
  std::vector<lane_connection> made(lanes_.size());
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    failure f = connect_lane(i, w, attempt_deadline(), made[i]);
    if (f.failed()) {
      for (lane_connection& l : made) {
        l.qp.reset();  // before its id
        l.bounce = slab();
      }
      return f;
    }
    progressed();
  }
  const std::uint32_t credit = std::clamp(std::min(options_.requests_in_flight, w.requests_in_flight), 1u, 1u << 20);
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) lane_at(i).open(std::move(made[i]), generation, credit);
  watch(events_->fd, events_index, EPOLLIN);
  watch(control_.get(), control_index, EPOLLRDHUP | EPOLLONESHOT);
  return {};
}

/// It does not go while anything of it is held. Called while there is no connection.
void verbs_session::leave_removed_device() noexcept {
  connection_event old;
  while (next_event(events_.get(), old)) note_removal(old);
  if (!device_gone_.exchange(false)) return;
  memory_.use(nullptr);
  domain_.reset();
  device_.removed();
  used_device_ = nullptr;
  device_ = device_share();
}

errc verbs_session::dial(std::uint32_t generation, time_point deadline) {
  leave_removed_device();
  failure f;
  try {
    f = dial_lanes(generation, deadline);
  } catch (const std::bad_alloc&) {
    f = {errc::out_of_memory, {}};
  }
  if (!f.failed()) return errc::ok;
  explain(f.text);
  leave_removed_device();
  const std::lock_guard lock(end_mutex_);
  control_.reset();
  return f.code;
}

void verbs_session::interrupt(std::uint32_t generation, errc why) noexcept {
  {
    const std::lock_guard lock(end_mutex_);
    if (control_ && control_generation_ == generation) ::shutdown(control_.get(), SHUT_RDWR);
  }
  lane_session::interrupt(generation, why);
}

void verbs_session::hang_up(errc why) noexcept {
  ::epoll_ctl(lane_epoll(), EPOLL_CTL_DEL, events_->fd, nullptr);
  regions_.clear();
  lane_session::hang_up(why);
  {
    const std::lock_guard ask(control_mutex_);
    const std::lock_guard lock(end_mutex_);
    control_.reset();
  }
  leave_removed_device();
}

void verbs_session::take_events() noexcept {
  connection_event e;
  while (next_event(events_.get(), e)) {
    if (note_removal(e) || e.type == RDMA_CM_EVENT_DISCONNECTED) break_connection(generation(), errc::disconnected);
  }
}

void verbs_session::on_watched(std::uint32_t index) noexcept {
  if (index == events_index) return take_events();
  break_connection(generation(), errc::disconnected);  // the control connection has ended
}

errc verbs_session::ask(const packet::region_request& q, packet::region_answer& a) noexcept {
  const std::lock_guard lock(control_mutex_);
  if (!control_) return errc::disconnected;
  const std::uint32_t g = generation();
  const time_point deadline = clock::now() + fabric_limits::region_within;
  errc e = send_all(control_.get(), std::as_bytes(std::span(&q, 1)), deadline);
  if (e == errc::ok) e = receive_all(control_.get(), std::as_writable_bytes(std::span(&a, 1)), deadline);
  if (e == errc::ok && a.status > wire::status_last) e = errc::bad_frame;
  if (e == errc::ok) return static_cast<errc>(a.status);
  break_connection(g, errc::disconnected);  // whatever comes later would be taken for the next answer
  return e == errc::unreachable ? errc::disconnected : e;
}

errc verbs_session::attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes,
                           memory_key key) noexcept {
  if (key.fd >= 0) ::close(key.fd);
  if (const errc e = admit(lane::control); e != errc::ok) return e;
  if (bytes == 0) return errc::invalid_argument;
  packet::region_request q{};
  q.verb = std::uint32_t(packet::verb::attach);
  q.region = region;
  q.generation = generation;
  q.bytes = bytes;
  packet::region_answer a{};
  const std::uint32_t connection = this->generation();
  if (const errc e = ask(q, a); e != errc::ok) return e;
  try {
    regions_.set(region, {generation, connection, a.rkey, a.address, bytes, a.writable != 0});
  } catch (const std::bad_alloc&) {
    ask_to_detach(region);
    return errc::out_of_memory;
  }
  return errc::ok;
}

void verbs_session::detach(std::uint32_t region) noexcept {
  if (regions_.forget(region)) ask_to_detach(region);
}

void verbs_session::ask_to_detach(std::uint32_t region) noexcept {
  packet::region_request q{};
  q.verb = std::uint32_t(packet::verb::detach);
  q.region = region;
  packet::region_answer a{};
  ask(q, a);
}

}  // namespace fm::fabric::verbs

// Dialling over sockets, on the session thread, and the one-sided operations of shm://, which are copies on the mapped
// regions; see stream_session.h.
#include "stream_session.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fabric/stream/stream_transport.h"
#include "fabric/wire/one_sided.h"

namespace fm::fabric {

stream_session::stream_session(const address& to, const std::string& url, const session_options& options,
                               session_events& events)
    : lane_session(url, options, events, to.scheme == "shm" ? 0 : fetch_lanes_of(options), to.scheme == "shm"),
      shared_memory_(to.scheme == "shm"),
      regions_(options.writes_regions ? os::written_by::all : os::written_by::maker) {
  for (std::uint32_t i = 0; i < lane_count(); ++i)
    lanes_.push_back(std::make_unique<stream_lane>(static_cast<lane_owner&>(*this), i, options.requests_in_flight,
                                                   options.message_bytes_max, shared_memory_));
}

stream_session::~stream_session() { close(); }

errc stream_session::greet(int socket, std::uint16_t lane, std::uint16_t index, std::uint32_t generation,
                           time_point deadline, greeting& known) noexcept {
  using namespace wire;
  struct {
    frame_header header = make_header(frame_type::hello, sizeof(hello_body));
    hello_body body{};
  } hello;
  static_assert(sizeof hello == sizeof(frame_header) + sizeof(hello_body));
  hello.body.lane = lane;
  hello.body.lane_index = index;
  hello.body.generation = generation;
  std::memcpy(hello.body.token, known.token, sizeof known.token);
  hello.body.message_bytes_max = std::min(options_.message_bytes_max, message_bytes_limit);
  if (const errc e = send_all(socket, std::as_bytes(std::span(&hello, 1)), deadline); e != errc::ok) return e;

  std::array<std::byte, sizeof(frame_header)> head;
  if (const errc e = receive_all(socket, head, deadline); e != errc::ok) return e;
  frame_header h;
  if (const auto d = decode_header(head, receiver::client, 0, h); d.code != errc::ok)
    return d.code == errc::version_mismatch ? d.code : errc::bad_frame;
  if (h.type != std::uint8_t(frame_type::welcome)) return errc::bad_frame;
  std::array<std::byte, sizeof(welcome_body)> payload;
  if (const errc e = receive_all(socket, payload, deadline); e != errc::ok) return e;
  if (const errc e = status_of(h); e != errc::ok) return e;
  welcome_body w;
  if (decode_welcome(payload, w).code != errc::ok) return errc::bad_frame;
  std::memcpy(known.token, w.token, sizeof known.token);
  known.requests_in_flight = w.requests_in_flight;
  return errc::ok;
}

errc stream_session::dial(std::uint32_t generation, time_point deadline) {
  std::vector<descriptor> sockets(lanes_.size());
  greeting known;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    if (const errc e = connect_socket(destination(), deadline, sockets[i]); e != errc::ok) return e;
    const errc e = greet(sockets[i].get(), std::uint16_t(kind_of(i)), std::uint16_t(i), generation, deadline, known);
    if (e != errc::ok) return e;
    progressed();
    deadline = attempt_deadline();
  }
  greeting_ = known;
  const std::uint32_t credit =
      std::clamp(std::min(options_.requests_in_flight, known.requests_in_flight), 1u, 1u << 20);
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) lane_at(i).open(std::move(sockets[i]), generation, credit);
  return errc::ok;
}

errc stream_session::open_stream(std::uint16_t index, time_point deadline, descriptor& socket) noexcept {
  if (shared_memory_ || !on_session_thread()) return errc::unsupported;
  descriptor s;
  if (const errc e = connect_socket(destination(), deadline, s); e != errc::ok) return e;
  greeting known = greeting_;
  const errc e = greet(s.get(), wire::lane_stream, index, std::max(generation(), 1u), deadline, known);
  if (e == errc::ok) socket = std::move(s);
  return e;
}

/// One-sided operations over shared memory: a copy, now. False when the request has to go over the connection: a fenced
/// one waits there behind the messages before it.
///
/// Memory is forgotten after the session was lost. So a copy that may have met zeroes instead of the agent's bytes finds
/// the session lost afterwards.
bool stream_session::perform_here(request& r, errc& status) noexcept {
  if (!shared_memory_ || r.kind == op_kind::message) return false;
  if (r.fence && messages_.load(std::memory_order_seq_cst) != 0) return false;
  if (r.deadline != time_point::max() && r.deadline <= clock::now()) {
    status = errc::timed_out;
    return true;
  }
  std::byte* at = regions_.find(r.where, one_sided_bytes(r), r.kind != op_kind::read);
  status = at ? apply_one_sided(r, at) : errc::access_denied;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (current() == phase::lost) status = errc::agent_lost;
  return true;
}

errc stream_session::attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes,
                            memory_key key) noexcept {
  if (shared_memory_) return regions_.attach(region, generation, bytes, key);
  if (key.fd >= 0) ::close(key.fd);
  return errc::ok;
}

void stream_session::detach(std::uint32_t region) noexcept {
  if (shared_memory_) regions_.detach(region);
}

void stream_session::touch_ahead(std::uint32_t region, std::uint64_t) noexcept {
  if (shared_memory_) regions_.touch_ahead(region);
}

void stream_session::forget_memory() noexcept {
  FM_CHECK(current() == phase::lost, "memory of a session that may come back is in use");
  regions_.forget_memory();
}

std::byte* stream_session::direct(std::uint32_t region) noexcept {
  return shared_memory_ ? regions_.base(region) : nullptr;
}

namespace {

std::unique_ptr<session> connect_stream(const address& to, const std::string& url, const session_options& options,
                                        session_events& events, service*) {
  auto s = std::make_unique<stream_session>(to, url, options, events);
  s->start();
  return s;
}

}  // namespace

const transport tcp_transport = {transport_abi, "tcp", connect_stream, listen_stream, nullptr};
const transport shm_transport = {transport_abi, "shm", connect_stream, listen_stream, nullptr};

}  // namespace fm::fabric

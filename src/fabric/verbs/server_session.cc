// The control connection of one session, its lanes, and the regions that are registered for it; see server_session.h.
// Owns the order in which a session ends: queue pairs, registrations, then service::disconnected. Called by the
// listener's thread, but for notify, close and the destructor.
#include "server_session.h"

#include "base/log.h"
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>

namespace fm::fabric::verbs {

server_session::server_session(session_host& host, descriptor control, std::uint64_t number, std::string name)
    : host_(host), control_(std::move(control)), number_(number), name_(std::move(name)), progress_(clock::now()) {
  while (::getrandom(id_, sizeof id_, 0) != sizeof id_) {
  }
}

void server_session::close_lanes() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  lanes_.clear();
}

server_session::~server_session() {
  close_lanes();
  while (!regions_.empty()) detach(regions_.begin()->first);
  if (greeted_) host_.served().disconnected(*this);
}

bool server_session::notify(std::span<const std::byte> payload) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (ending_ || unacknowledged_ >= wire::notices_max || payload.size() > client_message_max_) return false;
    try {
      notices_.emplace_back(payload.begin(), payload.end());
    } catch (const std::bad_alloc&) {
      return false;  // as if there was no room
    }
    ++unacknowledged_;
  }
  host_.attention(number_);
  return true;
}

void server_session::close(errc why, std::string_view reason) noexcept {
  log::warn("{}: connection closed: {}: {}", name_, to_string(why), reason);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  host_.attention(number_);
}

void server_session::violation(errc why, const char* reason) noexcept {
  log::warn("{}: connection closed: {}: {}", name_, to_string(why), reason);
}

bool server_session::notices_handled(std::uint32_t count) noexcept {
  const std::lock_guard lock(mutex_);
  if (count > unacknowledged_) return false;
  unacknowledged_ -= count;
  return true;
}

bool server_session::on_attention() noexcept try {
  std::deque<std::vector<std::byte>> notices;
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return false;
    if (!open_) return true;  // on_established sends them
    notices.swap(notices_);
  }
  for (auto& n : notices) lanes_[0]->send_notice(std::move(n));
  return lanes_[0]->pump();
} catch (const std::bad_alloc&) {
  violation(errc::out_of_memory, "no memory for a notice");
  return false;
}

bool server_session::answer_control(std::span<const std::byte> bytes) noexcept {
  // A few bytes, on a connection whose client waits for them: what the socket does not take at once, a client does that
  // does not follow the protocol.
  return send_all(control_.get(), bytes, clock::now()) == errc::ok;
}

bool server_session::on_control_readable() noexcept try {
  std::array<std::byte, 256> buffer;
  const iovec to{buffer.data(), buffer.size()};
  const io_result got = receive_some(control_.get(), {&to, 1}, nullptr);
  if (got.outcome == io_result::gone) return false;
  if (got.outcome == io_result::again) return true;
  received_.insert(received_.end(), buffer.begin(), buffer.begin() + got.bytes);
  for (;;) {
    const std::size_t wanted = greeted_ ? sizeof(packet::region_request) : sizeof(packet::hello);
    if (received_.size() < wanted) return true;
    if (!(greeted_ ? region_asked() : hello())) return false;
    received_.erase(received_.begin(), received_.begin() + std::ptrdiff_t(wanted));
  }
} catch (const std::bad_alloc&) {
  violation(errc::out_of_memory, "no memory for what a client asks");
  return false;
}

bool server_session::hello() {
  packet::hello h;
  const auto d = packet::decode_hello(
      std::span<const std::byte, sizeof(packet::hello)>(received_.data(), sizeof(packet::hello)), h);
  packet::welcome w{};
  w.magic = packet::magic;
  w.major = packet::version_major;
  w.minor = packet::version_minor;
  errc e = d.code;
  if (e == errc::ok) {
    client_message_max_ = h.message_bytes_max;
    lanes_.resize(h.lanes);
    e = host_.served().connected(*this);
    greeted_ = e == errc::ok;
  }
  w.status = std::uint16_t(e);
  progress_ = clock::now();
  if (greeted_) {
    std::memcpy(w.id, id_, sizeof w.id);
    w.incarnation = host_.incarnation();
    w.message_bytes_max = host_.limits().message_bytes_max;
    w.requests_in_flight = host_.limits().requests_in_flight;
    w.port = host_.port();
  } else {
    log::warn("{}: session refused: {}{}{}", name_, to_string(e), d.reason ? ": " : "", d.reason ? d.reason : "");
  }
  return answer_control(std::as_bytes(std::span(&w, 1))) && greeted_;
}

bool server_session::region_asked() {
  packet::region_request q;
  const auto d = packet::decode_region_request(
      std::span<const std::byte, sizeof(packet::region_request)>(received_.data(), sizeof(packet::region_request)), q);
  if (d.code != errc::ok || !domain_) {
    violation(errc::bad_frame, d.reason != nullptr ? d.reason : "a region before the lanes");
    return false;
  }
  packet::region_answer a{};
  if (static_cast<packet::verb>(q.verb) == packet::verb::attach)
    a.status = std::uint16_t(attach(q, a));
  else
    detach(q.region);
  return answer_control(std::as_bytes(std::span(&a, 1)));
}

errc server_session::attach(const packet::region_request& q, packet::region_answer& a) {
  detach(q.region);
  service& s = host_.served();
  const remote whole{q.region, q.generation, 0};
  // Its place comes first: the region is entered only when nothing can fail but its registration.
  registered& r = regions_[q.region];
  std::byte* base = s.memory(*this, whole, q.bytes, access::read);
  if (base == nullptr) {
    regions_.erase(q.region);
    return errc::access_denied;
  }
  // Nothing at its beginning may be written: asks whether the region takes writes at all.
  const bool writable = s.memory(*this, whole, 0, access::write) != nullptr;
  if (writable) s.memory_done(*this, q.region);
  r.region = q.region;
  r.generation = q.generation;
  const int flags = writable ? region_access : IBV_ACCESS_REMOTE_READ;
  if (const failure f = register_memory(domain_.get(), base, q.bytes, memory_.flags(flags), r.key); f.failed()) {
    log::error("{}: region {}: {}", name_, q.region, f.text);
    detach(q.region);
    return f.code;
  }
  a.writable = writable ? 1 : 0;
  a.rkey = r.key->rkey;
  a.address = reinterpret_cast<std::uintptr_t>(base);
  return errc::ok;
}

void server_session::detach(std::uint32_t region) noexcept {
  const auto found = regions_.find(region);
  if (found == regions_.end()) return;
  found->second.key.reset();
  regions_.erase(found);
  host_.served().memory_done(*this, region);
}

bool server_session::join(rdma_cm_id* id, const packet::join& j, const rdma_conn_param& asked,
                          ibv_comp_channel* channel, const paging& memory) noexcept try {
  if (open_ || j.lane >= lanes_.size() || lanes_[j.lane]) return false;
  if (!domain_) {
    domain_.reset(ibv_alloc_pd(id->verbs));
    device_ = id->verbs;
    memory_ = memory;
    if (domain_) receives_ = shared_receives::make(domain_.get(), std::uint32_t(lanes_.size()));
  }
  if (!domain_ || device_ != id->verbs) return false;
  auto l = std::make_unique<server_lane>(static_cast<lane_service&>(*this), number_, host_.limits().message_bytes_max,
                                         client_message_max_);
  failure f;
  try {
    f = l->create(id, domain_.get(), channel, receives_.get(), j.lane);
    if (!f.failed()) f = l->accept(j, asked);
  } catch (const std::bad_alloc&) {
    f.code = errc::out_of_memory;
  }
  if (f.failed()) log::error("{}: lane {}: {}: {}", name_, j.lane, to_string(f.code), f.text);
  if (!f.failed()) lanes_[j.lane] = std::move(l);
  progress_ = clock::now();
  return true;  // the id is taken over
} catch (const std::bad_alloc&) {
  return false;
}

bool server_session::has(const rdma_cm_id* id) const noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(), [id](const auto& l) { return l && l->id() == id; });
}

bool server_session::on_established(const rdma_cm_id* id) noexcept {
  std::size_t standing = 0;
  for (auto& l : lanes_) {
    if (l && l->id() == id) l->established = true;
    standing += l && l->established ? 1 : 0;
  }
  if (standing != lanes_.size()) return true;
  open_ = true;
  return on_attention();
}

}  // namespace fm::fabric::verbs

// The listener's end of channels: hellos, streams, and ends that wait to be accepted; see listener.h. Owns the list of
// those that listen on a "local:NAME". The fabric's threads call it as a service; programs call open, find, accept and
// shut.
#include "listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "channel/path/ring.h"
#include "channel/path/stream.h"

namespace fm::detail {

using namespace channel_wire;

namespace {

/// Those that listen on "local:NAME".
struct local_listeners {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<channel_listener_core>, std::less<>> by_url;
};
local_listeners& locals() {
  static auto* l = new local_listeners;  // outlives every channel in a static
  return *l;
}
const os::fork_guard names_at_fork(
    os::fork_rank::leaves, []() noexcept { locals().mutex.lock(); }, []() noexcept { locals().mutex.unlock(); },
    []() noexcept { locals().mutex.unlock(); });

}  // namespace

// ---- a peer's way out ----

std::span<std::byte> peer_transport::room(std::size_t bytes) {
  buffer_.resize(std::max(buffer_.size(), bytes));
  return {buffer_.data(), bytes};
}

errc peer_transport::send(std::size_t bytes, time_point) noexcept { return tell({buffer_.data(), bytes}); }

// Credit keeps what is on its way below what a peer may have waiting, so a full queue means a peer that does not play
// by the rules.
errc peer_transport::tell(std::span<const std::byte> message) noexcept {
  const std::lock_guard lock(way_->mutex);
  return way_->peer && way_->peer->notify(message) ? errc::ok : errc::disconnected;
}

void peer_transport::drop() noexcept {
  const std::lock_guard lock(way_->mutex);
  if (way_->peer) way_->peer->close(errc::bad_frame, "the other end of a channel broke the rules");
}

void peer_transport::close() noexcept {
  const std::lock_guard lock(way_->mutex);
  if (way_->peer) way_->peer->finish();
}

// ---- the listener ----

channel_listener_core::channel_listener_core(std::string_view url, const channel_options& options)
    : options_(options), url_(url) {}

std::shared_ptr<channel_listener_core> channel_listener_core::open(std::string_view url,
                                                                   const channel_options& options) {
  (void)channel_terms::of(options);
  std::shared_ptr<channel_listener_core> h(new channel_listener_core(url, options));
  if (url.starts_with("local:")) {
    local_listeners& l = locals();
    const std::lock_guard lock(l.mutex);
    std::weak_ptr<channel_listener_core>& place = l.by_url[h->url_];
    if (const auto there = place.lock(); there != nullptr && !there->is_parents())
      throw error(errc::invalid_argument, fmt::format("'{}' has a listener already", url));
    place = h;
    return h;
  }
  fabric::listen_options o;
  o.insecure = options.insecure;
  o.connections_max = options.channels_max * 4 + 16;  // a session has several
  o.message_bytes_max = std::max<std::uint32_t>(part_bytes_max, text_bytes_max) + 4096;
  h->listener_ = fabric::listen(url, o, *h);
  h->url_ = h->listener_->url();
  return h;
}

std::shared_ptr<channel_listener_core> channel_listener_core::find(std::string_view url) {
  local_listeners& l = locals();
  const std::lock_guard lock(l.mutex);
  const auto found = l.by_url.find(url);
  std::shared_ptr<channel_listener_core> h = found == l.by_url.end() ? nullptr : found->second.lock();
  if (!h || h->is_parents())
    throw error(errc::unreachable, fmt::format("'{}': nobody in this process listens there", url));
  return h;
}

channel_listener_core::~channel_listener_core() {
  if (is_parents()) (void)listener_.release();  // its threads are not here
  shut();
  listener_.reset();
}

void channel_listener_core::shut() noexcept {
  if (is_parents()) return;
  std::deque<std::shared_ptr<endpoint>> turned_away;
  {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    turned_away.swap(waiting_);
  }
  changed_.notify_all();
  for (const auto& e : turned_away) e->close(duration{});
  if (!url_.starts_with("local:")) return;
  // Its channels keep it after it was shut, and another one may have the name by then.
  std::shared_ptr<channel_listener_core> named;  // let go of without the lock
  local_listeners& l = locals();
  const std::lock_guard lock(l.mutex);
  const auto found = l.by_url.find(url_);
  if (found == l.by_url.end()) return;
  named = found->second.lock();
  if (named == nullptr || named.get() == this) l.by_url.erase(found);
}

std::shared_ptr<endpoint> channel_listener_core::accept(time_point deadline, bool& shut) {
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_until(lock, deadline, [&] { return shut_ || !waiting_.empty(); });
  shut = shut_;
  if (!in_time || shut_) return nullptr;
  std::shared_ptr<endpoint> e = std::move(waiting_.front());
  waiting_.pop_front();
  return e;
}

errc channel_listener_core::connected(fabric::peer& p) noexcept {
  p.user = nullptr;
  const std::lock_guard lock(mutex_);
  if (shut_ || connections_ >= options_.channels_max) return errc::refused;
  ++connections_;
  return errc::ok;
}

void channel_listener_core::disconnected(fabric::peer& p) noexcept {
  const std::unique_ptr<connection> c(static_cast<connection*>(p.user));
  p.user = nullptr;
  {
    const std::lock_guard lock(mutex_);
    --connections_;
  }
  if (!c) return;
  {
    const std::lock_guard lock(c->way->mutex);
    c->way->peer = nullptr;
  }
  c->end->broken(errc::disconnected, "the connection broke");
}

errc channel_listener_core::hello(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) {
  head h{};
  std::span<const std::byte> rest;
  if (const errc e = decode(payload, h, rest); e != errc::ok) return e;
  if (h.kind != static_cast<std::uint8_t>(kind::hello)) return errc::bad_frame;
  channel_terms terms = channel_terms::of(options_);
  if (const errc e = channel_terms::agree(h, terms); e != errc::ok) return e;
  auto c = std::make_unique<connection>();
  c->way = std::make_shared<peer_transport::way>();
  c->way->peer = &p;
  c->end = std::make_shared<endpoint>(terms, p.name());
  c->end->set_transport(std::make_unique<peer_transport>(c->way));
  head answer = terms.hello();
  if ((h.flags & flag_ring) != 0) {
    if (!url_.starts_with("shm:")) return errc::bad_frame;
    auto ring = std::make_unique<ring_pair>(terms.ring_bytes());
    answer.flags = flag_ring;
    out.share(ring->fd());
    c->end->set_byte_path(std::move(ring));
  }
  if ((h.flags & flag_stream) != 0) {
    if (!url_.starts_with("tcp:")) return errc::bad_frame;
    answer.flags = flag_stream;
    c->waits_for_streams = true;
  }
  out.payload.resize(sizeof answer);
  std::memcpy(out.payload.data(), &answer, sizeof answer);
  if (!c->waits_for_streams)
    if (const errc e = let_in(*c); e != errc::ok) return e;
  p.user = c.release();
  return errc::ok;
}

// Ends whose connection has gone may wait, too, because what had come can still be taken; but no more of them than may
// be connected.
errc channel_listener_core::let_in(connection& c) {
  std::shared_ptr<endpoint> gone;
  {
    const std::lock_guard lock(mutex_);
    if (shut_) return errc::refused;
    if (waiting_.size() >= options_.channels_max) {
      const auto oldest = std::find_if(waiting_.begin(), waiting_.end(), [](const auto& e) { return e->is_broken(); });
      if (oldest == waiting_.end()) return errc::refused;
      gone = std::move(*oldest);
      waiting_.erase(oldest);
    }
    waiting_.push_back(c.end);
  }
  changed_.notify_all();
  return errc::ok;
}

errc channel_listener_core::stream(fabric::peer& p, std::uint16_t index, os::descriptor socket) noexcept {
  auto* c = static_cast<connection*>(p.user);
  if (!c || !c->waits_for_streams || index != (c->parts_in ? 1 : 0)) return errc::bad_frame;
  if (index == 0) {
    c->parts_in = std::move(socket);
    return errc::ok;
  }
  c->waits_for_streams = false;
  try {
    c->end->set_byte_path(std::make_unique<stream_pair>(std::move(socket), std::move(c->parts_in)));
    return let_in(*c);
  } catch (const error& e) {
    return e.code();
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

errc channel_listener_core::message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept {
  try {
    auto* c = static_cast<connection*>(p.user);
    if (!c) return hello(p, payload, out);
    if (c->waits_for_streams) return errc::bad_frame;
    const errc e = c->end->arrived(payload);
    if (e != errc::ok) c->end->broken(e, "the other end broke the rules");
    return e;
  } catch (const error& e) {
    return e.code();
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

}  // namespace fm::detail

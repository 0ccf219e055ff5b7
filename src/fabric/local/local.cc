// `local:` - an agent in this process. One-sided operations are copies on the service's memory and messages call the
// service, all in the thread that posts, so a request is done when post returns. The session thread only delivers
// notices and plays the breaks that drop_connection and peer::close ask for.
//
// Invariant owned here: service::disconnected is called when no thread is inside the service for that peer. Posters
// count themselves in `inside_` before they look at the phase; a break changes the phase first and then waits for the
// count (both sequentially consistent, so one of the two sees the other).
#include "base/log.h"
#include "fabric/client/session.h"
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "fabric/client/driver.h"
#include "fabric/local/local_transport.h"
#include "fabric/wire/one_sided.h"

namespace fm::fabric {
namespace {

class local_session final : public driver {
 public:
  local_session(const std::string& url, const session_options& options, session_events& events, service& s)
      : driver(url, options, events), service_(s) {}
  ~local_session() override { close(); }

  using session::post;
  using session::try_post;
  void post(std::span<request* const> requests) noexcept override;
  std::size_t try_post(std::span<request* const> requests) noexcept override {
    post(requests);  // there is no credit
    return requests.size();
  }
  std::size_t poll() noexcept override { return 0; }
  void wait(request& r) noexcept override;
  void cancel(request&) noexcept override {}  // whatever was posted is done, or running in its poster's thread
  errc attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes, memory_key key) noexcept override;
  void detach(std::uint32_t region) noexcept override;
  std::byte* direct(std::uint32_t region) noexcept override;

 private:
  /// The service's view of one connection.
  class local_peer final : public peer {
   public:
    local_peer(local_session& s, std::uint32_t generation)
        : session_(s), generation_(generation), name_(fmt::format("local pid={}", ::getpid())) {}
    [[nodiscard]] const std::string& name() const noexcept override { return name_; }
    bool notify(std::span<const std::byte> payload) noexcept override {
      return session_.queue_notice(generation_, payload);
    }
    void close(errc why, std::string_view reason) noexcept override {
      log::warn("{}: closed by the agent: {}: {}", name_, to_string(why), reason);
      session_.break_connection(generation_, errc::disconnected);
    }

   private:
    local_session& session_;
    const std::uint32_t generation_;
    const std::string name_;
  };

  errc dial(std::uint32_t generation, time_point deadline) override;
  void hang_up(errc why) noexcept override;
  void serve(time_point until) noexcept override;
  errc perform(request& r) noexcept;
  errc message(request& r) noexcept;
  void leave() noexcept;

  service& service_;
  std::unique_ptr<local_peer> peer_;
  std::atomic<std::uint32_t> inside_{0};  ///< posters that may be in the service
  std::shared_mutex regions_mutex_;
  std::map<std::uint32_t, std::byte*> regions_;
};

errc local_session::dial(std::uint32_t generation, time_point) {
  auto p = std::make_unique<local_peer>(*this, generation);
  const errc e = service_.connected(*p);
  if (e == errc::ok) peer_ = std::move(p);
  return e;
}

void local_session::hang_up(errc) noexcept {
  for (std::uint32_t n; (n = inside_.load(std::memory_order_seq_cst)) != 0;)
    os::futex_wait(inside_, n, time_point::max());
  {
    const std::unique_lock lock(regions_mutex_);
    for (auto& [region, base] : regions_) base = nullptr;  // until attached again
  }
  if (!peer_) return;
  service_.disconnected(*peer_);
  peer_.reset();
}

void local_session::serve(time_point) noexcept {
  pollfd p{wake_fd(), POLLIN, 0};
  if (::poll(&p, 1, -1) > 0) woken();
}

void local_session::leave() noexcept {
  if (inside_.fetch_sub(1, std::memory_order_seq_cst) == 1 && current() != phase::up) os::futex_wake(inside_, 1);
}

void local_session::post(std::span<request* const> requests) noexcept {
  inside_.fetch_add(1, std::memory_order_seq_cst);
  for (request* r : requests) {
    FM_ASSERT(r->state.load(std::memory_order_relaxed) != request::posted, "a request is posted once at a time");
    r->generation = generation();
    r->state.store(request::posted, std::memory_order_relaxed);
    errc status = admit(r->on);
    if (status == errc::ok) status = perform(*r);
    complete(*r, status);
  }
  leave();
}

errc local_session::perform(request& r) noexcept {
  if (r.deadline != time_point::max() && r.deadline <= clock::now()) return errc::timed_out;
  if (const errc e = check_request(r, options_.message_bytes_max); e != errc::ok) return e;
  if (r.kind == op_kind::message) return message(r);
  const std::uint64_t bytes = one_sided_bytes(r);
  std::byte* at = service_.memory(*peer_, r.where, bytes, r.kind == op_kind::read ? access::read : access::write);
  if (!at) return errc::access_denied;
  const errc e = apply_one_sided(r, at);
  service_.memory_done(*peer_, r.where.region);
  return e;
}

errc local_session::message(request& r) noexcept {
  std::vector<std::byte> gathered;
  std::span<const std::byte> payload;
  if (r.sg_count == 1) {
    payload = {static_cast<const std::byte*>(r.sg[0].data), r.sg[0].bytes};
  } else if (r.sg_count > 1) {
    try {
      gathered.reserve(r.bytes());
    } catch (const std::bad_alloc&) {
      return errc::out_of_memory;
    }
    for (std::size_t i = 0; i < r.sg_count; ++i) {
      const auto* from = static_cast<const std::byte*>(r.sg[i].data);
      gathered.insert(gathered.end(), from, from + r.sg[i].bytes);
    }
    payload = gathered;
  }
  answer out;
  errc e = service_.message(*peer_, payload, out);
  if (e != errc::ok) {
    peer_->close(e, "message refused");
    return errc::disconnected;
  }
  if (out.payload.size() > options_.message_bytes_max) {
    peer_->close(errc::bad_frame, "answer over message_bytes_max");
    return errc::disconnected;
  }
  r.reply = std::move(out.payload);
  r.reply_key = {.fd = -1, .token = out.token};  // the memory is in this process: nothing to map
  return errc::ok;
}

void local_session::wait(request& r) noexcept {
  // Done already, unless another thread is inside the service with it right now, or this is one of its callbacks.
  FM_ASSERT(!completion_frame::inside(this), "a completion callback must not wait on its own session");
  for (duration nap = std::chrono::microseconds(50); !r.done();
       nap = std::min<duration>(nap * 2, std::chrono::milliseconds(5)))
    os::futex_wait(r.state, request::posted, clock::now() + nap);
}

errc local_session::attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes,
                           memory_key key) noexcept {
  if (key.fd >= 0) ::close(key.fd);
  inside_.fetch_add(1, std::memory_order_seq_cst);
  errc e = admit(lane::control);
  if (e == errc::ok) {
    // The region outlives this call because its owner has not given it up; detach comes before that.
    std::byte* base = service_.memory(*peer_, {region, generation, 0}, bytes, access::read);
    if (base) service_.memory_done(*peer_, region);
    const std::unique_lock lock(regions_mutex_);
    try {
      if (base)
        regions_[region] = base;
      else
        e = errc::access_denied;
    } catch (const std::bad_alloc&) {
      e = errc::out_of_memory;
    }
  }
  leave();
  return e;
}

void local_session::detach(std::uint32_t region) noexcept {
  const std::unique_lock lock(regions_mutex_);
  regions_.erase(region);
}

std::byte* local_session::direct(std::uint32_t region) noexcept {
  const std::shared_lock lock(regions_mutex_);
  const auto it = regions_.find(region);
  return it == regions_.end() ? nullptr : it->second;
}

std::unique_ptr<session> connect_local(const address&, const std::string& url, const session_options& options,
                                       session_events& events, service* in_process) {
  if (!in_process) throw error(errc::invalid_argument, "local: needs a service in this process");
  auto s = std::make_unique<local_session>(url, options, events, *in_process);
  s->start();
  return s;
}

}  // namespace

const transport local_transport = {transport_abi, "local", connect_local, nullptr, nullptr};

}  // namespace fm::fabric

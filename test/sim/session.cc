// A session over the simulated network, and a listener there; see network.h. Stands in for
// src/fabric/built_in_transports.cc: the only transports are sim and, by the same code, tcp.
//
// Invariant owned here, as in every transport: a request is done once, and nothing touches its buffers afterwards. A worker
// has a request for itself from taking it off its lane until it has put it among the finished or lost ones.
#include "agent/service/service.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_messages.h"
#include "remote/agent_session.h"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>

#include "base/limits.h"
#include "fabric/client/driver.h"
#include "fabric/client/region_map.h"
#include "fabric/transport_table.h"
#include "fabric/wire/one_sided.h"
#include "network.h"
#include "scheduler.h"

namespace fm::sim {
namespace {

using fabric::op_kind;
using fabric::request;

constexpr std::size_t lane_kinds = 3;
constexpr std::size_t workers_of[lane_kinds] = {1, 2, 1};  // as many as there are connections over tcp://

class sim_session final : public fabric::driver, private breakable {
 public:
  sim_session(std::string host, const std::string& url, const fabric::session_options& options,
              fabric::session_events& events)
      : driver(url, options, events),
        host_(std::move(host)),
        network_(network::get()),
        map_(options.writes_regions ? os::written_by::all : os::written_by::maker) {}
  ~sim_session() override;
  void begin();

  using session::post;
  using session::try_post;
  void post(std::span<request* const> requests) noexcept override;
  std::size_t try_post(std::span<request* const> requests) noexcept override {
    post(requests);  // the simulated lanes have no credit, so it waits for none
    return requests.size();
  }
  std::size_t poll() noexcept override;
  void wait(request& r) noexcept override;
  void cancel(request& r) noexcept override;
  errc attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes,
              fabric::memory_key key) noexcept override {
    return map_.attach(region, generation, bytes, key);
  }
  void detach(std::uint32_t region) noexcept override { map_.detach(region); }
  errc open_stream(std::uint16_t index, time_point deadline, os::descriptor& socket) noexcept override;
  std::byte* direct(std::uint32_t region) noexcept override {
    return network_.options.mapped ? map_.base(region) : nullptr;
  }

 private:
  class sim_peer final : public fabric::peer {
   public:
    sim_peer(sim_session& s, std::uint32_t generation) : session_(s), generation_(generation), name_("sim") {}
    [[nodiscard]] const std::string& name() const noexcept override { return name_; }
    bool notify(std::span<const std::byte> payload) noexcept override {
      ++session_.notices_;
      if (session_.queue_notice(generation_, payload)) return true;
      --session_.notices_;
      return false;
    }
    void close(errc, std::string_view) noexcept override { session_.break_connection(generation_, errc::disconnected); }

   private:
    sim_session& session_;
    const std::uint32_t generation_;
    const std::string name_;
  };
  struct lane_state {
    std::deque<request*> waiting;
    std::condition_variable work;
    std::vector<std::byte> again;  ///< an index message that will come a second time
  };

  errc dial(std::uint32_t generation, time_point deadline) noexcept override;
  void hang_up(errc why) noexcept override;
  void serve(time_point until) noexcept override;
  [[nodiscard]] const std::string& host() const noexcept override { return host_; }
  void break_now() noexcept override { drop_connection(generation()); }
  [[nodiscard]] bool has_notices() const noexcept override { return current() == phase::up && notices_ > 0; }
  void notice_handled() noexcept override { --notices_; }

  using lock_type = std::unique_lock<std::mutex>;
  void work(std::size_t kind) noexcept;
  static request* take(lane_state& l);
  /// Waits for a way; false when the connection broke meanwhile.
  bool travel(lock_type& lock, fabric::lane on);
  errc carry_out(request& r, lane_state& l) noexcept;
  errc message(request& r, lane_state& l) noexcept;
  errc in_pieces(request& r) noexcept;
  void come_again(lane_state& l) noexcept;

  const std::string host_;
  network& network_;
  fabric::region_map map_;
  std::mutex mutex_;  ///< all below
  std::condition_variable finished_changed_, idle_;
  lane_state lanes_[lane_kinds];
  std::vector<std::thread> workers_;
  std::deque<std::pair<request*, errc>> finished_;  ///< arrived, not yet looked at
  std::uint32_t under_way_ = 0;                     ///< taken by workers
  std::uint32_t unfinished_ = 0;                    ///< posted, not among the finished
  bool open_ = false, stopping_ = false;
  std::atomic<std::int32_t> notices_{0};  ///< of this connection, taken and not handled
  fabric::service* service_ = nullptr;
  std::unique_ptr<sim_peer> peer_;
  std::vector<os::descriptor> streams_;  ///< of this connection, beside their owners: they break with it
};

void sim_session::begin() {
  for (std::size_t kind = 0; kind < lane_kinds; ++kind)
    for (std::size_t i = 0; i < workers_of[kind]; ++i) workers_.emplace_back([this, kind] { work(kind); });
  network_.add(*this);
  start();
}

sim_session::~sim_session() {
  network_.remove(*this);
  close();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (lane_state& l : lanes_) l.work.notify_all();
  }
  for (std::thread& t : workers_) t.join();
}

errc sim_session::dial(std::uint32_t generation, time_point) noexcept {
  sleep_until(now() + network_.way(fabric::lane::control));
  fabric::service* const s = network_.enter(host_);
  if (s == nullptr) return errc::unreachable;
  auto p = std::make_unique<sim_peer>(*this, generation);
  if (const errc e = s->connected(*p); e != errc::ok) {
    network_.leave(host_);
    return e;
  }
  const std::lock_guard lock(mutex_);
  notices_ = 0;
  service_ = s;
  peer_ = std::move(p);
  open_ = true;
  return errc::ok;
}

void sim_session::hang_up(errc why) noexcept {
  std::vector<request*> lost;
  {
    lock_type lock(mutex_);
    if (!open_) return;
    open_ = false;
    for (lane_state& l : lanes_) l.work.notify_all();
    idle_.wait(lock, [this] { return under_way_ == 0; });
    for (lane_state& l : lanes_) {
      lost.insert(lost.end(), l.waiting.begin(), l.waiting.end());
      l.waiting.clear();
      l.again.clear();
    }
    unfinished_ -= static_cast<std::uint32_t>(lost.size());
    finished_changed_.notify_all();
  }
  poll();
  for (const os::descriptor& s : streams_) ::shutdown(s.get(), SHUT_RDWR);
  streams_.clear();
  for (request* r : lost) complete(*r, why);
  service_->disconnected(*peer_);
  peer_.reset();
  network_.leave(host_);
}

// A socket of this process, with room for little. Connecting it takes as long as a message does.
errc sim_session::open_stream(std::uint16_t index, time_point, os::descriptor& socket) noexcept {
  sleep_until(now() + network_.way(fabric::lane::control));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return errc::out_of_memory;
  os::descriptor mine(ends[0]), theirs(ends[1]);
  constexpr int room = 4096;
  for (const int end : ends) (void)::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  streams_.emplace_back(::dup(ends[0]));
  if (const errc e = service_->stream(*peer_, index, std::move(theirs)); e != errc::ok) {
    peer_->close(e, "stream refused");
    return errc::disconnected;
  }
  socket = std::move(mine);
  return errc::ok;
}

// Completes what nobody polls for, a while later than it could.
void sim_session::serve(time_point) noexcept {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    idle = unfinished_ == 0 && finished_.empty();
  }
  pollfd p{wake_fd(), POLLIN, 0};
  if (::poll(&p, 1, idle ? 50 : 1) > 0) woken();
  poll();
}

void sim_session::post(std::span<request* const> requests) noexcept {
  std::vector<std::pair<request*, errc>> refused;
  {
    const std::lock_guard lock(mutex_);
    for (request* r : requests) {
      FM_ASSERT(r->state.load(std::memory_order_relaxed) != request::posted, "a request is posted once at a time");
      r->generation = generation();
      r->state.store(request::posted, std::memory_order_relaxed);
      errc e = admit(r->on);
      if (e == errc::ok && !open_) e = errc::disconnected;
      if (e == errc::ok) e = fabric::check_request(*r, options_.message_bytes_max);
      if (e != errc::ok) {
        refused.emplace_back(r, e);
        continue;
      }
      ++network_.counts.requests;
      ++unfinished_;
      lane_state& l = lanes_[static_cast<std::size_t>(r->on)];
      l.waiting.push_back(r);
      l.work.notify_one();
    }
  }
  for (const auto& [r, e] : refused) complete(*r, e);
}

std::size_t sim_session::poll() noexcept {
  std::deque<std::pair<request*, errc>> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(finished_);
  }
  for (const auto& [r, e] : done) complete(*r, e);
  return done.size();
}

void sim_session::wait(request& r) noexcept {
  FM_ASSERT(!fabric::completion_frame::inside(this), "a completion callback must not wait on its own session");
  while (!r.done()) {
    if (poll() != 0) continue;
    lock_type lock(mutex_);
    // Another thread may have taken it and be about to complete it: it is looked for again after a moment.
    if (finished_.empty() && !r.done()) finished_changed_.wait_for(lock, std::chrono::microseconds(20));
  }
}

void sim_session::cancel(request& r) noexcept {
  bool found = false;
  {
    const std::lock_guard lock(mutex_);
    auto& waiting = lanes_[static_cast<std::size_t>(r.on)].waiting;
    found = std::erase(waiting, &r) != 0;
    unfinished_ -= found;
  }
  if (found) complete(r, errc::cancelled);
}

// ---- the lanes ----

// The next to be carried out: any of the one-sided operations at the front, or the message there. A message comes after
// every write before it, and a fence after everything.
request* sim_session::take(lane_state& l) {
  std::size_t free = 0;
  while (free < l.waiting.size() && l.waiting[free]->kind != op_kind::message && !l.waiting[free]->fence) ++free;
  const auto it = l.waiting.begin() + static_cast<std::ptrdiff_t>(free > 1 ? random() % free : 0);
  request* const r = *it;
  l.waiting.erase(it);
  return r;
}

bool sim_session::travel(lock_type& lock, fabric::lane on) {
  const moment until = now() + network_.way(on);
  lock.unlock();
  sleep_until(until);
  lock.lock();
  return open_;
}

void sim_session::work(std::size_t kind) noexcept {
  os::name_thread(kind == 0 ? "sim-control" : kind == 1 ? "sim-fetch" : "sim-bulk");
  lane_state& l = lanes_[kind];
  lock_type lock(mutex_);
  for (;;) {
    l.work.wait(lock, [&] { return stopping_ || (open_ && !l.waiting.empty()); });
    if (stopping_) return;
    request* const r = take(l);
    ++under_way_;
    errc e = errc::disconnected;
    if (travel(lock, r->on)) {
      lock.unlock();
      e = r->deadline <= clock::now() ? errc::timed_out : carry_out(*r, l);
      lock.lock();
      // What was done, and is not heard of.
      if (!travel(lock, r->on) && e != errc::timed_out) {
        ++network_.counts.lost_on_the_way;
        if (r->reply_key.fd >= 0) ::close(r->reply_key.fd);
        r->reply_key = {};
        r->reply.clear();
        e = errc::disconnected;
      }
    }
    --unfinished_;
    // What nobody waits for is seen at once, or when the session's thread looks for itself.
    if (r->on_done != nullptr && r->on == fabric::lane::control && one_in(2)) wake();
    finished_.emplace_back(r, e);
    finished_changed_.notify_all();
    if (!l.again.empty() && open_ && one_in(3)) {
      lock.unlock();
      come_again(l);
      lock.lock();
    }
    --under_way_;
    if (under_way_ == 0) idle_.notify_all();
  }
}

// A batch's bytes, or its index message; not the message that gives a batch's number up, which must get through.
bool is_batch(const request& r) {
  if (r.kind != op_kind::message) return r.kind == op_kind::write;
  protocol::message_head head{};
  protocol::index_body body{};
  if (r.sg_count == 0 || r.sg[0].bytes != sizeof head + sizeof body) return false;
  std::memcpy(&head, r.sg[0].data, sizeof head);
  std::memcpy(&body, static_cast<const std::byte*>(r.sg[0].data) + sizeof head, sizeof body);
  return head.type == static_cast<std::uint16_t>(protocol::message_type::index) &&
         (body.flags & protocol::index_abandoned) == 0;
}

errc sim_session::carry_out(request& r, lane_state& l) noexcept {
  if (is_batch(r) && one_in(network_.options.refuse_one_in)) return errc::access_denied;
  return r.kind == op_kind::message ? message(r, l) : in_pieces(r);
}

errc sim_session::message(request& r, lane_state& l) noexcept {
  std::vector<std::byte> payload;
  for (std::size_t i = 0; i < r.sg_count; ++i) {
    const auto* from = static_cast<const std::byte*>(r.sg[i].data);
    payload.insert(payload.end(), from, from + r.sg[i].bytes);
  }
  fabric::answer out;
  if (const errc e = service_->message(*peer_, payload, out); e != errc::ok) {
    peer_->close(e, "message refused");
    return errc::disconnected;
  }
  r.reply = std::move(out.payload);
  r.reply_key = {.fd = out.memory.release(), .token = out.token};
  protocol::message_head head{};
  if (payload.size() >= sizeof head) std::memcpy(&head, payload.data(), sizeof head);
  if (head.type == static_cast<std::uint16_t>(protocol::message_type::index) && one_in(network_.options.repeat_one_in))
    l.again = std::move(payload);
  return errc::ok;
}

// The agent must answer a repeated batch and not apply it.
void sim_session::come_again(lane_state& l) noexcept {
  const std::vector<std::byte> payload = std::exchange(l.again, {});
  ++network_.counts.repeated;
  fabric::answer out;
  if (service_->message(*peer_, payload, out) != errc::ok) peer_->close(errc::bad_frame, "message refused");
}

errc sim_session::in_pieces(request& r) noexcept {
  if (r.kind != op_kind::read && r.kind != op_kind::write) return errc::unsupported;
  std::byte* at = map_.find(r.where, r.bytes(), r.kind == op_kind::write);
  if (at == nullptr) return errc::access_denied;
  const network_options& o = network_.options;
  struct piece {
    std::byte* here;
    std::byte* there;
    std::size_t bytes;
  };
  std::vector<piece> pieces;
  for (std::size_t i = 0; i < r.sg_count; ++i)
    for (std::size_t from = 0; from < r.sg[i].bytes; from += o.piece_bytes) {
      const std::size_t n = std::min<std::size_t>(o.piece_bytes, r.sg[i].bytes - from);
      pieces.push_back({static_cast<std::byte*>(r.sg[i].data) + from, at, n});
      at += n;
    }
  // From the front, or from the back.
  if (one_in(2)) std::reverse(pieces.begin(), pieces.end());
  for (const piece& p : pieces) {
    if (one_in(o.piece_slow_one_in)) sleep_until(now() + random() % o.slow_max);
    point();
    if (r.kind == op_kind::read)
      std::memcpy(p.here, p.there, p.bytes);
    else
      std::memcpy(p.there, p.here, p.bytes);
  }
  return errc::ok;
}

// Of sim://NAME, or of tcp://NAME:PORT.
const std::string& host_of(const fabric::address& a) { return a.path.empty() ? a.host : a.path; }

std::unique_ptr<fabric::session> connect_sim(const fabric::address& to, const std::string& url,
                                             const fabric::session_options& options, fabric::session_events& events,
                                             fabric::service*) {
  auto s = std::make_unique<sim_session>(host_of(to), url, options, events);
  s->begin();
  return s;
}

class sim_listener final : public fabric::listener {
 public:
  sim_listener(std::string host, std::string url, fabric::service& s) : host_(std::move(host)), url_(std::move(url)) {
    network::get().add(host_, s);
  }
  ~sim_listener() override {
    network::get().remove_after_last_words(host_, clock::now() + fabric::fabric_limits::last_words_within);
  }
  [[nodiscard]] const std::string& url() const noexcept override { return url_; }

 private:
  const std::string host_, url_;
};

std::unique_ptr<fabric::listener> listen_sim(const fabric::address& at, const std::string& url,
                                             const fabric::listen_options&, fabric::service& s) {
  return std::make_unique<sim_listener>(host_of(at), url, s);
}

constexpr fabric::transport sim_transport = {fabric::transport_abi, "sim", connect_sim, listen_sim};
// The same: channels open streams for what they call tcp.
constexpr fabric::transport stream_transport = {fabric::transport_abi, "tcp", connect_sim, listen_sim};

}  // namespace
}  // namespace fm::sim

namespace fm::fabric {

std::span<const transport* const> built_in_transports() noexcept {
  static const transport* const all[] = {&sim::sim_transport, &sim::stream_transport};
  return all;
}

}  // namespace fm::fabric

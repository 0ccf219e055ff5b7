// The listener's one thread: sessions that begin on TCP, lanes that the connection manager brings, and completions; see
// listener.h. Owns the sessions. The program only makes and destroys the listener.
#include "listener.h"
#include "base/limits.h"

#include "base/log.h"
#include "os/os.h"
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fm::fabric::verbs {
namespace {

// What an epoll event is about: one of these, a session, or a completion channel.
enum : std::uint64_t { tag_listening, tag_wake, tag_events, first_session = 16 };
constexpr std::uint64_t device_mark = 1ull << 63;

std::uint64_t random_word() {
  std::uint64_t w = 0;
  while (w == 0)
    if (::getrandom(&w, sizeof w, 0) != sizeof w) w = 0;
  return w;
}

void watch(int epoll, int fd, std::uint64_t tag, std::uint32_t events, int how = EPOLL_CTL_ADD) noexcept {
  epoll_event e{};
  e.events = events;
  e.data.u64 = tag;
  ::epoll_ctl(epoll, how, fd, &e);
}

}  // namespace

verbs_listener::verbs_listener(const address& at, const std::string& url, const listen_options& options, service& s)
    : options_(options), service_(s), incarnation_(random_word()), next_session_(first_session) {
  if (failure f = make_channel(events_); f.failed())
    throw error(f.code, fmt::format("listening on {}: {}", url, f.text));
  listening_ = listen_socket(at, url, options.insecure, url_);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  ::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  (bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                               : reinterpret_cast<sockaddr_in*>(&bound)->sin_port) = 0;
  bound_ = bound;
  epoll_ = descriptor(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !wake_)
    throw error(errc::out_of_memory, fmt::format("listening on {}: {}", url, std::strerror(errno)));
  if (!listen_for_lanes())
    throw error(errc::unreachable, fmt::format("listening on {}: no RDMA device has that address: {}; see farmem-agent "
                                               "--doctor",
                                               url, std::strerror(errno)));
  watch(epoll_.get(), listening_.get(), tag_listening, EPOLLIN);
  watch(epoll_.get(), wake_.get(), tag_wake, EPOLLIN);
  watch(epoll_.get(), events_->fd, tag_events, EPOLLIN);
  thread_ = std::thread([this] { run(); });
}

bool verbs_listener::listen_for_lanes() noexcept {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(events_.get(), &id, nullptr, RDMA_PS_TCP) != 0) return false;
  connection_id made(id);
  sockaddr_storage at = bound_;
  if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&at)) != 0 || rdma_listen(id, 64) != 0) return false;
  port_ = ntohs(rdma_get_src_port(id));
  // So that it can go when it is removed, even if nothing else has used it.
  if (id->verbs != nullptr && device_of(id) == nullptr) return false;
  listening_id_ = std::move(made);
  return true;
}

verbs_listener::~verbs_listener() {
  stopping_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void verbs_listener::attention(std::uint64_t session) noexcept {
  {
    const std::lock_guard lock(attention_mutex_);
    try {
      attention_.push_back(session);
    } catch (const std::bad_alloc&) {
      all_want_attention_ = true;
    }
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
}

void verbs_listener::run() noexcept {
  os::name_thread("fm-verbs");
  std::array<epoll_event, 64> events;
  while (!ends()) {
    const bool ticking = unopened_ != 0 || accepting_paused_ || !listening_id_ || ends_by_ != time_point::max();
    const bool polling = last_ != nullptr || !busy_.empty();
    const int n = ::epoll_wait(epoll_.get(), events.data(), int(events.size()),
                               polling   ? 0
                               : ticking ? fabric_limits::listener_tick_ms
                                         : -1);
    for (int i = 0; i < n; ++i) handle(events[std::size_t(i)].data.u64);
    serving_.swap(busy_);
    while (!serving_.empty()) {
      server_lane* l = serving_.back();
      serving_.pop_back();
      serve_lane(*l);
    }
    if (n == 0 && last_ != nullptr) spin();
    if (ticking) tick();
  }
  while (!sessions_.empty()) end(sessions_.begin()->first);
  reaper_.drain();
  take_connection_events();  // a removal among them is the business of who drops the device
  devices_.clear();
}

bool verbs_listener::ends() noexcept {
  if (!stopping_.load(std::memory_order_acquire)) return false;
  const time_point now = clock::now();
  if (ends_by_ == time_point::max()) ends_by_ = now + fabric_limits::last_words_within;
  return now >= ends_by_ ||
         std::all_of(sessions_.begin(), sessions_.end(), [](const auto& s) { return s.second->settled(); });
}

void verbs_listener::handle(std::uint64_t tag) noexcept {
  if ((tag & device_mark) != 0) return take_completions(tag & ~device_mark);
  switch (tag) {
    case tag_listening: return accept_all();
    case tag_wake: return take_attention();
    case tag_events: return take_connection_events();
    default: break;
  }
  const auto found = sessions_.find(tag);
  if (found == sessions_.end()) return;
  if (!found->second->on_control_readable()) end(tag);
}

void verbs_listener::accept_all() noexcept try {
  for (int i = 0; i < 64; ++i) {
    std::string name;
    descriptor s = accept_socket(listening_.get(), false, name);
    if (!s) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        log::warn("{}: accept: {}", url_, std::strerror(errno));
        accepting_paused_ = true;
        watch(epoll_.get(), listening_.get(), tag_listening, 0, EPOLL_CTL_MOD);
      }
      return;
    }
    if (unopened_ >= options_.handshakes_max || sessions_.size() + reaper_.size() >= options_.connections_max) {
      log::warn("{}: {} turned away: too many connections", url_, name);
      continue;
    }
    if (name.starts_with("tcp ")) name.replace(0, 4, "verbs ");
    const std::uint64_t number = next_session_++;
    watch(epoll_.get(), s.get(), number, EPOLLIN | EPOLLRDHUP);
    sessions_.emplace(number, std::make_unique<server_session>(static_cast<session_host&>(*this), std::move(s), number,
                                                               std::move(name)));
    ++unopened_;
  }
} catch (const std::bad_alloc&) {
  log::warn("{}: a connection is turned away: no memory for it", url_);  // the next ones wait for another look
}

void verbs_listener::take_attention() noexcept {
  std::uint64_t count;
  [[maybe_unused]] const auto r = ::read(wake_.get(), &count, sizeof count);
  std::vector<std::uint64_t> numbers;
  bool all = false;
  {
    const std::lock_guard lock(attention_mutex_);
    numbers.swap(attention_);
    all = std::exchange(all_want_attention_, false);
  }
  if (all) return end_if([](server_session& s) { return !s.on_attention(); });
  for (const std::uint64_t n : numbers) {
    const auto found = sessions_.find(n);
    if (found != sessions_.end() && !found->second->on_attention()) end(n);
  }
}

/// What is kept of the device that an id is bound to.
const verbs_listener::device_in_use* verbs_listener::device_of(rdma_cm_id* bound) noexcept try {
  ibv_context* const device = bound->verbs;
  if (const auto found = devices_.find(device); found != devices_.end()) return &found->second;
  device_in_use d;
  failure f = device_share::make(events_.get(), bound, d.share);
  if (!f.failed()) {
    d.channel.reset(ibv_create_comp_channel(device));
    f = d.channel ? make_non_blocking(d.channel->fd) : system_failure(errc::out_of_memory, "a completion channel");
  }
  if (f.failed()) {
    log::warn("{}: {}", url_, f.text);
    return nullptr;
  }
  d.memory = paging_of(device, options_.on_demand_paging, region_access, url_);
  watch(epoll_.get(), d.channel->fd, reinterpret_cast<std::uintptr_t>(device) | device_mark, EPOLLIN);
  return &devices_.emplace(device, std::move(d)).first->second;
} catch (const std::bad_alloc&) {
  log::warn("{}: no memory for another RDMA device", url_);
  return nullptr;
}

/// Each lane is in one of the two lists, or is polled: then serving it needs no memory.
bool verbs_listener::make_room_for_a_lane() noexcept try {
  std::size_t lanes = 1;
  for (const auto& [number, s] : sessions_) lanes += s->lane_count();
  for (std::vector<server_lane*>* list : {&busy_, &serving_})
    if (list->capacity() < lanes) list->reserve(2 * lanes);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void verbs_listener::connection_asked(const connection_event& e) noexcept {
  packet::join j;
  const auto decoded = packet::decode_join({e.private_data, e.parameters.private_data_len}, j);
  server_session* s = nullptr;
  if (decoded.code == errc::ok)
    for (auto& [number, candidate] : sessions_)
      if (candidate->greeted() && candidate->id()[0] == j.id[0] && candidate->id()[1] == j.id[1]) s = candidate.get();
  const device_in_use* const d = s != nullptr && e.id->verbs != nullptr ? device_of(e.id) : nullptr;
  if (d != nullptr && make_room_for_a_lane() && s->join(e.id, j, e.parameters, d->channel.get(), d->memory)) return;
  log::warn("{}: a lane was rejected: {}", url_,
            decoded.reason != nullptr ? decoded.reason : "no session waits for it");
  rdma_reject(e.id, nullptr, 0);
  rdma_destroy_id(e.id);
}

void verbs_listener::take_connection_events() noexcept {
  connection_event e;
  while (next_event(events_.get(), e)) {
    if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      connection_asked(e);
      continue;
    }
    if (e.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      if (e.device != nullptr) device_removed(e.device);
      continue;
    }
    std::uint64_t whose = 0;
    for (auto& [number, s] : sessions_)
      if (s->has(e.id)) whose = number;
    if (whose == 0) continue;
    server_session& s = *sessions_[whose];
    switch (e.type) {
      case RDMA_CM_EVENT_ESTABLISHED: {
        const bool was_open = s.open();
        const bool good = s.on_established(e.id);
        if (!was_open && s.open()) --unopened_;
        if (!good) end(whose);
        break;
      }
      case RDMA_CM_EVENT_DISCONNECTED:
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED: end(whose); break;
      default: break;
    }
  }
}

/// The device cannot go while anything of it is held; a tick listens again, for when it comes back.
void verbs_listener::device_removed(ibv_context* device) noexcept {
  log::warn("{}: the RDMA device was removed", url_);
  end_if([device](const server_session& s) { return s.device() == device; });
  reaper_.drain();
  if (listening_id_ && listening_id_->verbs == device) listening_id_.reset();
  if (const auto found = devices_.find(device); found != devices_.end()) {
    found->second.share.removed();
    found->second.channel.reset();
    devices_.erase(found);
  }
}

void verbs_listener::take_completions(std::uint64_t device) noexcept {
  const auto found = devices_.find(reinterpret_cast<ibv_context*>(device));
  if (found == devices_.end()) return;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  // At most one event a lane is out, so this ends.
  while (ibv_get_cq_event(found->second.channel.get(), &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);
    auto* l = static_cast<server_lane*>(context);
    l->disarmed();
    if (last_ != nullptr) spins_.paid();  // another lane asked while this one was polled
    if (options_.spin_for > duration{} && spins_.lets_spin()) {
      if (server_lane* before = std::exchange(last_, l); before != nullptr && before != l) busy_.push_back(before);
      spin_until_ = clock::now() + options_.spin_for;
    } else {
      busy_.push_back(l);
    }
  }
}

/// Serves a lane that nobody polls on, and lets an event tell when there is more.
void verbs_listener::serve_lane(server_lane& l) noexcept {
  for (int rounds = 0; rounds < 64; ++rounds) {
    const int n = l.serve();
    if (n < 0) return end(l.session());
    if (n == 0 && !l.arm()) return;
  }
  busy_.push_back(&l);  // others first
}

/// Whoever asked last is the likeliest to ask next: its lane is polled directly, and the others now and then.
void verbs_listener::spin() noexcept {
  for (int i = 0; i < 16; ++i) {
    const int n = last_->serve();
    if (n < 0) return end(last_->session());
    const time_point now = clock::now();
    if (n > 0) {
      spins_.paid();
      spin_until_ = now + options_.spin_for;
    }
    if (now >= spin_until_) {
      spins_.in_vain();
      return serve_lane(*std::exchange(last_, nullptr));
    }
    fm::detail::cpu_relax();
  }
}

void verbs_listener::end(std::uint64_t session) noexcept {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (!found->second->open()) --unopened_;
  if (last_ != nullptr && last_->session() == session) last_ = nullptr;
  for (std::vector<server_lane*>* lanes : {&busy_, &serving_})  // while they exist
    std::erase_if(*lanes, [session](server_lane* l) { return l->session() == session; });
  reaper_.take(std::move(found->second));
  sessions_.erase(found);
}

/// All sessions for which `ends` says so.
template <class Ends>
void verbs_listener::end_if(Ends&& ends) noexcept {
  for (auto s = sessions_.begin(); s != sessions_.end();) {
    const auto at = s++;  // ending one leaves the others where they are
    if (ends(*at->second)) end(at->first);
  }
}

void verbs_listener::tick() noexcept {
  const time_point now = clock::now();
  end_if([now](const server_session& s) {
    const bool late = !s.open() && s.deadline() <= now;
    if (late) log::warn("{}: connection closed: its lanes did not come in time", s.name());
    return late;
  });
  if (!listening_id_ && listen_for_lanes()) log::info("{}: the RDMA device is back", url_);
  if (accepting_paused_) {
    accepting_paused_ = false;
    watch(epoll_.get(), listening_.get(), tag_listening, EPOLLIN, EPOLL_CTL_MOD);
  }
}

}  // namespace fm::fabric::verbs

// Accepting connections, greeting them, and the loops of the I/O threads; see stream_listener.h. Owns the assignment of
// connections to threads. The program only makes and destroys the listener; everything else runs on its own threads.
#include "stream_listener.h"
#include "base/limits.h"

#include "base/log.h"
#include "os/os.h"
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/stream/stream_transport.h"

namespace fm::fabric {
namespace {

constexpr std::uint64_t listening_id = 0;
constexpr std::uint64_t wake_id = ~0ull;
constexpr std::uint32_t watched_mark = 1u << 29;  // not an epoll event that is used here

std::uint64_t random_word() {
  std::uint64_t w = 0;
  while (w == 0)
    if (::getrandom(&w, sizeof w, 0) != sizeof w) w = 0;
  return w;
}

void add_to(int epoll, int fd, std::uint64_t id, std::uint32_t events, int how = EPOLL_CTL_ADD) noexcept {
  epoll_event e{};
  e.events = events;
  e.data.u64 = id;
  ::epoll_ctl(epoll, how, fd, &e);
}

/// What `f` says of a connection: whether it lives. One that finds no memory ends, and no other.
template <class F>
bool without_memory_ends(const server_connection& c, F&& f) noexcept try {
  return f();
} catch (const std::bad_alloc&) {
  log::warn("{}: connection closed: no memory", c.name());
  return false;
}

}  // namespace

stream_listener::stream_listener(const address& at, const std::string& url, const listen_options& options, service& s)
    : at_(at), options_(options), service_(s), unix_family_(at.scheme == "shm"), incarnation_(random_word()) {
  listening_ = listen_socket(at, url, options.insecure, url_);
  const std::uint32_t count = std::clamp(options.io_threads, 1u, 64u);
  for (std::uint32_t i = 0; i < count; ++i) {
    auto t = std::make_unique<io_thread>();
    t->epoll = descriptor(::epoll_create1(EPOLL_CLOEXEC));
    t->wake = descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!t->epoll || !t->wake)
      throw error(errc::out_of_memory, fmt::format("listening on {}: {}", url, std::strerror(errno)));
    add_to(t->epoll.get(), t->wake.get(), wake_id, EPOLLIN);
    threads_.push_back(std::move(t));
  }
  add_to(threads_[0]->epoll.get(), listening_.get(), listening_id, EPOLLIN);
  for (std::size_t i = 0; i < threads_.size(); ++i) threads_[i]->thread = std::thread([this, i] { run(i); });
}

stream_listener::~stream_listener() {
  drain_notices();
  stopping_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  for (auto& t : threads_) {
    [[maybe_unused]] const auto n = ::write(t->wake.get(), &one, sizeof one);
  }
  for (auto& t : threads_) t->thread.join();
  for (auto& t : threads_) t->arriving.clear();  // never reached their thread
  if (unix_family_) ::unlink(at_.path.c_str());
}

/// While the I/O threads still send them and hear that they were handled.
void stream_listener::drain_notices() noexcept {
  const time_point deadline = clock::now() + fabric_limits::last_words_within;
  std::vector<std::shared_ptr<server_peer>> peers;
  try {
    const std::lock_guard lock(sessions_mutex_);
    for (const auto& [token, s] : sessions_)
      if (auto p = s.lock()) peers.push_back(std::move(p));
  } catch (const std::bad_alloc&) {  // the others are not waited for
  }
  for (const auto& p : peers) p->drain(deadline);
}

std::function<void()> stream_listener::attention_of(std::size_t thread, std::uint64_t id) noexcept {
  return [t = threads_[thread].get(), id] {
    {
      const std::lock_guard lock(t->mutex);
      try {
        t->attention.push_back(id);
      } catch (const std::bad_alloc&) {
        t->attends_all = true;
      }
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(t->wake.get(), &one, sizeof one);
  };
}

std::size_t stream_listener::home_of(const server_connection& c) noexcept {
  if (c.kind() != lane::fetch || threads_.size() == 1) return c.session()->home;
  const std::size_t first = std::min(message_threads(), threads_.size() - 1);
  return first + next_fetch_thread_++ % (threads_.size() - first);
}

errc stream_listener::greet(server_connection& c, const wire::hello_body& hello,
                            std::shared_ptr<server_peer>& out) noexcept try {
  if (hello.token[0] == 0 && hello.token[1] == 0) {
    auto p = std::make_shared<server_peer>(service_, c.name(), random_word(), random_word(), hello.message_bytes_max,
                                           next_message_thread_++ % message_threads());
    if (const errc e = service_.connected(*p); e != errc::ok) return e;
    try {
      p->join({c.id(), c.socket(), attention_of(p->home, c.id())});
      const std::lock_guard lock(sessions_mutex_);
      std::erase_if(sessions_, [](const auto& s) { return s.second.expired(); });
      sessions_[{p->token[0], p->token[1]}] = p;
    } catch (const std::bad_alloc&) {
      service_.disconnected(*p);
      throw;
    }
    out = std::move(p);
    return errc::ok;
  }
  std::shared_ptr<server_peer> p;
  {
    const std::lock_guard lock(sessions_mutex_);
    const auto found = sessions_.find({hello.token[0], hello.token[1]});
    if (found != sessions_.end()) p = found->second.lock();
  }
  // It may be that its control lane has ended meanwhile.
  if (!p || !p->join({c.id(), c.is_stream() ? -1 : c.socket(), [] {}})) return errc::stale;
  out = std::move(p);
  return errc::ok;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

void stream_listener::run(std::size_t index) noexcept {
  const bool has_messages = index < message_threads();
  os::name_thread(has_messages ? "fm-io" : "fm-io-fetch");
  io_thread& t = *threads_[index];
  // Where somebody may wait for each answer. Over tcp:// the first of several threads have the bulk.
  const bool spins = options_.spin_for > duration{} && (!has_messages || unix_family_ || threads_.size() == 1);
  std::array<epoll_event, 64> events;
  while (!stopping_.load(std::memory_order_acquire)) {
    const bool ticking = t.watched != 0 || (index == 0 && accepting_paused_);
    const bool polling = t.spin_until != time_point{};
    const int n = ::epoll_wait(t.epoll.get(), events.data(), int(events.size()),
                               polling   ? 0
                               : ticking ? fabric_limits::listener_tick_ms
                                         : -1);
    if (n == 0 && polling) spin(t);
    if (n > 0 && polling) t.spins.paid();  // another connection asked meanwhile
    for (int i = 0; i < n; ++i) {
      const std::uint64_t id = events[std::size_t(i)].data.u64;
      if (id == wake_id) {
        std::uint64_t count;
        [[maybe_unused]] const auto r = ::read(t.wake.get(), &count, sizeof count);
        take_arrivals(t);
        send_notices(t);
      } else if (id == listening_id) {
        accept_all();
      } else {
        handle(t, id, events[std::size_t(i)].events);
        t.others = id == std::exchange(t.last, id) ? t.others - (t.others != 0) : fabric_limits::listener_alone_after;
        if (spins) t.spin_until = t.spins.lets_spin() ? clock::now() + options_.spin_for : time_point{};
      }
    }
    if (ticking) check_deadlines(t);
  }
  while (!t.connections.empty()) remove(t, t.connections.begin()->first);
}

/// Whoever asks alone is looked at directly, and the others now and then. Where several ask, a look at all of them costs
/// as much as one at a single socket.
void stream_listener::spin(io_thread& t) noexcept {
  if (t.others != 0) {
    fm::detail::cpu_relax();
    if (clock::now() < t.spin_until) return;
    t.spins.in_vain();
    t.spin_until = {};
    return;
  }
  for (int i = 0; i < fabric_limits::listener_spin_rounds; ++i) {
    const auto found = t.connections.find(t.last);
    if (found == t.connections.end() || !found->second.connection->open()) {
      t.spin_until = {};
      return;
    }
    const std::uint64_t before = found->second.connection->receipts();
    handle(t, t.last, EPOLLIN);
    const auto after = t.connections.find(t.last);
    const time_point now = clock::now();
    if (after != t.connections.end() && after->second.connection->receipts() != before) {
      t.spins.paid();
      t.spin_until = now + options_.spin_for;
    }
    if (now >= t.spin_until) {
      t.spins.in_vain();
      t.spin_until = {};
      return;
    }
    fm::detail::cpu_relax();
  }
}

void stream_listener::handle(io_thread& t, std::uint64_t id, std::uint32_t events) noexcept {
  const auto found = t.connections.find(id);
  if (found == t.connections.end()) return;
  server_connection& c = *found->second.connection;
  const bool was_open = c.open();
  bool alive = without_memory_ends(c, [&] {
    return ((events & EPOLLOUT) == 0 || c.on_writable()) &&
           ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || c.on_readable());
  });
  if (alive && (events & (EPOLLHUP | EPOLLERR)) != 0 && !c.wants_input()) alive = false;
  if (!alive) {
    if (!was_open && c.open())
      handshakes_.fetch_sub(1, std::memory_order_relaxed);  // remove() takes it for an older one
    return remove(t, id);
  }
  if (was_open || !c.open()) return settle(t, found->second);
  handshakes_.fetch_sub(1, std::memory_order_relaxed);
  if (c.is_stream()) return hand_over(t, id);
  const std::size_t home = home_of(c);
  if (threads_[home].get() == &t) return settle(t, found->second);
  // It has said who it is: it moves to the thread that serves lanes of its kind.
  auto moved = let_go(t, id);
  io_thread& to = *threads_[home];
  {
    const std::lock_guard lock(to.mutex);
    to.arriving.insert(std::move(moved));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(to.wake.get(), &one, sizeof one);
}

stream_listener::connection_map::node_type stream_listener::let_go(io_thread& t, std::uint64_t id) noexcept {
  auto node = t.connections.extract(id);
  ::epoll_ctl(t.epoll.get(), EPOLL_CTL_DEL, node.mapped().connection->socket(), nullptr);
  if ((node.mapped().interest & watched_mark) != 0) --t.watched;
  return node;
}

/// A stream is the service's from its welcome on. The session is kept until the service has it: no call for the peer
/// may come after service::disconnected.
void stream_listener::hand_over(io_thread& t, std::uint64_t id) noexcept {
  if (!t.connections.at(id).connection->can_be_released())
    return remove(t, id);  // it did not wait for its welcome, or does not take it
  auto node = let_go(t, id);
  server_connection& c = *node.mapped().connection;
  const std::uint16_t index = c.stream_index();
  std::shared_ptr<server_peer> p;
  descriptor s = c.release(p);
  connections_.fetch_sub(1, std::memory_order_relaxed);
  node = {};
  const errc e = service_.stream(*p, index, std::move(s));
  p->let_go(id);
  if (e != errc::ok) p->close(e, "a stream that is not wanted");
}

void stream_listener::adopt(io_thread& t, connection_map::node_type node) noexcept {
  owned& o = t.connections.insert(std::move(node)).position->second;
  o.interest = EPOLLIN;
  add_to(t.epoll.get(), o.connection->socket(), o.connection->id(), EPOLLIN);
  settle(t, o);
}

/// Brings the epoll registration and the count of running deadlines up to date with the connection's state.
void stream_listener::settle(io_thread& t, owned& o) noexcept {
  server_connection& c = *o.connection;
  std::uint32_t& known = o.interest;
  const std::uint32_t events =
      (c.wants_input() ? std::uint32_t(EPOLLIN) : 0) | (c.wants_output() ? std::uint32_t(EPOLLOUT) : 0);
  if ((known & ~watched_mark) != events) add_to(t.epoll.get(), c.socket(), c.id(), events, EPOLL_CTL_MOD);
  const std::uint32_t mark = c.watched() ? watched_mark : 0;
  if (mark != (known & watched_mark)) t.watched += mark != 0 ? 1 : std::size_t(-1);
  known = events | mark;
}

void stream_listener::remove(io_thread& t, std::uint64_t id) noexcept {
  const auto node = let_go(t, id);
  if (!node.mapped().connection->open()) handshakes_.fetch_sub(1, std::memory_order_relaxed);
  connections_.fetch_sub(1, std::memory_order_relaxed);
}  // leaves its session

void stream_listener::pause_accepting(const char* why) noexcept {
  log::warn("{}: accept: {}", url_, why);
  accepting_paused_ = true;
  add_to(threads_[0]->epoll.get(), listening_.get(), listening_id, 0, EPOLL_CTL_MOD);
}

void stream_listener::accept_all() noexcept try {
  for (int i = 0; i < 64; ++i) {
    std::string name;
    descriptor s = accept_socket(listening_.get(), unix_family_, name);
    if (!s) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        pause_accepting(std::strerror(errno));
      return;
    }
    if (handshakes_.load(std::memory_order_relaxed) >= options_.handshakes_max ||
        connections_.load(std::memory_order_relaxed) >= options_.connections_max) {
      log::warn("{}: {} turned away: too many connections", url_, name);
      continue;
    }
    const std::uint64_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
    connection_map fresh;
    fresh[id].connection = std::make_unique<server_connection>(static_cast<connection_host&>(*this), std::move(s), id,
                                                               std::move(name), unix_family_);
    handshakes_.fetch_add(1, std::memory_order_relaxed);
    connections_.fetch_add(1, std::memory_order_relaxed);
    adopt(*threads_[0], fresh.extract(id));
  }
} catch (const std::bad_alloc&) {  // one that came is turned away
  pause_accepting("no memory");
}

void stream_listener::take_arrivals(io_thread& t) noexcept {
  connection_map arrived;
  {
    const std::lock_guard lock(t.mutex);
    arrived.swap(t.arriving);
  }
  while (!arrived.empty()) {
    const std::uint64_t id = arrived.begin()->first;
    adopt(t, arrived.extract(arrived.begin()));
    const auto at = t.connections.find(id);
    // A notice may have come for it before it did.
    if (at->second.connection->kind() == lane::control) send_notices(t, at);
  }
}

void stream_listener::send_notices(io_thread& t) noexcept {
  std::vector<std::uint64_t> ids;
  bool all = false;
  {
    const std::lock_guard lock(t.mutex);
    ids.swap(t.attention);
    all = std::exchange(t.attends_all, false);
  }
  for (const std::uint64_t id : ids)
    if (const auto at = t.connections.find(id); at != t.connections.end()) send_notices(t, at);
  for (auto at = t.connections.begin(); all && at != t.connections.end();) {
    const auto one = at++;
    if (one->second.connection->open() && one->second.connection->kind() == lane::control) send_notices(t, one);
  }
}

void stream_listener::send_notices(io_thread& t, connection_map::iterator at) noexcept {
  server_connection& c = *at->second.connection;
  if (without_memory_ends(c, [&] { return c.send_notices(); }))
    settle(t, at->second);
  else
    remove(t, at->first);
}

void stream_listener::check_deadlines(io_thread& t) noexcept {
  const time_point now = clock::now();
  for (auto at = t.connections.begin(); at != t.connections.end();) {
    const auto one = at++;
    const server_connection& c = *one->second.connection;
    if (!c.watched() || c.deadline() > now) continue;
    log::warn("{}: connection closed: {}", c.name(), c.lateness());
    remove(t, one->first);
  }
  if (accepting_paused_ && &t == threads_[0].get()) {
    accepting_paused_ = false;
    add_to(t.epoll.get(), listening_.get(), listening_id, EPOLLIN, EPOLL_CTL_MOD);
  }
}

std::unique_ptr<listener> listen_stream(const address& at, const std::string& url, const listen_options& options,
                                        service& s) {
  return std::make_unique<stream_listener>(at, url, options, s);
}

}  // namespace fm::fabric

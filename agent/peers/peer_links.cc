// Sessions to other agents, and messages with remote references on their way there; see peer_links.h.
// Invariant owned here: every message that was taken from a tracer is settled once, when its answer is in or its
// session is not to be had.
// All but start, stop and statistics belongs to whoever steps: the thread `fm-references`, or a test.
#include "peer_links.h"

#include "base/log.h"
#include <fmt/format.h>

#include <algorithm>

#include "agent/base/limits.h"
#include "agent/base/reachable.h"
#include "protocol/heap_codec.h"

namespace fm::agent {

namespace {

using codec::answer_view;
using codec::frame;
using codec::make_message;
using codec::parse_answer;

}  // namespace

/// A session to another agent.
class peer_links::peer_link final : public fabric::session_events {
 public:
  explicit peer_link(peer_links& of) : of_(of) {}
  ~peer_link() override {
    if (session) session->close();
  }

  std::unique_ptr<fabric::session> session;
  std::uint32_t letters = 0;  ///< posted, not settled
  time_point used{};

  errc connected(fabric::session& s, std::uint32_t) override {
    open_peer_body hello{};
    hello.major = protocol_major;
    hello.minor = protocol_minor;
    of_.options_.name.copy(hello.name, sizeof hello.name - 1);
    auto message = frame(message_type::open_peer, hello);
    fabric::request r;
    if (const errc e = codec::ask(s, r, &message, sizeof message); e != errc::ok) return e;
    return parse_answer(r.reply, message_type::open_peer).code == errc::ok ? errc::ok : errc::refused;
  }
  void disconnected(fabric::session&, std::uint32_t, errc) noexcept override { of_.bell_.ring(); }
  void lost(fabric::session&, errc) noexcept override { of_.bell_.ring(); }
  void notice(fabric::session&, std::span<const std::byte>) noexcept override {}  // no agent sends any

 private:
  peer_links& of_;
};

/// One message and what it is about.
struct peer_links::letter {
  std::shared_ptr<heap> of_heap;
  std::shared_ptr<tracer> from;
  std::string url;
  std::uint32_t peer = 0;
  std::uint32_t number = 0;
  peer_link* over = nullptr;
  std::vector<std::byte> message;
  peer_links* links = nullptr;
  std::atomic<bool> answered{false};
  fabric::request request;
};

peer_links::peer_links(const store_options& options, std::function<heap_list()> heaps)
    : options_(options), heaps_(std::move(heaps)) {}

peer_links::~peer_links() { stop(); }

void peer_links::start() {
  if (!options_.hooks.background) return;
  const std::lock_guard lock(starting_);
  if (thread_.joinable() || stop_.load()) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception& e) {
    throw error(errc::out_of_memory, fmt::format("the thread that sends to other agents: {}", e.what()));
  }
}

void peer_links::stop() noexcept {
  {
    const std::lock_guard lock(starting_);
    stop_.store(true);
  }
  bell_.ring();
  if (thread_.joinable()) thread_.join();
  // Requests are done when their session is closed, and not before.
  links_.clear();
  letters_.clear();
  sessions_.store(0, std::memory_order_relaxed);
}

void peer_links::run() {
  os::name_thread("fm-references");
  while (!stop_.load()) {
    const std::uint32_t seen = bell_.work.load();
    bool more = false;
    try {
      more = step();
    } catch (const std::exception& e) {  // what was taken and not sent is lost when its tracer finds it silent
      log::error("store {}: nothing is sent to other agents: {}", options_.name, e.what());
    }
    if (more) continue;
    bell_.sleepers.fetch_add(1);
    if (!stop_.load()) os::futex_wait(bell_.work, seen, clock::now() + limits::sleep_max);
    bell_.sleepers.fetch_sub(1);
  }
}

bool peer_links::step() {
  may_try_ = true;
  bool more = settle_answered();
  for (const auto& h : heaps_())
    if (const auto t = running_tracer(*h); t != nullptr && t->peer_count() != 0) more |= send_waiting(h, t);
  close_unused();
  return more;
}

bool peer_links::send_waiting(const std::shared_ptr<heap>& h, const std::shared_ptr<tracer>& t) {
  bool any = false;
  tracer::dispatch d;
  for (std::uint32_t peer = 0; peer < t->peer_count() && !stop_.load(); ++peer) {
    if (!t->take(peer, d)) continue;
    any = true;
    std::list<letter> one(1);
    letter& l = one.front();
    l.of_heap = h;
    l.from = t;
    l.peer = peer;
    l.number = d.number;
    l.url = d.url;
    l.links = this;
    errc why = errc::ok;
    l.over = link_to(d.url, why);
    if (l.over == nullptr) {
      settle(l, why);
      continue;
    }
    const std::size_t slot_bytes = d.slots.size() * sizeof(slot_t);
    auto head = frame(message_type::remote_references, d.body);
    head.head.body_bytes += static_cast<std::uint32_t>(slot_bytes);
    l.message.resize(sizeof head + slot_bytes);
    std::memcpy(l.message.data(), &head, sizeof head);
    std::memcpy(l.message.data() + sizeof head, d.slots.data(), slot_bytes);
    make_message(l.request, fabric::lane::control, l.message.data(), l.message.size());
    l.over->used = clock::now();
    l.request.deadline = l.over->used + options_.peer_within;
    l.request.context = &l;
    l.request.on_done = [](fabric::request& r) noexcept {
      auto& done = *static_cast<letter*>(r.context);
      trace_bell& bell = done.links->bell_;
      done.answered.store(true, std::memory_order_release);  // it may be gone from here on
      bell.ring();
    };
    ++l.over->letters;
    messages_.fetch_add(1, std::memory_order_relaxed);
    references_.fetch_add(d.slots.size(), std::memory_order_relaxed);
    letters_.splice(letters_.end(), one);
    l.over->session->post(l.request);
  }
  return any;
}

bool peer_links::settle_answered() {
  bool any = false;
  for (auto at = letters_.begin(); at != letters_.end();) {
    letter& l = *at;
    if (!l.answered.load(std::memory_order_acquire)) {
      ++at;
      continue;
    }
    any = true;
    codec::discard_key(l.request.reply_key);
    --l.over->letters;
    settle(l, l.request.status != errc::ok ? l.request.status
                                           : parse_answer(l.request.reply, message_type::remote_references).code);
    at = letters_.erase(at);
  }
  return any;
}

void peer_links::settle(const letter& l, errc how) {
  if (how != errc::ok) failures_.fetch_add(1, std::memory_order_relaxed);
  // One that is connected and says nothing would cost every cycle as long.
  if (how == errc::timed_out && l.over != nullptr) {
    l.over->session->drop_connection(l.request.generation);
    leave_alone(l.url, how, fmt::format("{} does not answer", l.url));
  }
  if (l.from->delivered(l.peer, l.number, how).tell) l.of_heap->tell_traced(*l.from);
}

// ---- sessions ----

peer_links::peer_link* peer_links::link_to(const std::string& url, errc& why) {
  if (const auto known = links_.find(url); known != links_.end()) {
    const fabric::session_state state = known->second->session->state();
    if (state == fabric::session_state::up) return known->second.get();
    why = errc::disconnected;
    const bool over = state == fabric::session_state::lost || state == fabric::session_state::closed;
    if (!over || known->second->letters != 0) return nullptr;  // it may come back by itself, or is still to be settled
    forget(known);
  }
  if (const auto at = unreachable_.find(url); at != unreachable_.end() && clock::now() < at->second.until) {
    why = at->second.why;
    return nullptr;
  }
  if (!make_room()) {
    why = errc::agent_full;
    return nullptr;
  }
  if (!may_try_) {  // others have waited for one address already
    why = errc::unreachable;
    return nullptr;
  }
  auto l = std::make_unique<peer_link>(*this);
  std::string text;
  if ((why = may_connect(options_, url)) != errc::ok) {
    text = fmt::format("{}: {}: this agent's settings do not allow to connect there", to_string(why), url);
  } else {
    const time_point begin = clock::now();
    try {
      fabric::session_options o;
      o.connect_within = options_.peer_within / limits::connect_share;
      o.reconnect_for = limits::peer_reconnect_for;
      o.operation_within = options_.peer_within;
      o.fetch_lanes = 1;
      l->session = fabric::connect(url, o, *l);
    } catch (const error& e) {
      why = e.code();
      text = e.what();
      may_try_ = clock::now() - begin < limits::long_try;
    } catch (const std::exception& e) {  // no thread, say
      why = errc::out_of_memory;
      text = e.what();
    }
  }
  if (why != errc::ok) {
    leave_alone(url, why, text);
    return nullptr;
  }
  unreachable_.erase(url);
  peer_link* const made = links_.emplace(url, std::move(l)).first->second.get();
  sessions_.store(links_.size(), std::memory_order_relaxed);
  return made;
}

void peer_links::leave_alone(const std::string& url, errc why, const std::string& text) {
  if (unreachable_.size() >= limits::unreachable_max) unreachable_.clear();
  unreachable& u = unreachable_[url];
  u.why = why;
  u.wait =
      std::min<duration>(u.wait == duration::zero() ? limits::leave_alone_first : u.wait * 2, limits::leave_alone_most);
  u.until = clock::now() + u.wait;
  log::at(u.wait == limits::leave_alone_first ? log_level::warn : log_level::debug,
          "store {}: another agent is not reached, its owner carries remote references there: {}", options_.name, text);
}

void peer_links::forget(link_map::iterator which) {
  links_.erase(which);
  sessions_.store(links_.size(), std::memory_order_relaxed);
}

bool peer_links::make_room() {
  if (links_.size() < limits::peer_links_max) return true;
  auto oldest = links_.end();
  for (auto at = links_.begin(); at != links_.end(); ++at)
    if (at->second->letters == 0 && (oldest == links_.end() || at->second->used < oldest->second->used)) oldest = at;
  if (oldest == links_.end()) return false;
  forget(oldest);
  return true;
}

void peer_links::close_unused() {
  const time_point now = clock::now();
  for (auto at = links_.begin(); at != links_.end();) {
    const auto next = std::next(at);
    if (at->second->letters == 0 && now - at->second->used > limits::unused_for) forget(at);
    at = next;
  }
}

std::string peer_links::statistics() const {
  return fmt::format(R"("sessions":{},"messages_sent":{},"references_sent":{},"messages_failed":{})", sessions_.load(),
                     messages_.load(), references_.load(), failures_.load());
}

}  // namespace fm::agent

// Sessions, spaces and regions of a range; see home.h. Owns the invariant that a region stays as long as a page has its
// home copy there. Fills, write-backs and members.cc call it.
#include "home.h"

#include "agent/embedded/embedded.h"
#include "base/text.h"
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

namespace fm::detail {

namespace {

std::uint64_t fresh_id() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

template <class T>
bool take_all(const std::vector<std::byte>& from, T& out) {
  if (from.size() != sizeof out) return false;
  std::memcpy(&out, from.data(), sizeof out);
  return true;
}

void drop_key(fabric::memory_key& key) {
  if (key.fd >= 0) ::close(key.fd);
  key = {};
}

}  // namespace

home_agent::home_agent(const std::string& url, const paged_options& options, std::uint64_t bytes,
                       fabric::service* in_process)
    : url_(url),
      bytes_(bytes),
      within_(options.access_within),
      name_(options.name.empty() ? program_invocation_short_name : options.name),
      id_{fresh_id(), fresh_id()},
      incarnation_(fresh_id()) {
  fabric::session_options so;
  so.connect_within = options.connect_within;
  so.reconnect_for = options.reconnect_within;
  so.operation_within = options.access_within;
  try {
    session_ = fabric::connect(url, so, *this, in_process);
  } catch (const error&) {
    // The session only knows that its owner gave up; what the agent said is here.
    if (refused_ != errc::ok) throw error(refused_, url + ": " + refusal_);
    throw;
  }
}

home_agent::~home_agent() { close(); }

void home_agent::close() noexcept {
  if (!session_ || closing_.exchange(true)) return;
  if (session_->state() == fabric::session_state::up) {
    std::vector<std::byte> answer;
    fabric::memory_key key;
    // A courtesy: the lease would do it, too.
    try {
      call(*session_, protocol::paged_message::close_space, nullptr, 0, answer, key);
    } catch (const std::exception&) {
    }
    drop_key(key);
  }
  session_->close();
  drop_key(question_.request.reply_key);
}

bool home_agent::up() const noexcept {
  const std::uint32_t g = usable_.load(std::memory_order_acquire);
  return g != 0 && session_->generation() == g && session_->state() == fabric::session_state::up;
}

bool home_agent::find(std::uint64_t at, fabric::remote& where) const noexcept {
  const std::uint64_t name = names_[at / region_bytes_].load(std::memory_order_acquire);
  if (name == 0) return false;
  where = {.region = static_cast<std::uint32_t>(name) - 1,
           .generation = static_cast<std::uint32_t>(name >> 32),
           .offset = at % region_bytes_};
  return true;
}

std::byte* home_agent::direct(std::uint64_t at) const noexcept {
  fabric::remote where;
  if (!up() || !find(at, where)) return nullptr;
  std::byte* const base = session_->direct(where.region);
  return base == nullptr ? nullptr : base + where.offset;
}

errc home_agent::call(fabric::session& s, protocol::paged_message type, const void* body, std::size_t bytes,
                      std::vector<std::byte>& answer, fabric::memory_key& key) {
  protocol::message_head head{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(bytes)};
  std::vector<std::byte> message(sizeof head + bytes);
  std::memcpy(message.data(), &head, sizeof head);
  if (bytes != 0) std::memcpy(message.data() + sizeof head, body, bytes);
  fabric::request r;
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::control;
  r.sg_count = 1;
  r.sg[0] = {message.data(), message.size()};
  r.deadline = clock::now() + within_;
  s.post(r);
  s.wait(r);
  return take_reply(r, type, answer, key);
}

errc home_agent::take_reply(fabric::request& r, protocol::paged_message type, std::vector<std::byte>& answer,
                            fabric::memory_key& key) {
  key = std::exchange(r.reply_key, {});
  if (r.status != errc::ok) {
    drop_key(key);
    return r.status;
  }
  protocol::answer_head a;
  const bool good = r.reply.size() >= sizeof a;
  if (good) std::memcpy(&a, r.reply.data(), sizeof a);
  if (!good || a.type != static_cast<std::uint16_t>(type) || a.body_bytes != r.reply.size() - sizeof a) {
    drop_key(key);
    return errc::bad_frame;
  }
  answer.assign(r.reply.begin() + sizeof a, r.reply.end());
  if (const auto code = static_cast<errc>(a.code); code != errc::ok) {
    drop_key(key);
    return code;
  }
  return errc::ok;
}

errc home_agent::open_space(fabric::session& s) {
  protocol::open_space_body body{};
  body.major = protocol::paged_protocol_major;
  body.minor = protocol::paged_protocol_minor;
  std::copy(std::begin(id_), std::end(id_), std::begin(body.space_id));
  body.incarnation = incarnation_;
  body.bytes = bytes_;
  body.resume = opened_;
  name_.copy(body.name, sizeof body.name - 1);
  std::vector<std::byte> answer;
  fabric::memory_key key;
  const errc e = call(s, protocol::paged_message::open_space, &body, sizeof body, answer, key);
  drop_key(key);
  if (e == errc::timed_out || e == errc::disconnected || e == errc::cancelled) return e;  // to be tried again
  const auto give_up = [&](errc why, std::string text) {
    refused_ = why;
    refusal_ = std::move(text);
    return opened_ ? errc::agent_lost : errc::refused;
  };
  if (e != errc::ok)
    return give_up(e, e == errc::bad_frame ? "the answer to open_space is malformed" : readable_text(answer));
  protocol::open_space_answer a;
  if (!take_all(answer, a) || !is_power_of_two(a.region_bytes) || a.region_bytes < page_bytes ||
      a.region_bytes > (std::uint64_t{1} << 40) || a.regions_max != (bytes_ + a.region_bytes - 1) / a.region_bytes ||
      (opened_ && a.region_bytes != region_bytes_))
    return give_up(errc::bad_frame, "the answer to open_space is out of range");
  if (!opened_) {
    region_bytes_ = a.region_bytes;
    names_ = std::vector<std::atomic<std::uint64_t>>(a.regions_max);
    held_ = std::vector<std::atomic<std::uint32_t>>(a.regions_max);
    untold_.resize(a.regions_max);
    opened_ = true;
  }
  return errc::ok;
}

errc home_agent::ask_region(fabric::session& s, std::uint32_t index, bool existing) {
  protocol::space_region_body body{index, existing ? 1u : 0u};
  std::vector<std::byte> answer;
  fabric::memory_key key;
  if (const errc e = call(s, protocol::paged_message::space_region, &body, sizeof body, answer, key); e != errc::ok)
    return e;
  return take_region(s, index, existing, answer, key);
}

errc home_agent::take_region(fabric::session& s, std::uint32_t index, bool existing,
                             const std::vector<std::byte>& answer, fabric::memory_key& key) {
  protocol::space_region_answer a;
  if (!take_all(answer, a) || a.bytes != region_bytes_ || a.generation == 0 || a.region == ~0u) {
    drop_key(key);
    return errc::bad_frame;
  }
  const std::uint64_t name = std::uint64_t{a.generation} << 32 | (a.region + 1);
  const std::uint64_t known = names_[index].load(std::memory_order_relaxed);
  if (existing && name != known) {
    drop_key(key);
    return errc::stale;
  }
  if (const errc e = s.attach(a.region, a.generation, a.bytes, key); e != errc::ok) return e;
  if (known == 0) regions_open_.fetch_add(1, std::memory_order_relaxed);
  untold(index, false);  // it is wanted again
  names_[index].store(name, std::memory_order_release);
  return errc::ok;
}

errc home_agent::connected(fabric::session& s, std::uint32_t g) try {
  const bool again = opened_;
  if (const errc e = open_space(s); e != errc::ok) return e;
  // Whoever makes a region meanwhile fails on this session, which is not up yet, or has made it on the last one.
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; again && i < names_.size(); ++i) {
    const bool there = names_[i].load(std::memory_order_relaxed) != 0;
    if (!there && !untold_[i]) continue;
    const errc e = there ? ask_region(s, i, true) : tell_released(s, i);
    if (e == errc::not_found || e == errc::stale || e == errc::bad_frame) return errc::agent_lost;
    if (e != errc::ok) return e;
    s.progressed();
  }
  if (again) reconnects_.fetch_add(1, std::memory_order_relaxed);
  usable_.store(g, std::memory_order_release);
  return errc::ok;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

void home_agent::disconnected(fabric::session&, std::uint32_t, errc) noexcept {
  usable_.store(0, std::memory_order_release);
}

void home_agent::lost(fabric::session& s, errc) noexcept {
  is_lost_.store(true);
  if (copying_.load() == 0) s.forget_memory();
}

// The look at the connection comes after the count, and lost() looks at the count after it has said so: one of the two
// sees the other.
std::byte* home_agent::begin_copying(std::uint64_t at) noexcept {
  if (is_lost_.load()) return nullptr;
  copying_.fetch_add(1);
  if (std::byte* const d = is_lost_.load() ? nullptr : direct(at)) return d;
  end_copying();
  return nullptr;
}

void home_agent::end_copying() noexcept {
  if (copying_.fetch_sub(1) == 1 && is_lost_.load()) session_->forget_memory();
}

errc home_agent::make(std::uint64_t at) noexcept try {
  fabric::remote where;
  if (find(at, where)) return errc::ok;
  if (!up()) return lost() ? errc::agent_lost : errc::disconnected;
  // Never waited for while a connection is being taken up: that asks for regions under the lock, on a deadline of its
  // own.
  const std::lock_guard lock(mutex_);
  end_question();
  if (find(at, where)) return errc::ok;
  return ask_region(*session_, static_cast<std::uint32_t>(at / region_bytes_), false);
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

void home_agent::ask(protocol::paged_message type, std::uint32_t index, bool existing) noexcept {
  question& q = question_;
  q.type = type;
  q.index = index;
  q.message = {{static_cast<std::uint16_t>(type), 0, sizeof q.message.body}, {index, existing ? 1u : 0u}};
  q.is_posted = true;
  is_asked_.store(true, std::memory_order_relaxed);
  fabric::request& r = q.request;
  r.state.store(fabric::request::idle, std::memory_order_relaxed);
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::control;
  r.sg_count = 1;
  r.sg[0] = {&q.message, sizeof q.message};
  r.reply.clear();
  r.deadline = clock::now() + within_;
  r.on_done = [](fabric::request&) noexcept {};  // so that the session's thread takes the answer
  session_->post(r);
}

errc home_agent::take_answer_to(question& q) {
  q.is_posted = false;
  is_asked_.store(false, std::memory_order_relaxed);
  std::vector<std::byte> answer;
  fabric::memory_key key;
  errc e = take_reply(q.request, q.type, answer, key);
  if (q.type == protocol::paged_message::release_region) {
    drop_key(key);
    if (e == errc::ok) untold(q.index, false);
    return e;
  }
  if (e != errc::ok) return e;
  // A region of an older connection is asked for again, and so is one that came otherwise.
  if (q.request.generation != session_->generation() || !up() || names_[q.index].load(std::memory_order_relaxed) != 0) {
    drop_key(key);
    return errc::ok;
  }
  return take_region(*session_, q.index, false, answer, key);
}

bool home_agent::may_ask(std::uint32_t index, errc& refused) {
  refused = errc::ok;
  if (!question_.is_posted) return true;
  if (!question_.request.done()) return false;
  const errc e = take_answer_to(question_);
  if (question_.index == index && question_.type == protocol::paged_message::space_region) refused = e;
  return true;
}

void home_agent::end_question() {
  if (!question_.is_posted) return;
  session_->wait(question_.request);
  take_answer_to(question_);
}

// The lock is held by others only while they wait for the agent.
std::optional<errc> home_agent::make_soon(std::uint64_t at) noexcept try {
  fabric::remote where;
  if (find(at, where)) return errc::ok;
  if (!up()) return lost() ? errc::agent_lost : errc::disconnected;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  const auto index = static_cast<std::uint32_t>(at / region_bytes_);
  errc refused = errc::ok;
  if (!may_ask(index, refused)) return std::nullopt;
  if (refused != errc::ok) return refused;
  if (find(at, where)) return errc::ok;
  ask(protocol::paged_message::space_region, index, false);
  if (!may_ask(index, refused)) return std::nullopt;  // an agent in this process has answered already
  if (refused != errc::ok) return refused;
  return find(at, where) ? std::optional(errc::ok) : std::nullopt;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

bool home_agent::hold(std::uint64_t at) noexcept {
  std::atomic<std::uint32_t>& held = held_[at / region_bytes_];
  std::uint32_t n = held.load(std::memory_order_relaxed);
  while ((n & releasing) == 0)
    if (held.compare_exchange_weak(n, n + 1, std::memory_order_acquire)) return true;
  return false;
}

void home_agent::keep(std::uint64_t at, std::uint32_t pages) noexcept {
  held_[at / region_bytes_].fetch_add(pages, std::memory_order_relaxed);
}

void home_agent::drop(std::uint64_t at, std::uint32_t n) noexcept {
  [[maybe_unused]] const std::uint32_t before = held_[at / region_bytes_].fetch_sub(n, std::memory_order_release);
  FM_ASSERT(before >= n && (before & releasing) == 0, "a region was given back that was held");
}

std::uint64_t home_agent::held() const noexcept {
  std::uint64_t n = 0;
  for (const auto& h : held_) n += h.load(std::memory_order_relaxed) & ~releasing;
  return n;
}

errc home_agent::tell_released(fabric::session& s, std::uint32_t index) {
  protocol::space_region_body body{index, 1};
  std::vector<std::byte> answer;
  fabric::memory_key key;
  const errc e = call(s, protocol::paged_message::release_region, &body, sizeof body, answer, key);
  drop_key(key);
  if (e == errc::ok) untold(index, false);
  return e;
}

void home_agent::untold(std::uint32_t index, bool is) noexcept {
  if (untold_[index] == is) return;
  untold_[index] = is;
  untold_count_.fetch_add(is ? 1 : -1, std::memory_order_relaxed);
}

// A region may be given back when connected() has told all that it knew of, and the session is not up yet: nobody tells
// that one, so somebody has to come here later.
void home_agent::settle() noexcept try {
  if (untold_count_.load(std::memory_order_relaxed) == 0 || !up()) return;
  const std::lock_guard lock(mutex_);
  end_question();
  for (std::uint32_t i = 0; i < untold_.size() && untold_count_.load(std::memory_order_relaxed) != 0; ++i)
    if (untold_[i] && (!up() || tell_released(*session_, i) != errc::ok)) return;
} catch (const std::bad_alloc&) {
  // The next one does it.
}

void home_agent::settle_soon() noexcept try {
  if ((untold_count_.load(std::memory_order_relaxed) == 0 && !is_asked_.load(std::memory_order_relaxed)) || !up())
    return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  errc refused = errc::ok;
  std::uint32_t i = 0;
  while (lock.owns_lock() && may_ask(i, refused)) {
    while (i < untold_.size() && !untold_[i]) ++i;
    if (i == untold_.size() || !up()) return;
    ask(protocol::paged_message::release_region, i, true);
    ++i;  // one that failed is for the next call
  }
} catch (const std::bad_alloc&) {
  // The next one does it.
}

void home_agent::release(std::uint64_t at) noexcept try {
  const std::uint64_t index = at / region_bytes_;
  if (names_[index].load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  end_question();  // its answer may be about what comes to an end here
  fabric::remote where;
  std::uint32_t none = 0;
  if (!find(at, where) || !held_[index].compare_exchange_strong(none, releasing, std::memory_order_acquire)) return;
  names_[index].store(0, std::memory_order_release);
  regions_open_.fetch_sub(1, std::memory_order_relaxed);
  untold(static_cast<std::uint32_t>(index), true);
  session_->detach(where.region);
  held_[index].store(0, std::memory_order_release);
  if (up()) tell_released(*session_, static_cast<std::uint32_t>(index));
} catch (const std::bad_alloc&) {
  // The agent is told later.
}

protocol::audit_space_answer home_agent::audit() {
  {
    const std::lock_guard lock(mutex_);
    end_question();
  }
  settle();
  std::vector<std::byte> answer;
  fabric::memory_key key;
  const errc e = call(*session_, protocol::paged_message::audit_space, nullptr, 0, answer, key);
  drop_key(key);
  protocol::audit_space_answer a{};
  if (e != errc::ok || !take_all(answer, a))
    throw error(e == errc::ok ? errc::bad_frame : e, fmt::format("{}: audit of space {}", url_, name_));
  return a;
}

home::home(const paged_options& options, std::uint64_t pages, std::uint32_t block_order) {
  stripe_order_ = std::max<std::uint32_t>(block_order, 4);
  const std::uint64_t stripes = (pages + (std::uint64_t{1} << stripe_order_) - 1) >> stripe_order_;
  const std::uint64_t share =
      ((stripes + options.agents.size() - 1) / options.agents.size() << stripe_order_) * page_bytes;
  const auto locals = static_cast<std::uint64_t>(std::count_if(
      options.agents.begin(), options.agents.end(), [](const std::string& u) { return u.starts_with("local:"); }));
  if (locals != 0) {
    const std::uint64_t region = options.local_region;
    const std::uint64_t memory = std::max<std::uint64_t>(locals * round_up(share, region), 2 * region);
    local_ = agent::start_embedded({agent::embedded_for::pages, memory, region});
  }
  for (const std::string& url : options.agents) {
    agents_.push_back(std::make_unique<home_agent>(url, options, share, local_.get()));
    const std::uint64_t region = agents_.back()->region_bytes();
    if (region < page_bytes << stripe_order_)
      throw error(errc::invalid_argument,
                  fmt::format("paged_options::block {}: {} has regions of {} bytes, which must hold a block and 64 KiB",
                              options.block, url, region));
  }
}

void home::release_unused(std::uint64_t first, std::uint64_t end) const noexcept {
  const std::uint64_t n = agents_.size();
  for (std::uint64_t a = 0; a < n && first < end; ++a) {
    // The agent's part of the pages: from its first stripe of them to its last.
    const std::uint64_t from = first >> stripe_order_, to = (end - 1) >> stripe_order_;
    const std::uint64_t begin = from + (a + n - from % n) % n, last = to - (to % n + n - a) % n;
    if (begin > to || last < begin) continue;
    home_agent& agent = *agents_[a];
    const std::uint64_t stripe_bytes = page_bytes << stripe_order_;
    const std::uint64_t at_end = (last / n + 1) * stripe_bytes;
    for (std::uint64_t at = round_down(begin / n * stripe_bytes, agent.region_bytes()); at < at_end;
         at += agent.region_bytes())
      agent.release(at);
  }
}

}  // namespace fm::detail

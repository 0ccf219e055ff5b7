// The connector's end of a connection: hello, shared memory or streams, parts as messages, and notices; see
// session_transport.h. Owns the buffers that parts leave from. `endpoint` and its halves call it; the session calls
// back from its own thread.
#include "session_transport.h"
#include "base/channel_limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "channel/path/ring.h"
#include "channel/path/stream.h"

namespace fm::detail {

using namespace channel_wire;

namespace {

/// No answer but the welcome has a key. A descriptor that came with another one would stay open for as long as the process.
void drop_key(fabric::request& done) noexcept {
  if (const int fd = std::exchange(done.reply_key, {}).fd; fd >= 0) ::close(fd);
}

bool is_goodbye(std::span<const std::byte> message) noexcept {
  head h{};
  std::span<const std::byte> rest;
  return decode(message, h, rest) == errc::ok && h.kind == static_cast<std::uint8_t>(kind::bye);
}

}  // namespace

/// A small message on its way, which nobody waits for but drain().
struct session_transport::told {
  fabric::request request;
  std::vector<std::byte> bytes;
  session_transport* from = nullptr;
  fabric::session* session = nullptr;
};

session_transport::session_transport(endpoint& end, std::string_view url, const channel_options& options)
    : end_(end),
      url_(url),
      connect_within_(options.connect_within),
      asks_for_(url.starts_with("shm:")   ? flag_ring
                : url.starts_with("tcp:") ? flag_stream
                                          : 0) {}

void session_transport::connect(fabric::service* in_process) {
  connect_by_ = clock::now() + connect_within_;
  fabric::session_options o;
  o.connect_within = connect_within_;
  o.reconnect_for = duration{};
  o.operation_within = channel_limits::operation_within;
  o.fetch_lanes = 1;
  session_ = fabric::connect(url_, o, *this, in_process);
}

session_transport::~session_transport() {
  close();
  for (buffer& b : buffers_) drop_key(b.request);
}

void session_transport::close() noexcept {
  if (session_) session_->close();
}

errc session_transport::connected(fabric::session& s, std::uint32_t g) {
  if (g > 1) return errc::refused;
  head h = end_.terms().hello();
  h.flags = asks_for_;
  fabric::request r;
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::control;
  r.sg[0] = {&h, sizeof h};
  r.sg_count = 1;
  s.post(r);
  s.wait(r);
  errc e = r.status == errc::ok ? welcomed(r) : r.status;
  drop_key(r);
  if (e == errc::ok && asks_for_ == flag_stream) e = open_streams(s);
  if (e == errc::ok) connected_.store(&s, std::memory_order_release);
  return e;
}

errc session_transport::open_streams(fabric::session& s) {
  os::descriptor out, in;
  if (const errc e = s.open_stream(0, connect_by_, out); e != errc::ok) return e;
  if (const errc e = s.open_stream(1, connect_by_, in); e != errc::ok) return e;
  try {
    end_.set_byte_path(std::make_unique<stream_pair>(std::move(out), std::move(in)));
    return errc::ok;
  } catch (const error& why) {
    return why.code();
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

errc session_transport::welcomed(fabric::request& r) {
  head answer{};
  std::span<const std::byte> rest;
  if (const errc e = decode(r.reply, answer, rest); e != errc::ok) return e;
  if (answer.kind != static_cast<std::uint8_t>(kind::hello)) return errc::bad_frame;
  channel_terms terms = end_.terms();
  if (const errc e = channel_terms::agree(answer, terms); e != errc::ok) return e;
  if (answer.flags != asks_for_) return errc::bad_frame;
  end_.agree(terms);
  if (asks_for_ != flag_ring) return errc::ok;
  if (r.reply_key.fd < 0) return errc::bad_frame;
  try {
    os::memory_file memory = ring_pair::mapped(std::exchange(r.reply_key.fd, -1), terms.ring_bytes());
    end_.set_byte_path(std::make_unique<ring_pair>(std::move(memory), terms.ring_bytes()));
    return errc::ok;
  } catch (const error& e) {
    return e.code();
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

void session_transport::disconnected(fabric::session&, std::uint32_t, errc) noexcept {
  end_.broken(errc::disconnected, "the connection broke");
}

void session_transport::lost(fabric::session&, errc) noexcept {
  end_.broken(errc::disconnected, "the connection broke");
}

void session_transport::notice(fabric::session& s, std::span<const std::byte> payload) noexcept {
  const errc e = end_.arrived(payload);
  if (e == errc::ok) {
    // Nothing comes after a goodbye, and the other end waits for the end of the connection.
    if (is_goodbye(payload)) s.close();
    return;
  }
  end_.broken(e, "the other end broke the rules");
  s.drop_connection(s.generation());  // on the session's thread, so there is no later one yet
}

void session_transport::drop() noexcept {
  // The first is the only one.
  if (fabric::session* const s = connected_.load(std::memory_order_acquire)) s->drop_connection(1);
}

std::span<std::byte> session_transport::room(std::size_t bytes) {
  current_ = (current_ + 1) % buffers_.size();
  buffer& b = buffers_[current_];
  if (b.posted) {
    session_->wait(b.request);
    b.posted = false;
    drop_key(b.request);
    if (b.request.status != errc::ok)
      throw error(b.request.status == errc::timed_out ? errc::timed_out : errc::disconnected,
                  fmt::format("channel with {}: a part was lost", end_.name()));
  }
  b.bytes.resize(std::max(b.bytes.size(), bytes));
  return {b.bytes.data(), bytes};
}

errc session_transport::send(std::size_t bytes, time_point deadline) noexcept {
  buffer& b = buffers_[current_];
  fabric::request& r = b.request;
  r.state.store(fabric::request::idle, std::memory_order_relaxed);
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::bulk;
  r.sg[0] = {b.bytes.data(), bytes};
  r.sg_count = 1;
  r.deadline = std::max(
      deadline, clock::now() + channel_limits::operation_within);  // a part that is lost is the end of the channel
  r.reply.clear();
  b.posted = true;
  session_->post(r);
  return r.done() ? r.status : errc::ok;
}

errc session_transport::tell(std::span<const std::byte> message) noexcept {
  try {
    auto t = std::make_unique<told>();
    t->bytes.assign(message.begin(), message.end());
    fabric::request& r = t->request;
    r.kind = fabric::op_kind::message;
    r.on = fabric::lane::control;
    r.sg[0] = {t->bytes.data(), t->bytes.size()};
    r.sg_count = 1;
    r.context = t.get();
    r.on_done = over;
    fabric::session* const s = connected_.load(std::memory_order_acquire);
    if (s == nullptr) return errc::disconnected;
    t->session = s;
    t->from = this;
    {
      const std::lock_guard lock(told_mutex_);
      ++told_;
    }
    s->post(t.release()->request);
    return errc::ok;  // a session that breaks says so by itself
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

// The session calls this before it ends, so the transport is still there. Nothing of it is touched after the lock.
void session_transport::over(fabric::request& done) noexcept {
  const std::unique_ptr<told> t(static_cast<told*>(done.context));
  drop_key(done);
  // Where it did not go in time, the other end waits for it: that is the end of the channel, and not silence.
  if (done.status == errc::timed_out) t->session->drop_connection(done.generation);
  session_transport& from = *t->from;
  const std::lock_guard lock(from.told_mutex_);
  if (--from.told_ == 0) from.told_over_.notify_all();
}

void session_transport::drain_parts(time_point deadline) noexcept {
  for (buffer& b : buffers_)
    if (b.posted && !session_->wait_until(b.request, deadline)) return;  // close() ends those that are under way
}

void session_transport::drain(time_point deadline) noexcept {
  // A verdict among them is the last word, whatever the program's patience with what it sent itself.
  deadline = std::max(deadline, clock::now() + channel_limits::word_within);
  std::unique_lock lock(told_mutex_);
  told_over_.wait_until(lock, deadline, [&] { return told_ == 0; });
}

}  // namespace fm::detail

// Writing and reading messages on connections of a channel's own, and sleeping on them; see stream.h. Owns the place of
// each direction among all bytes, so that a message that was cut is put together again. `sender` and `receiver` call
// it.
#include "stream.h"
#include "base/channel_limits.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "credit.h"

namespace fm::detail {

using channel_wire::head;

namespace {

constexpr std::size_t answer_bytes = sizeof(part_answers);
static_assert(answer_bytes == 32 && std::is_trivially_copyable_v<part_answers>);

constexpr std::uint64_t whole_words(std::uint64_t bytes) noexcept { return bytes & ~std::uint64_t{7}; }

iovec range(const std::byte* from, std::uint64_t bytes) noexcept { return {const_cast<std::byte*>(from), bytes}; }

/// What is left of `all` without its first `bytes`.
std::span<iovec> without(std::span<iovec> all, std::uint64_t bytes) noexcept {
  while (!all.empty() && bytes >= all.front().iov_len) {
    bytes -= all.front().iov_len;
    all = all.subspan(1);
  }
  if (bytes != 0)
    all.front() = range(static_cast<std::byte*>(all.front().iov_base) + bytes, all.front().iov_len - bytes);
  return all;
}

}  // namespace

// ---- the socket ----

stream_socket::stream_socket(os::descriptor socket)
    : socket_(std::move(socket)), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!bell_) throw error(errc::out_of_memory, "a descriptor for a channel's waits");
}

void stream_socket::end() noexcept {
  time_point never = time_point::max();
  ended_at_.compare_exchange_strong(never, clock::now(), std::memory_order_acq_rel);
}

std::uint64_t stream_socket::send(std::span<const std::byte> from) noexcept {
  iovec all{const_cast<std::byte*>(from.data()), from.size()};
  return send(std::span(&all, 1));
}

std::uint64_t stream_socket::send(std::span<iovec> from) noexcept {
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = from.size();
  ssize_t n = 0;
  do n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n >= 0) return static_cast<std::uint64_t>(n);
  if (errno != EAGAIN && errno != ENOBUFS) end();
  return 0;
}

std::uint64_t stream_socket::receive(std::span<std::byte> to) noexcept {
  ssize_t n = 0;
  do n = ::recv(socket_.get(), to.data(), to.size(), MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n > 0) return static_cast<std::uint64_t>(n);
  if (n == 0 || errno != EAGAIN) end();
  return 0;
}

void stream_socket::finish() noexcept { ::shutdown(socket_.get(), SHUT_WR); }

void stream_socket::kick() noexcept {
  rung_.fetch_add(1, std::memory_order_seq_cst);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(bell_.get(), &one, sizeof one);
}

void stream_socket::wait(short events, std::uint32_t seen, time_point deadline) noexcept {
  // One that has ended is always ready, and there is nothing to wait for.
  std::array<pollfd, 2> on{
      {{ended_at() == time_point::max() ? socket_.get() : -1, events, 0}, {bell_.get(), POLLIN, 0}}};
  const time_point now = clock::now();
  const auto ready = [&](const timespec& within) {
    if (rung_.load(std::memory_order_seq_cst) == seen && ::ppoll(on.data(), on.size(), &within, nullptr) <= 0)
      return false;
    if ((on[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto n = ::read(bell_.get(), &count, sizeof count);
    }
    return true;
  };
  static os::spin_place place;
  {
    os::spin spin(place, channel_limits::stream_spin_for);
    do
      if (ready({})) return;
    while (spin.again());
  }
  const auto left = std::min(deadline, now + channel_limits::stream_wait_max) - clock::now();
  if (left <= duration{}) return;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  ready({ns / 1'000'000'000, ns % 1'000'000'000});
}

// ---- writing ----

std::span<std::byte> stream_writer::room(std::uint64_t bytes, std::uint64_t) {
  if (rest_begin_ != rest_end_) return {};
  lent_count_ = 0;
  lent_bytes_ = 0;
  if (buffer_.size() < bytes + page_bytes) {
    buffer_.resize(bytes + page_bytes);
    // In the middle of a page, because what is copied here begins at a page's beginning if it is large (base/copy.h).
    const auto at = reinterpret_cast<std::uintptr_t>(buffer_.data());
    message_ = buffer_.data() + (round_up(at + page_bytes / 2, page_bytes) - page_bytes / 2 - at);
  }
  return {message_, bytes};
}

bool stream_writer::lend(std::uint64_t after, std::span<const std::byte> bytes) noexcept {
  if (lent_count_ == lent_.size()) return false;
  lent_[lent_count_++] = {after, bytes};
  lent_bytes_ += bytes.size();
  return true;
}

// From the last piece to the first, so that nothing is overwritten that has still to move.
void stream_writer::take_over(std::uint64_t bytes) noexcept {
  std::uint64_t before = lent_bytes_;
  for (std::size_t i = lent_count_; i-- != 0; bytes = lent_[i].after) {
    const piece& p = lent_[i];
    std::memmove(message_ + p.after + before, message_ + p.after, bytes - p.after);
    before -= p.bytes.size();
    copy_bytes(message_ + p.after + before, p.bytes.data(), p.bytes.size());
  }
}

bool stream_writer::send(std::uint64_t bytes, time_point deadline, const std::function<bool()>& give_up) {
  std::array<iovec, 2 * channel_limits::lent_max + 1> pieces;
  std::size_t count = 0;
  std::uint64_t own = 0;
  for (const piece& p : std::span(lent_.data(), lent_count_)) {
    if (p.after != own) pieces[count++] = range(message_ + own, p.after - own);
    pieces[count++] = range(p.bytes.data(), p.bytes.size());
    own = p.after;
  }
  if (own != bytes) pieces[count++] = range(message_ + own, bytes - own);
  std::span<iovec> left(pieces.data(), count);
  for (std::uint64_t at = 0; !left.empty();) {
    const std::uint32_t seen = socket_.watch();
    const std::uint64_t n = socket_.send(left);
    at += n;
    sent_ += n;
    left = without(left, n);
    if (n != 0) continue;
    if (ended_at() != time_point::max() || clock::now() >= deadline || give_up()) {
      take_over(bytes);
      rest_begin_ = at;
      rest_end_ = bytes + lent_bytes_;
      return false;
    }
    socket_.wait(POLLOUT, seen, deadline);
  }
  return true;
}

std::span<const std::byte> stream_writer::rest(std::uint64_t follows, std::uint64_t& place) noexcept {
  place = sent_;
  const std::span<const std::byte> out{message_ + rest_begin_, rest_end_ - rest_begin_};
  sent_ += out.size() + follows;
  rest_begin_ = rest_end_ = 0;
  return out;
}

void stream_writer::finish() noexcept {
  (void)answers();  // what is not read when a socket is closed would cost what is on its way
  socket_.finish();
}

part_answers stream_writer::answers() noexcept {
  // Several may have come; but whoever sends them without end is not listened to for longer.
  for (int round = 0; round < 4; ++round) {
    const std::size_t n = socket_.receive({heard_.data() + heard_bytes_, heard_.size() - heard_bytes_});
    if (n == 0) return last_;
    heard_bytes_ += n;
    const std::size_t whole = heard_bytes_ - heard_bytes_ % answer_bytes;
    if (whole != 0) std::memcpy(&last_, heard_.data() + whole - answer_bytes, answer_bytes);
    std::memmove(heard_.data(), heard_.data() + whole, heard_bytes_ - whole);
    heard_bytes_ -= whole;
    if (n < heard_.size() / 2) break;
  }
  return last_;
}

void stream_writer::wait(std::uint32_t seen, const part_answers&, time_point deadline) noexcept {
  socket_.wait(POLLIN, seen, deadline);
}

// ---- reading ----

std::uint64_t stream_reader::receive(std::span<std::byte> to) noexcept {
  std::uint64_t n = 0;
  if (!aside_.empty() && received_ >= aside_at_) {
    const std::uint64_t from = received_ - aside_at_;
    n = std::min<std::uint64_t>(to.size(), aside_.size() - from);
    copy_bytes(to.data(), aside_.data() + from, n);
    if (from + n == aside_.size()) aside_ = std::vector<std::byte>();  // its memory goes, too
  } else {
    if (!aside_.empty()) to = to.first(std::min<std::uint64_t>(to.size(), aside_at_ - received_));
    n = socket_.receive(to);
  }
  received_ += n;
  return n;
}

time_point stream_reader::ended_at() const noexcept { return aside_.empty() ? socket_.ended_at() : time_point::max(); }

bool stream_reader::take_aside(std::uint64_t place, std::vector<std::byte>&& bytes) noexcept {
  if (!aside_.empty() || bytes.empty() || place < received_) return false;
  aside_ = std::move(bytes);
  aside_at_ = place;
  return true;
}

/// Until so many bytes are here, as far as they have come; up to `ahead` more are taken with them.
bool stream_reader::gather(std::size_t bytes, std::size_t ahead) noexcept {
  if (begin_ == end_) begin_ = end_ = 0;
  while (here() < bytes) {
    if (buffer_.size() - begin_ < bytes) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, here());
      end_ -= begin_;
      begin_ = 0;
    }
    const std::uint64_t n = receive({buffer_.data() + end_, std::min(bytes - here() + ahead, buffer_.size() - end_)});
    if (n == 0) return false;
    end_ += n;
  }
  return true;
}

bool stream_reader::skip() noexcept {
  while (skip_ != 0) {
    if (here() == 0 && !gather(1, buffer_.size())) return false;
    const std::uint64_t n = std::min<std::uint64_t>(skip_, here());
    begin_ += n;
    skip_ -= n;
  }
  return true;
}

void stream_reader::pass_shown() noexcept { begin_ += std::exchange(shown_, 0); }

byte_path_reader::found stream_reader::next(std::uint64_t most, std::span<const std::byte>& message,
                                            std::uint64_t& rest) noexcept {
  const std::size_t ahead = large_ ? channel_limits::stream_ahead_of_large : buffer_.size();
  if (!skip() || !gather(sizeof(head), ahead)) return found::nothing;
  head h;
  std::memcpy(&h, buffer_.data() + begin_, sizeof h);
  const std::uint64_t whole = sizeof h + std::uint64_t{h.bytes};
  if (whole > most) return found::broken;
  large_ = whole > buffer_.size();
  if (!gather(large_ ? sizeof h + 8 : whole, large_ ? 0 : buffer_.size())) return found::nothing;
  shown_ = large_ ? sizeof h + whole_words(std::min<std::uint64_t>(here() - sizeof h, h.bytes)) : whole;
  rest = rest_ = whole - shown_;
  message = {buffer_.data() + begin_, shown_};
  return found::message;
}

std::span<const std::byte> stream_reader::more() noexcept {
  pass_shown();
  // After an array that came straight another one may follow, of which the length alone is wanted here.
  if (rest_ < 8 || !gather(8, after_straight_ ? channel_limits::stream_ahead_of_large : buffer_.size())) return {};
  after_straight_ = false;
  shown_ = whole_words(std::min<std::uint64_t>(here(), rest_));
  rest_ -= shown_;
  return {buffer_.data() + begin_, shown_};
}

std::uint64_t stream_reader::more_into(std::span<std::byte> to) noexcept {
  pass_shown();
  to = to.first(std::min<std::uint64_t>(to.size(), rest_));
  std::uint64_t n = std::min<std::uint64_t>(here(), to.size());
  if (n != 0) copy_bytes(to.data(), buffer_.data() + begin_, n);
  begin_ += n;
  if (n < to.size()) {
    const std::uint64_t straight = receive(to.subspan(n));
    straight_ += straight;
    after_straight_ = true;
    n += straight;
  }
  rest_ -= n;
  return n;
}

void stream_reader::release() noexcept {
  pass_shown();
  skip_ += std::exchange(rest_, 0);
}

bool stream_reader::answer(const part_answers& a) noexcept {
  return socket_.send(std::as_bytes(std::span(&a, 1))) == sizeof a || socket_.ended_at() != time_point::max();
}

void stream_reader::wait(std::uint32_t seen, time_point deadline) noexcept { socket_.wait(POLLIN, seen, deadline); }

// ---- both ----

std::unique_ptr<receive_credit> stream_pair::make_credit(const channel_terms& terms) const {
  return std::make_unique<credit_on_demand>(terms);
}

}  // namespace fm::detail

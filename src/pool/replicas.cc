// Of a pool with replicas: where its primary is, and what of it counts. Members of agent_client.
//
// The primary's memory may show what its backup does not have yet. If the primary is lost then, that was never so. So
// nothing of it leaves this file's callers before it counts: an answer is held back until the word of the log has
// reached its number, and an object that was read one-sidedly is torn until it has reached its version.
//
// Nobody says when the word changes. It is read one-sidedly, which takes the primary no time: at once where its memory is
// mapped, and about as long as a message elsewhere.
#include "agent_client.h"

#include <cstring>
#include <thread>
#include <utility>

namespace fm::pool_detail {

using protocol::message_type;

// ---- where the primary is ----

errc agent_client::not_here(fabric::session& s, errc code) noexcept {
  for (std::size_t i = 0; i < urls_.size(); ++i)
    if (urls_[i] == s.url()) has_not_[i] = code == errc::not_found;
  refused_ = errc::unreachable;
  return errc::disconnected;
}

void agent_client::begin_elsewhere() noexcept {
  for (std::uint32_t i = 0; i < blocks::vblock_limit / blocks::chunk_words; ++i)
    if (chunks()[i].load(std::memory_order_seq_cst) != 0) chunks()[i].store(0, std::memory_order_relaxed);
}

result<agent_client::replica_state> agent_client::replicas() noexcept {
  const reply r = call(message_type::pool_replicas, {}, {}, deadline());
  if (r.code != errc::ok) return fail(r.code, url() + ": " + r.text());
  protocol::pool_replicas_answer a{};
  if (r.body().size() < sizeof a) return fail(errc::bad_frame, url());
  std::memcpy(&a, r.body().data(), sizeof a);
  const auto text = r.body().subspan(sizeof a);
  if ((a.has_backup != 0) == text.empty()) return fail(errc::bad_frame, url());
  return replica_state{a.term, detail::readable_text(text)};
}

bool agent_client::await_copy(time_point until) noexcept {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [&] { return (state_ & protocol::pool_state_copied) != 0; });
}

bool agent_client::tells_state() noexcept {
  const std::lock_guard lock(mutex_);
  return state_ != 0;
}

void agent_client::learn_state(std::uint32_t state, std::uint32_t tenure_then) noexcept {
  if (slot_ == 0 || (state & protocol::pool_state_known) == 0) return;
  std::uint32_t was = 0;
  {
    const std::lock_guard lock(mutex_);
    if (tenure() != tenure_then || !is_up_) return;  // of another agent, or of a connection that is gone
    was = std::exchange(state_, state);
    parts_->note(slot_, (state & protocol::pool_state_copied) != 0 ? part_state::copied : part_state::alone);
    changed_.notify_all();
  }
  const bool leaves = (state & protocol::pool_state_leaves) != 0, left = (was & protocol::pool_state_leaves) != 0;
  if (leaves != left) tell(leaves ? agent_change::leaving : agent_change::staying);
}

// ---- what counts ----

void agent_client::take_number(reply& r, message_type type) noexcept {
  protocol::pool_number n{};
  if (slot_ == 0 || !protocol::is_about_pool_objects(type) || r.body().size() < sizeof n) return;
  std::memcpy(&n, r.bytes.data() + r.bytes.size() - sizeof n, sizeof n);
  r.bytes.resize(r.bytes.size() - sizeof n);
  r.number = n.number;
}

bool agent_client::look_at_word(due& until) noexcept {
  const std::uint32_t then = tenure();
  const blocks::place at = blocks::place_of(word_at_.load(std::memory_order_acquire));
  std::uint64_t now = 0;
  if (read_at(at, std::as_writable_bytes(std::span(&now, 1)), until) != errc::ok) return false;
  if (tenure() != then) return false;  // what is there is of another agent
  std::uint64_t known = counted_.load(std::memory_order_relaxed);
  while (known < now && !counted_.compare_exchange_weak(known, now, std::memory_order_acq_rel)) {
  }
  return true;
}

bool agent_client::counts_now(std::uint32_t version, due& until) noexcept {
  if (!look_at_word(until)) return false;
  const auto ahead = version - static_cast<std::uint32_t>(counted_.load(std::memory_order_acquire));
  return ahead == 0 || ahead > pool_limits::uncounted_max;
}

bool agent_client::await_count(reply& r, time_point deadline) noexcept {
  if (r.code == errc::disconnected || r.code == errc::timed_out || r.code == errc::cancelled) return false;
  const time_point begin = clock::now();
  if (r.code == errc::under_replicated) {
    if (begin >= deadline) return false;
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, std::min(deadline, begin + pool_limits::count_nap_most));
    return true;
  }
  if (r.number == 0) return false;
  duration nap = std::chrono::microseconds(20);
  due until(deadline);
  for (;;) {
    const bool counts = counted_.load(std::memory_order_acquire) >= r.number, looked = counts || look_at_word(until);
    // Looked at afterwards: another primary gives the same numbers to other changes.
    const bool is_of_another = tenure() != r.tenure;
    if (counts && !is_of_another) return false;
    const time_point now = clock::now();
    if (now >= deadline) {
      r.code = errc::under_replicated;
      r.bytes.clear();
      return false;
    }
    if (is_of_another || (!looked && session_->state() != fabric::session_state::up)) {
      // The answer is of a primary that may be gone, and with it what it is about: its number means nothing to another.
      r.code = errc::disconnected;
      return false;
    }
    if (now < begin + pool_limits::count_spin_for) {
      std::this_thread::yield();
      continue;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, std::min(deadline, now + nap));
    nap = std::min<duration>(2 * nap, pool_limits::count_nap_most);
  }
}

}  // namespace fm::pool_detail

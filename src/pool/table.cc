// The cached table of virtual blocks, and the regions that its words name; see agent_client.h. A cached word is a hint:
// a read that it misleads is corrected by the agent. Reads and calls of the same agent_client use it.
#include <unistd.h>

#include <array>
#include <cstring>

#include "agent_client.h"

namespace fm::pool_detail {

using protocol::message_type;

agent_client::learning::learning(agent_client& c, time_point until) noexcept : client(c) {
  std::unique_lock lock(c.mutex_);
  mine = c.changed_.wait_until(lock, until, [&] { return !c.is_learning_; });
  if (mine) c.is_learning_ = true;
}

agent_client::learning::learning(agent_client& c) noexcept : client(c), mine(true) {
  std::unique_lock lock(c.mutex_);
  c.changed_.wait(lock, [&] { return !c.is_learning_; });
  c.is_learning_ = true;
}

agent_client::learning::~learning() {
  if (!mine) return;
  const std::lock_guard lock(client.mutex_);
  client.is_learning_ = false;
  client.changed_.notify_all();
}

errc agent_client::learn_region(std::uint32_t ordinal, due& until) noexcept {
  if (ordinal >= blocks::ordinal_limit) return errc::not_found;
  const detail::section_break outside;
  const learning turn(*this, until.at());
  if (!turn.mine) return errc::timed_out;
  fabric::remote known;
  while (!locate(ordinal, known)) {
    const protocol::pool_region_body b{ordinal, 0};
    reply r = call(message_type::pool_region, std::as_bytes(std::span(&b, 1)), {}, until.at());
    protocol::region_answer a{};
    const bool good = r.code == errc::ok && r.body().size() == sizeof a;
    if (good) std::memcpy(&a, r.body().data(), sizeof a);
    if (!good || a.bytes != layout_.region_bytes || a.generation == 0) {
      if (r.key.fd >= 0) ::close(r.key.fd);
      return r.code == errc::ok ? errc::bad_frame : r.code;
    }
    // The number may have been another region's before, which nobody told us of yet.
    if (const auto other = ordinal_of_.find(a.region); other != ordinal_of_.end() && other->second != ordinal) {
      regions()[other->second].name.store(0, std::memory_order_release);
      const std::lock_guard guard(pass_mutex_);
      if (sections_.pass(until.at())) session_->detach(a.region);
      ordinal_of_.erase(other);
    }
    const errc e = session_->attach(a.region, a.generation, a.bytes, r.key);
    if (e == errc::ok) {
      // Not of the session as it is now: that may be with another agent, whose memory this is not.
      regions()[ordinal].attached_in.store(r.generation, std::memory_order_relaxed);
      regions()[ordinal].name.store(std::uint64_t{a.region} << 32 | a.generation, std::memory_order_release);
      ordinal_of_[a.region] = ordinal;
      std::erase(leaving_, a.region);
    } else if (e != errc::disconnected && e != errc::timed_out && e != errc::cancelled) {
      return e;
    }
    if (until.is_over()) return errc::timed_out;
  }
  return errc::ok;
}

errc agent_client::read_at(blocks::place at, std::span<std::byte> to, due& until) noexcept {
  for (int tries = 0;; ++tries) {
    fabric::remote where;
    if (!locate(at.ordinal, where)) {
      if (const errc e = learn_region(at.ordinal, until); e != errc::ok) return e;
      if (tries < 8) continue;
      return errc::disconnected;
    }
    where.offset = at.offset;
    fabric::request r;
    r.kind = fabric::op_kind::read;
    r.on = fabric::lane::fetch;
    r.sg_count = 1;
    r.sg[0] = {to.data(), to.size()};
    r.where = where;
    r.deadline = one_sided_until(until);
    const detail::section_break outside;
    const class sections::guard section(sections_);
    session_->post(r);
    session_->wait(r);
    return r.status;
  }
}

bool agent_client::chunk_place(std::uint32_t vblock, blocks::place& at, due& until) noexcept {
  const std::uint32_t chunk = vblock / blocks::chunk_words;
  std::uint64_t known = chunks()[chunk].load(std::memory_order_relaxed);
  if (known == 0) {
    const protocol::pool_table_body b{chunk, 0};
    const reply r = call(message_type::pool_table, std::as_bytes(std::span(&b, 1)), {}, until.at());
    protocol::pool_table_answer a{};
    if (r.code != errc::ok || r.body().size() != sizeof a) return false;
    std::memcpy(&a, r.body().data(), sizeof a);
    if (a.ordinal >= blocks::ordinal_limit || a.offset % blocks::frame_bytes_min != 0 ||
        a.offset + blocks::frame_bytes_min > layout_.region_bytes)
      return false;
    known = blocks::table_word(0, {a.ordinal, a.offset}, 0);
    // Another agent has the chunk elsewhere. One that becomes the primary raises the tenure, then forgets all chunks.
    std::uint64_t stored = known;
    chunks()[chunk].store(known, std::memory_order_seq_cst);
    if (tenure_.load(std::memory_order_seq_cst) != r.tenure) {
      chunks()[chunk].compare_exchange_strong(stored, 0, std::memory_order_relaxed);
      return false;
    }
  }
  at = blocks::place_of(known);
  return true;
}

std::uint64_t agent_client::read_chunk(std::uint32_t vblock, due& until) noexcept {
  blocks::place at;
  if (vblock >= blocks::vblock_limit || !chunk_place(vblock, at, until)) return 0;
  std::array<std::uint64_t, blocks::chunk_words> read;
  if (read_at(at, std::as_writable_bytes(std::span(read)), until) != errc::ok) return 0;
  count.chunks_read.fetch_add(1, std::memory_order_relaxed);
  std::atomic<std::uint64_t>* const cached = words() + vblock / blocks::chunk_words * blocks::chunk_words;
  for (std::uint32_t i = 0; i < read.size(); ++i)
    cached[i].store(is_sound(read[i]) ? read[i] : 0, std::memory_order_relaxed);
  return words()[vblock].load(std::memory_order_relaxed);
}

bool agent_client::load_mapped(blocks::place at, std::uint64_t& word) noexcept {
  if (!mapped()) return false;
  const class sections::guard section(sections_);
  const std::byte* const from = mapped_at(at);
  if (from == nullptr) return false;
  word = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(from), __ATOMIC_ACQUIRE);
  return true;
}

std::uint64_t agent_client::refresh(std::uint32_t vblock, due& until) noexcept {
  blocks::place at;
  if (vblock >= blocks::vblock_limit || !chunk_place(vblock, at, until)) return 0;
  std::uint64_t w = 0;
  at.offset += vblock % blocks::chunk_words * 8;
  if (!load_mapped(at, w) && read_at(at, std::as_writable_bytes(std::span(&w, 1)), until) != errc::ok) return 0;
  count.words_refreshed.fetch_add(1, std::memory_order_relaxed);
  if (!is_sound(w)) w = 0;
  words()[vblock].store(w, std::memory_order_relaxed);
  return w;
}

}  // namespace fm::pool_detail

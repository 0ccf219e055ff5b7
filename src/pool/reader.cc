// One-sided reads; see reader.h, and protocol/pool_format.h for what they find.
//
// The order in which a transport copies bytes is its own business. With a checksum that does not matter. With versions
// in lines the header is read before and after, by requests that follow each other: an unlocked header with the same
// version on both sides says that nobody changed anything in between. A transport that copies when the answer goes out,
// and not when the request is carried out, does that for more than 4 KiB only; the second look is then posted when the
// object has arrived. Where the agent's memory is mapped into this process, a read is made of loads, nothing is posted at
// all, and the order of the loads takes the place of the checksum.
#include "reader.h"
#include "base/copy.h"
#include "base/pool_limits.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace fm::pool_detail {

using blocks::consistency;
using blocks::object_header;

namespace {

/// The three words of a slot's header; of one state only if nobody changes the slot meanwhile.
inline object_header load_header(const std::byte* slot) noexcept {
  std::array<std::uint64_t, 3> words;
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(slot) + i, __ATOMIC_ACQUIRE);
  object_header h;
  static_assert(sizeof words == sizeof h);
  std::memcpy(&h, words.data(), sizeof h);
  return h;
}

/// Copies before it were made before those after it.
inline void loads_in_order() noexcept {
#if FM_TSAN
  __asm__ volatile("" ::: "memory");  // the thread sanitizer knows no fences
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

std::vector<std::byte>& buffer(std::size_t bytes) {
  thread_local std::vector<std::byte> b;
  if (b.size() < bytes) b.resize(bytes);
  return b;
}

}  // namespace

/// In the order in which they were added, each after the one before.
bool reader::post(request_set& set) noexcept {
  fabric::session& s = agent_.session();
  const bool ordered_by_us =
      agent_.synchronous() || (set.count == 3 && set.requests[1].bytes() > probe::copied_at_once);
  if (ordered_by_us) {
    for (std::size_t i = 0; i < set.count; ++i) {
      s.post(set.requests[i]);
      s.wait(set.requests[i]);
      if (set.requests[i].status != errc::ok) return false;
      loads_in_order();
    }
    return true;
  }
  std::array<fabric::request*, 3> all{};
  for (std::size_t i = 0; i < set.count; ++i) {
    all[i] = &set.requests[i];
    set.requests[i].fence = i != 0;
  }
  s.post(std::span<fabric::request* const>(all.data(), set.count));
  bool good = true;
  for (std::size_t i = 0; i < set.count; ++i) {
    s.wait(set.requests[i]);
    good = good && set.requests[i].status == errc::ok;
  }
  return good;
}

bool reader::tenure_held(std::uint32_t tenure) noexcept {
  if (agent_.lease_holds() && agent_.tenure() == tenure) return true;
  agent_.count.discarded.fetch_add(1, std::memory_order_relaxed);
  return false;
}

pool_read reader::judge(const object_header& h, const blocks::identity& id, std::uint32_t size_class,
                        const target& to) const noexcept {
  if (!blocks::names(h, id)) return pool_read::moved;
  if ((h.flags & (blocks::flag_moved | blocks::flag_freed)) != 0) return pool_read::moved;
  if (h.flags != blocks::flag_live) return pool_read::torn;
  if (h.bytes > agent_.layout().capacity(size_class)) return pool_read::torn;
  if (to.any == nullptr && h.bytes != to.bytes) return pool_read::wrong_size;
  return pool_read::ok;
}

pool_read reader::prepare(placement& q, std::uint64_t word, std::uint32_t slot, const blocks::identity& id,
                          const target& to) noexcept {
  const blocks::layout& layout = agent_.layout();
  q.size_class = blocks::class_of(word);
  q.id = id;
  const std::uint32_t slot_bytes = blocks::slot_bytes(q.size_class);
  if (slot >= layout.slots(q.size_class)) return pool_read::moved;
  q.mode = layout.mode(q.size_class);
  q.wanted = to.any != nullptr ? slot_bytes : blocks::occupied_bytes(to.bytes, q.mode);
  if (q.wanted > slot_bytes) return pool_read::wrong_size;
  const blocks::place at = blocks::place_of(word);
  for (int tries = 0; !agent_.locate(at.ordinal, q.where); ++tries)
    if (tries == 8 || agent_.learn_region(at.ordinal, until_) != errc::ok) return pool_read::failed;
  q.where.offset = at.offset + std::uint64_t{slot} * slot_bytes;
  q.contiguous = q.mode == consistency::checksum && to.any == nullptr;
  q.bracketed = q.mode == consistency::versions && !trust_lines_;
  return pool_read::ok;
}

void reader::fill(probe& q, const target& to, std::byte* staged) noexcept {
  q.staged = staged;
  request_set& set = q.requests;
  if (q.bracketed) request_set::into(set.add(q.where), &q.around[0], sizeof q.around[0]);
  {
    fabric::request& r = set.add(q.where);
    if (q.contiguous) {
      request_set::into(r, &q.header, sizeof q.header);
      if (to.bytes != 0) request_set::into(r, to.data, to.bytes);
    } else {
      request_set::into(r, staged, q.wanted);
    }
  }
  if (q.bracketed) request_set::into(set.add(q.where), &q.around[1], sizeof q.around[1]);
}

pool_read reader::attempt(std::uint64_t word, std::uint32_t slot, const blocks::identity& id, target& to) noexcept {
  placement at;
  if (const pool_read how = prepare(at, word, slot, id, to); how != pool_read::ok) return how;
  const std::uint32_t tenure = agent_.tenure();
  const auto counted = [&](pool_read how) {
    return how != pool_read::ok || agent_.counts(to.version, tenure, &until_) ? how : pool_read::torn;
  };
  if (agent_.mapped())
    return counted(
        attempt_mapped(blocks::place_of(word), slot * blocks::slot_bytes(at.size_class), at.size_class, id, to));
  probe q{at};
  fill(q, to, q.contiguous ? nullptr : buffer(q.wanted).data());
  const time_point until = agent_.one_sided_until(until_);
  for (std::size_t i = 0; i < q.requests.count; ++i) q.requests.requests[i].deadline = until;
  {
    q.tenure = agent_.tenure();
    const detail::section_break outside;
    const class sections::guard section(agent_.sections());
    if (!post(q.requests)) return pool_read::failed;
    if (!tenure_held(q.tenure)) return pool_read::torn;
  }
  return counted(judged(q, to));
}

/// Within a section perhaps, where nobody looks at what counts.
pool_read reader::finish(probe& q, target& to) noexcept {
  const pool_read how = judged(q, to);
  return how != pool_read::ok || agent_.counts(to.version, q.tenure, nullptr) ? how : pool_read::torn;
}

pool_read reader::judged(probe& q, target& to) noexcept {
  object_header& h = q.header;
  if (!q.contiguous) std::memcpy(&h, q.staged, sizeof h);
  const auto same = [&](const object_header& o) {
    return o.vblock == h.vblock && o.generation == h.generation && o.index == h.index && o.flags == h.flags &&
           o.version == h.version && o.bytes == h.bytes;
  };
  if (q.bracketed && !(same(q.around[0]) && same(q.around[1]))) {
    // What it looks like now says whether it is worth trying again here.
    const pool_read now = judge(q.around[1], q.id, q.size_class, to);
    return now == pool_read::ok ? pool_read::torn : now;
  }
  if (const pool_read how = judge(h, q.id, q.size_class, to); how != pool_read::ok) return how;
  std::byte* data = to.data;
  if (to.any != nullptr) {
    to.any->resize(h.bytes);
    data = to.any->data();
  }
  to.version = blocks::version_of(h);
  if (q.mode == consistency::versions)
    return blocks::gather_lines(q.staged, h.version, data, h.bytes) ? pool_read::ok : pool_read::torn;
  if (!q.contiguous && h.bytes != 0) std::memcpy(data, q.staged + blocks::header_bytes, h.bytes);
  return blocks::checksum(h, data) == h.crc ? pool_read::ok : pool_read::torn;
}

/// Where the agent's memory is this process's too, nothing is posted. The object fits into its slot, and the slot into the
/// region: attempt() and is_sound() have seen to that.
///
/// As with a sequence lock, the word with flags and version is loaded first and last. Whatever changes a slot stores that
/// word before anything else of the slot, locked or with the new flags, and unlocked after everything else. No two states
/// of a slot have the same word with flag_live, but for 2^32 changes of the pool in between. A merge copies the word with
/// the object. But an object comes back to a slot only in a frame that is used again, which waits for this section. So if
/// it is that, and the same both times, everything that was loaded in between is of that state. Nothing is left for a
/// checksum to find. A writer that dies half way leaves the slot locked.
pool_read reader::attempt_mapped(blocks::place at, std::uint32_t offset, std::uint32_t size_class,
                                 const blocks::identity& id, target& to) noexcept {
  const std::uint32_t tenure = agent_.tenure();
  const class sections::guard section(agent_.sections());
  const std::byte* const block = agent_.mapped_at(at);  // within the section: from here on it stays mapped
  if (block == nullptr) return pool_read::failed;
  const std::byte* const from = block + offset;
  fm::detail::begin_loading(from, blocks::slot_bytes(size_class));
  const auto load_state = [from] {
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(from) + 1, __ATOMIC_ACQUIRE);
  };
  const std::uint64_t state = load_state();
  const object_header h = load_header(from);
  const pool_read how = judge(h, id, size_class, to);
  bool whole = true;
  if (how == pool_read::ok) {
    to.version = blocks::version_of(h);
    std::byte* data = to.data;
    if (to.any != nullptr) {
      to.any->resize(h.bytes);
      data = to.any->data();
    }
    if (agent_.layout().mode(size_class) == consistency::versions)
      whole = blocks::gather_lines(from, h.version, data, h.bytes);
    else if (h.bytes != 0)
      std::memcpy(data, from + blocks::header_bytes, h.bytes);
  }
  loads_in_order();
  return whole && load_state() == state && tenure_held(tenure) ? how : pool_read::torn;
}

bool reader::look(std::uint64_t word, std::uint32_t& slot, std::uint32_t slots, const blocks::identity& id, target& to,
                  pool_read& how) noexcept {
  const blocks::layout& layout = agent_.layout();
  const std::uint32_t c = blocks::class_of(word), slot_bytes = blocks::slot_bytes(c);
  if (slot >= layout.slots(c)) return false;
  slots = std::min(slots, layout.slots(c) - slot);
  const std::uint32_t bytes = slots * slot_bytes;
  std::byte* const read = buffer(bytes).data();
  blocks::place at = blocks::place_of(word);
  at.offset += slot * slot_bytes;
  const std::uint32_t tenure = agent_.tenure();
  if (agent_.read_at(at, {read, bytes}, until_) != errc::ok) return false;
  for (std::uint32_t i = 0; i < slots; ++i) {
    object_header h;
    const std::byte* const from = read + std::size_t{i} * slot_bytes;
    std::memcpy(&h, from, sizeof h);
    const pool_read seen = judge(h, id, c, to);
    if (seen == pool_read::moved) continue;
    slot += i;
    how = seen;
    // Where the checksum proves it, what was read is good; else it is read again by itself.
    if (seen == pool_read::ok && layout.mode(c) == consistency::checksum &&
        blocks::checksum(h, from + blocks::header_bytes) == h.crc && tenure_held(tenure)) {
      to.version = blocks::version_of(h);
      if (!agent_.counts(to.version, tenure, &until_)) {
        how = pool_read::torn;
        return true;
      }
      if (to.any != nullptr) to.any->assign(from + blocks::header_bytes, from + blocks::header_bytes + h.bytes);
      if (to.any == nullptr && h.bytes != 0) std::memcpy(to.data, from + blocks::header_bytes, h.bytes);
      return true;
    }
    if (seen == pool_read::ok) how = attempt(word, slot, id, to);
    return true;
  }
  return false;
}

/// From the slot on, and from the block's first one when its end is reached, as the merge looked for a free one.
bool reader::seek(std::uint64_t word, std::uint32_t& slot, const blocks::identity& id, target& to,
                  pool_read& how) noexcept {
  const std::uint32_t c = blocks::class_of(word), slot_bytes = blocks::slot_bytes(c);
  const std::uint32_t slots = agent_.layout().slots(c), from = slot;
  if (from >= slots) return false;
  if (agent_.mapped()) return seek_mapped(word, slot, id, to, how);
  const std::uint32_t step =
      std::clamp(pool_limits::probe_bytes / slot_bytes, std::uint32_t{1}, pool_limits::probe_slots_max);
  if (!agent_.synchronous()) return look(word, slot, step, id, to, how);
  const std::uint32_t most = std::min(slots, pool_limits::seek_slots_max);
  for (std::uint32_t looked = 0; looked < most;) {
    slot = (from + looked) % slots;
    if (slot_bytes <= pool_limits::seek_whole_upto) {
      const std::uint32_t n = std::min({step, slots - slot, most - looked});
      if (look(word, slot, n, id, to, how)) return true;
      looked += n;
      continue;
    }
    object_header h;
    blocks::place at = blocks::place_of(word);
    at.offset += slot * slot_bytes;
    if (agent_.read_at(at, std::as_writable_bytes(std::span(&h, 1)), until_) != errc::ok) return false;
    if (judge(h, id, c, to) != pool_read::moved) {
      how = attempt(word, slot, id, to);
      return true;
    }
    ++looked;
  }
  return false;
}

bool reader::seek_mapped(std::uint64_t word, std::uint32_t& slot, const blocks::identity& id, target& to,
                         pool_read& how) noexcept {
  const std::uint32_t c = blocks::class_of(word), slot_bytes = blocks::slot_bytes(c), from = slot;
  const std::uint32_t slots = agent_.layout().slots(c);
  const blocks::place at = blocks::place_of(word);
  fabric::remote known;
  if (!agent_.locate(at.ordinal, known) && agent_.learn_region(at.ordinal, until_) != errc::ok) return false;
  const auto find = [&] {
    const class sections::guard section(agent_.sections());
    const std::byte* const block = agent_.mapped_at(at);
    for (std::uint32_t looked = 0; block != nullptr && looked < slots; ++looked) {
      slot = (from + looked) % slots;
      if (judge(load_header(block + std::size_t{slot} * slot_bytes), id, c, to) != pool_read::moved) return true;
    }
    return false;
  };
  if (!find()) return false;
  how = attempt(word, slot, id, to);
  return true;
}

pool_read reader::direct(pool_address p, target& to) noexcept {
  const std::uint64_t word = word_of(p.block());
  if (word == 0) return pool_read::unknown;
  const pool_read how = attempt(word, p.hint(), identity_of(p), to);
  if (how == pool_read::ok) agent_.sections().mine().direct.fetch_add(1, std::memory_order_relaxed);
  return how;
}

errc reader::read(pool_address& p, target& to, std::string* text) noexcept {
  const std::uint64_t word = word_of(p.block());
  const pool_read how = word == 0 ? pool_read::unknown : attempt(word, p.hint(), identity_of(p), to);
  if (how == pool_read::ok) {
    agent_.sections().mine().direct.fetch_add(1, std::memory_order_relaxed);
    return errc::ok;
  }
  return settle(p, to, word, how, text);
}

errc reader::settle(pool_address& p, target& to, std::uint64_t word, pool_read how, std::string* text) noexcept {
  const time_point begin = clock::now();
  const errc e = correct(p, to, word, how, text);
  const auto took = static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count());
  agent_.count.corrections.add(took);
  if (took > 1'000'000) agent_.count.stalls.fetch_add(1, std::memory_order_relaxed);
  return e;
}

/// Torn: again, a bounded number of times. Moved: the word of the table again, then the slot and the next ones.
/// Whatever that does not find, the agent is asked for: its answer is the truth, and its error the one to report.
errc reader::correct(pool_address& p, target& to, std::uint64_t word, pool_read how, std::string* text) noexcept {
  const detail::section_break outside;  // writers are waited for
  sections::stripe& counts = agent_.sections().mine();
  const blocks::identity id = identity_of(p);
  std::uint32_t slot = p.hint();
  bool refreshed = false;
  for (int torn = 0; torn < pool_limits::torn_max;) {
    if (how == pool_read::torn) {
      counts.torn.fetch_add(1, std::memory_order_relaxed);
      if (++torn < 8)
        detail::cpu_relax();
      else
        std::this_thread::yield();
      if (!agent_.lease_holds())
        if (const errc e = agent_.renew(until_); e != errc::ok) {
          if (!until_.is_over()) break;
          if (text != nullptr) *text = "the lease has run out, and the agent does not renew it";
          return e;
        }
      how = attempt(word, slot, id, to);
    } else if (how == pool_read::moved && !refreshed) {
      counts.moved.fetch_add(1, std::memory_order_relaxed);
      refreshed = true;
      word = agent_.refresh(id.vblock, until_);
      if (word == 0) break;
      if (!seek(word, slot, id, to, how)) break;
    }
    if (how == pool_read::ok) {
      p.set_hint(static_cast<std::uint16_t>(slot));
      counts.corrected.fetch_add(1, std::memory_order_relaxed);
      return errc::ok;
    }
    if (how != pool_read::torn && (how != pool_read::moved || refreshed)) break;
  }
  return ask(p, to, text);
}

pool_read reader::scan(pool_address& p, target& to) {
  agent_.count.scans.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t word = agent_.refresh(p.block(), until_);
  if (word == 0) return pool_read::unknown;
  std::uint32_t slot = 0;
  pool_read how = pool_read::moved;
  if (look(word, slot, agent_.layout().slots(blocks::class_of(word)), identity_of(p), to, how) && how == pool_read::ok)
    p.set_hint(static_cast<std::uint16_t>(slot));
  return how;
}

errc reader::ask(pool_address& p, target& to, std::string* text) noexcept {
  if (until_.is_over()) return errc::timed_out;
  const protocol::pool_read_body b{{p.block(), p.generation(), p.index(), p.hint(), 0}, blocks::slot_bytes_max, 0};
  const auto type = to.wants_version ? protocol::message_type::pool_read_version : protocol::message_type::pool_read;
  const reply r = agent_.call(type, std::as_bytes(std::span(&b, 1)), {}, until_.at(), fabric::lane::fetch);
  if (r.code != errc::ok) {
    if (text != nullptr) *text = r.text();
    return r.code;
  }
  static_assert(sizeof(protocol::pool_read_version_answer) == sizeof(protocol::pool_read_answer) + 8);
  protocol::pool_read_version_answer a{};  // begins as the other one
  const std::size_t head = to.wants_version ? sizeof a : sizeof(protocol::pool_read_answer);
  std::span<const std::byte> body = r.body();
  if (body.size() < head) return errc::bad_frame;
  std::memcpy(&a, body.data(), head);
  body = body.subspan(head);
  to.version = a.version;
  const protocol::pool_object& o = a.at.object;
  if (a.bytes != body.size() || o.vblock != p.block() || o.generation != p.generation() || o.index != p.index())
    return errc::bad_frame;
  agent_.count.rpc_reads.fetch_add(1, std::memory_order_relaxed);
  agent_.learn_word(o.vblock, a.at.word);
  if (to.any != nullptr) {
    to.any->assign(body.begin(), body.end());
  } else {
    if (body.size() != to.bytes) {
      if (text != nullptr) *text = std::to_string(to.bytes) + " bytes for an object of " + std::to_string(body.size());
      return errc::layout_mismatch;
    }
    if (!body.empty()) std::memcpy(to.data, body.data(), body.size());
  }
  p.set_hint(o.slot);
  return errc::ok;
}

}  // namespace fm::pool_detail

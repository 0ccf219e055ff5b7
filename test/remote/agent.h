// An agent for tests of the agent session: it keeps the store protocol to the letter, on little memory, remembers what
// it was told, and can be told to break the protocol at a chosen message. A hook sees every message before it is
// handled and says what happens to it; the service interface is the same one that the real store stands behind.
#pragma once

#include "agent/service/service.h"
#include "os/os.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_messages.h"
#include "remote/agent_session.h"
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace fm::remote::test {

/// What happens to a message.
struct verdict {
  enum what : std::uint8_t {
    handle,        ///< as it should be
    refuse,        ///< answered with `code`, not handled
    break_before,  ///< the connection breaks, not handled
    break_after,   ///< handled, but the connection breaks before the answer is out
    garbage,       ///< handled, and answered with bytes that are no answer
  } what = handle;
  errc code = errc::ok;
};

class scripted_agent final : public fabric::service {
 public:
  struct applied {
    std::uint64_t seq;
    std::uint32_t region, offset, length, count;
    bool abandoned;
  };
  struct region {
    os::memory_file memory;
    std::uint32_t generation = 1;
    bool open = true, sealed = false, owned = true;
    std::uint64_t readable = 0;
    std::map<std::uint32_t, std::uint32_t> extents;
  };

  explicit scripted_agent(std::uint64_t bytes = 64 << 10, std::uint32_t most = 64)
      : region_bytes(bytes), regions_max(most) {}

  const std::uint64_t region_bytes;
  const std::uint32_t regions_max;
  std::uint32_t lease_ms = 10000;
  /// Of no region: open_region is answered with this one, whatever it is.
  region_name reopens{.region = ~0u, .generation = 0};
  /// Called with the agent's lock released; `nth` counts messages of this type from 1.
  std::function<verdict(message_type type, std::uint64_t nth, std::span<const std::byte> body)> hook;

  // ---- what it remembers; under `mutex` ----
  mutable std::mutex mutex;
  std::condition_variable seen;
  std::vector<applied> log;
  std::map<detail::slot_t, detail::word_t> entries;
  std::map<message_type, std::uint64_t> messages;
  std::map<std::uint32_t, region> regions;
  std::vector<std::uint32_t> types;
  std::uint64_t quota_bytes = 1 << 30;
  std::vector<region_name> retired;
  std::optional<std::uint32_t> left_after_retirement;  ///< told then; without: as an older agent, which tells nothing
  bool heap_here = false;
  std::uint64_t applied_seq = 0;
  std::uint64_t one_sided_writes = 0;
  fabric::peer* owner = nullptr;

  /// Waits until `condition` holds, looking again after every message; false after ten seconds.
  template <class Condition>
  bool until(Condition condition) {
    std::unique_lock lock(mutex);
    return seen.wait_for(lock, std::chrono::minutes(10), condition);
  }
  std::uint64_t count(message_type t) {
    const std::lock_guard lock(mutex);
    return messages[t];
  }
  void forget_heap() {
    const std::lock_guard lock(mutex);
    heap_here = false;
  }
  void ask_back(std::uint32_t r) { ask_back(r, regions.at(r).generation); }
  void ask_back(std::uint32_t r, std::uint32_t generation) {
    const std::lock_guard lock(mutex);
    struct __attribute__((packed)) {
      message_head head;
      region_name name;
    } n{{static_cast<std::uint16_t>(message_type::retire_region), 0, sizeof(region_name)}, {r, generation}};
    owner->notify({reinterpret_cast<const std::byte*>(&n), sizeof n});
  }
  void notify_raw(std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex);
    owner->notify(bytes);
  }
  /// A region that the owner did not ask for, as the cleaner would make it.
  void make_region(std::uint32_t number, std::uint64_t readable, bool sealed) {
    const std::lock_guard lock(mutex);
    region& r = regions[number];
    r.memory = os::memory_file("scripted", region_bytes);
    r.open = false;
    r.owned = false;
    r.readable = readable;
    r.sealed = sealed;
  }
  /// The bytes of a region, walked by batch headers from its start: the numbers found.
  std::vector<std::uint64_t> walk(std::uint32_t number) const {
    const std::lock_guard lock(mutex);
    const region& r = regions.at(number);
    std::vector<std::uint64_t> seqs;
    for (std::uint64_t at = 0; at < r.readable;) {
      batch_header h;
      std::memcpy(&h, r.memory.base() + at, sizeof h);
      if (h.magic != batch_magic || h.length < sizeof h) return {};
      seqs.push_back(h.seq);
      at += h.length;
    }
    return seqs;
  }

  errc connected(fabric::peer& p) noexcept override {
    p.user = nullptr;
    return errc::ok;
  }
  void disconnected(fabric::peer& p) noexcept override {
    const std::lock_guard lock(mutex);
    if (owner == &p) owner = nullptr;
    seen.notify_all();
  }
  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override;
  std::byte* memory(fabric::peer&, const fabric::remote& where, std::uint64_t bytes,
                    fabric::access how) noexcept override {
    const std::lock_guard lock(mutex);
    const auto it = regions.find(where.region);
    if (it == regions.end() || it->second.generation != where.generation) return nullptr;
    if (bytes > region_bytes || where.offset > region_bytes - bytes) return nullptr;
    if (how == fabric::access::write) ++one_sided_writes;
    return it->second.memory.base() + where.offset;
  }
  void memory_done(fabric::peer&, std::uint32_t) noexcept override {}

 private:
  using body_type = std::span<const std::byte>;
  template <class T>
  static T as(body_type b) {
    T t{};
    std::memcpy(&t, b.data(), std::min(b.size(), sizeof t));
    return t;
  }
  static void answer(fabric::answer& out, message_type type, errc code, const void* data, std::size_t bytes) {
    const answer_head head{static_cast<std::uint16_t>(type), static_cast<std::uint16_t>(code),
                           static_cast<std::uint32_t>(bytes)};
    out.payload.resize(sizeof head + bytes);
    std::memcpy(out.payload.data(), &head, sizeof head);
    if (bytes != 0) std::memcpy(out.payload.data() + sizeof head, data, bytes);
  }
  void answer_region(fabric::answer& out, message_type type, std::uint32_t number) {
    const region& r = regions.at(number);
    const region_answer a{number, r.generation, region_bytes, r.sealed ? region_bytes : r.readable, r.sealed ? 1u : 0u,
                          0};
    answer(out, type, errc::ok, &a, sizeof a);
    out.share(r.memory.fd());
  }
  void handle(fabric::peer& p, message_type type, body_type body, fabric::answer& out);
  errc apply(const index_body& m);
  std::uint32_t next_region_ = 0;
};

/// Every home copy in these tests is {header, bytes, pattern...}: the second word says how long it is.
inline std::uint64_t copy_bytes(const std::byte* p) {
  std::uint64_t n = 0;
  std::memcpy(&n, p + 8, 8);
  return n;
}

inline errc scripted_agent::message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept {
  message_head head{};
  if (payload.size() < sizeof head) return errc::bad_frame;
  std::memcpy(&head, payload.data(), sizeof head);
  const body_type body = payload.subspan(sizeof head);
  if (head.zero != 0 || head.body_bytes != body.size()) return errc::bad_frame;
  const auto type = static_cast<message_type>(head.type);
  std::uint64_t nth = 0;
  {
    const std::lock_guard lock(mutex);
    nth = ++messages[type];
    seen.notify_all();
  }
  const verdict v = hook ? hook(type, nth, body) : verdict{};
  if (v.what == verdict::break_before) return errc::bad_frame;
  const std::lock_guard lock(mutex);
  if (v.what == verdict::refuse)
    answer(out, type, v.code, "scripted", 8);
  else
    handle(p, type, body, out);
  seen.notify_all();
  if (v.what == verdict::break_after) return errc::bad_frame;
  if (v.what == verdict::garbage) out.payload.assign(5, std::byte{0x5a});
  return errc::ok;
}

inline void scripted_agent::handle(fabric::peer& p, message_type type, body_type body, fabric::answer& out) {
  const auto ok = [&](const void* d = nullptr, std::size_t n = 0) { answer(out, type, errc::ok, d, n); };
  const auto no = [&](errc e) { answer(out, type, e, "no", 2); };
  switch (type) {
    case message_type::open_heap: {
      const auto m = as<open_heap_body>(body);
      if (m.resume != 0 && !heap_here) return no(errc::not_found);
      heap_here = true;
      owner = &p;
      const open_heap_answer a{region_bytes, quota_bytes, applied_seq, lease_ms, protocol_minor, 0};
      return ok(&a, sizeof a);
    }
    case message_type::close_heap: heap_here = false; return ok();
    case message_type::open_region: {
      if (reopens.region != ~0u) {
        const region_answer a{reopens.region, reopens.generation, region_bytes, 0, 0, 0};
        ok(&a, sizeof a);
        out.share(regions.at(reopens.region).memory.fd());
        return;
      }
      if (regions.size() >= regions_max) return no(errc::agent_full);
      const std::uint32_t n = next_region_++;
      regions[n].memory = os::memory_file("scripted", region_bytes);
      return answer_region(out, type, n);
    }
    case message_type::region_info: {
      const auto m = as<region_name>(body);
      const auto it = regions.find(m.region);
      if (it == regions.end()) return no(errc::not_found);
      if (m.generation != 0 && m.generation != it->second.generation) return no(errc::stale);
      return answer_region(out, type, m.region);
    }
    case message_type::seal_region: regions.at(as<region_name>(body).region).sealed = true; return ok();
    case message_type::retired_region: {
      const auto m = as<region_name>(body);
      retired.push_back(m);
      if (const auto it = regions.find(m.region); it != regions.end() && it->second.generation == m.generation)
        regions.erase(it);
      if (!left_after_retirement) return ok();
      const retired_answer a{*left_after_retirement + 1, 0};
      return ok(&a, sizeof a);
    }
    case message_type::register_types: {
      const auto m = as<register_types_body>(body);
      body = body.subspan(sizeof m);
      for (std::uint32_t i = 0; i < m.count; ++i) {
        const auto t = as<type_record>(body);
        types.push_back(t.id);
        body = body.subspan(sizeof t + detail::round_up(std::uint64_t{t.ref_count} * 4 + t.name_bytes, 8));
      }
      return body.empty() ? ok() : no(errc::bad_frame);
    }
    case message_type::index: {
      const auto m = as<index_body>(body);
      if (const errc e = apply(m); e != errc::ok) return no(e);
      const index_answer a{applied_seq};
      return ok(&a, sizeof a);
    }
    case message_type::fetch_slot: {
      const auto m = as<fetch_slot_body>(body);
      const auto it = entries.find(m.slot);
      fetch_slot_answer a{it == entries.end() ? 0 : it->second, m.with_page ? 512u : 0u, 0};
      const std::byte* copy = nullptr;
      if (it != entries.end()) {
        const auto at = detail::home_address::unpack(it->second);
        copy = regions.at(at.region).memory.base() + at.offset;
        if (copy_bytes(copy) <= m.bytes_max) a.bytes = static_cast<std::uint32_t>(copy_bytes(copy));
      }
      ok(&a, sizeof a);
      if (m.with_page) {
        std::vector<detail::word_t> page(512);
        for (auto& [slot, w] : entries)
          if (slot / 512 == m.slot / 512) page[slot % 512] = w;
        const auto* d = reinterpret_cast<const std::byte*>(page.data());
        out.payload.insert(out.payload.end(), d, d + 4096);
      }
      out.payload.insert(out.payload.end(), copy, copy + a.bytes);
      const auto n = static_cast<std::uint32_t>(out.payload.size() - sizeof(answer_head));
      std::memcpy(out.payload.data() + offsetof(answer_head, body_bytes), &n, 4);
      return;
    }
    case message_type::read_entries: {
      const auto m = as<read_entries_body>(body);
      std::vector<detail::word_t> words(m.count);
      for (std::uint32_t i = 0; i < m.count; ++i)
        if (const auto it = entries.find(m.first_slot + i); it != entries.end()) words[i] = it->second;
      return ok(words.data(), words.size() * 8);
    }
    case message_type::audit: {
      const audit_answer a{entries.size(), 1, 2, 3, 0};
      ok(&a, sizeof a);
      return;
    }
    case message_type::statistics: return ok("{}", 2);
    default: return ok();
  }
}

inline errc scripted_agent::apply(const index_body& m) {
  if (m.seq <= applied_seq) return errc::ok;
  if (m.seq != applied_seq + 1) return errc::stale;
  const auto it = regions.find(m.region);
  if (it == regions.end() || it->second.generation != m.generation) return errc::stale;
  region& r = it->second;
  if (r.sealed || m.offset % 8 != 0 || m.length % 8 != 0 || m.offset + m.length > region_bytes)
    return errc::access_denied;
  const auto after = r.extents.lower_bound(static_cast<std::uint32_t>(m.offset));
  if (after != r.extents.end() && after->first < m.offset + m.length) return errc::access_denied;
  if (after != r.extents.begin() && std::prev(after)->first + std::prev(after)->second > m.offset)
    return errc::access_denied;
  std::byte* p = r.memory.base() + m.offset;
  const bool abandoned = (m.flags & index_abandoned) != 0;
  batch_header h{batch_magic, 0, m.seq, m.length, 0};
  if (abandoned) {
    std::memcpy(p, &h, sizeof h);
  } else {
    std::memcpy(&h, p, sizeof h);
    const std::uint32_t said = std::exchange(h.crc, 0);
    const std::uint32_t crc = detail::crc32c(p + sizeof h, m.length - sizeof h, detail::crc32c(&h, sizeof h));
    if (said != m.crc || crc != m.crc || h.seq != m.seq || h.length != m.length || h.count != m.count)
      return errc::corrupt;
    std::uint64_t at = sizeof h;
    for (std::uint32_t i = 0; i < m.count; ++i) {
      std::uint64_t header = 0;
      std::memcpy(&header, p + at, 8);
      const std::uint64_t bytes = copy_bytes(p + at);
      if (bytes < 16 || at + bytes > m.length) return errc::corrupt;
      entries[detail::header::slot(header)] =
          detail::home_address{m.region, m.generation, static_cast<std::uint32_t>(m.offset + at),
                               detail::size_class::of(bytes)}
              .pack();
      at += bytes;
    }
    if (at != m.length) return errc::corrupt;
  }
  r.extents[static_cast<std::uint32_t>(m.offset)] = m.length;
  for (auto e = r.extents.find(static_cast<std::uint32_t>(r.readable)); e != r.extents.end() && e->first == r.readable;
       ++e)
    r.readable += e->second;
  applied_seq = m.seq;
  log.push_back({m.seq, m.region, static_cast<std::uint32_t>(m.offset), m.length, m.count, abandoned});
  return errc::ok;
}

}  // namespace fm::remote::test

// Walking a graph depth first, and writing its objects into parts; see graph_writer.h. Owns the agreement of numbers:
// an object's number is the order in which it became known. channel_core calls it, on the thread that sends.
#include "graph_writer.h"
#include "base/channel_limits.h"

#include "base/base.h"
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fm::detail {

void graph_writer::throw_limit(const char* what, std::uint64_t limit) const {
  throw error(errc::too_large,
              fmt::format("a graph with a '{}' as its root has more than {} {}{}", schema_.root, limit, what,
                          acyclic_ ? "; it is sent as one without cycles, and would have no end if it had one" : ""));
}

void graph_writer::flush() {
  const std::span<char> next = sink_.next(used());
  lent_.clear();
  begin_ = at_ = next.data();
  end_ = begin_ + next.size();
}

void graph_writer::note_child(slot_t slot, graph_target type) {
  if (!children_.empty()) {
    pending& p = children_.back();
    if (p.type == type) {
      const auto distance = static_cast<std::int64_t>(slot - p.first);
      if (p.count == 1 && (distance == 1 || distance == -1)) p.step = static_cast<std::int32_t>(distance);
      if (distance == static_cast<std::int64_t>(p.count) * p.step) {
        ++p.count;
        return;
      }
    }
  }
  children_.push_back({slot, 1, 1, type});
}

std::uint64_t graph_writer::number_of(slot_t slot, graph_target type) {
  if (!acyclic_) {
    const auto [number, added] = visited_.add(slot);
    if (!added) return number;
  }
  if (known_ == limits_.objects) throw_limit("objects", limits_.objects);
  note_child(slot, type);
  return known_++;
}

// References are taken from the object, not from the copy: that may lie where the receiver can change it.
void graph_writer::number_refs(const graph_type& t, const char* payload, char* copy, std::uint64_t from,
                               std::uint64_t to) {
  const auto number = [&](std::uint64_t at, graph_target target) {
    if (at < from || at + 8 > to) return;
    const slot_t slot = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(payload + at), __ATOMIC_RELAXED);
    const std::uint64_t word = slot == 0 ? 0 : number_of(slot, target) + 1;
    std::memcpy(copy + (at - from), &word, 8);
  };
  const std::vector<std::uint32_t>& offsets = t.type->ref_offsets;
  if (!t.is_array()) {
    for (std::size_t r = 0; r < offsets.size(); ++r) number(offsets[r], t.targets[r]);
    return;
  }
  const std::uint64_t each = t.type->bytes;
  const std::uint64_t first = from <= 8 ? 0 : (from - 8) / each;
  for (std::uint64_t base = 8 + first * each; base < to; base += each)
    for (std::size_t r = 0; r < offsets.size(); ++r) number(base + offsets[r], t.targets[r]);
}

void graph_writer::push_children() {
  stack_.insert(stack_.end(), children_.rbegin(), children_.rend());
  children_.clear();
}

void graph_writer::fetch_ahead(slot_t slot) {
  // A miss: what comes next is asked for with it, all at once. Not what comes much later: of a graph that is larger than
  // the cache most of that would have left again, and the pending objects are too many to be looked at in each miss.
  slot_t slots[prefetch_chunk];
  std::size_t n = 0;
  slots[n++] = slot;
  std::size_t looks = channel_limits::looks_ahead;
  for (auto p = stack_.rbegin(); p != stack_.rend() && n < prefetch_chunk && looks != 0; ++p) {
    for (std::uint64_t i = 0; i < p->count && n < prefetch_chunk && looks != 0; ++i, --looks) {
      const slot_t s = p->first + i * static_cast<std::uint64_t>(static_cast<std::int64_t>(p->step));
      if (s < hit.slots && word::is_remote(word_at(s).load(std::memory_order_relaxed))) slots[n++] = s;
    }
  }
  prefetch_slots({slots, n});
}

std::uint32_t graph_writer::type_of(slot_t slot) {
  if (slot >= hit.slots) throw error(errc::corrupt, fmt::format("a reference to slot {:#x}, which cannot be", slot));
  if (word::is_remote(word_at(slot).load(std::memory_order_relaxed))) fetch_ahead(slot);
  return type_number(slot);
}

const char* graph_writer::reach(slot_t slot, scope& s) {
  if (slot >= hit.slots) throw error(errc::corrupt, fmt::format("a reference to slot {:#x}, which cannot be", slot));
  const word_t w = word_at(slot).load(std::memory_order_acquire) - 1;
  if ((w & word::slow_read) == 0) {
    if (++in_section_ >= channel_limits::objects_each_section) {
      in_section_ = 0;
      s.renew();
      return read_barrier(slot);
    }
    return reinterpret_cast<const char*>(w & ~word::flag_mask);
  }
  in_section_ = 0;
  s.renew();  // nothing is held: the miss may wait for memory
  if (word::is_remote(w + 1)) fetch_ahead(slot);
  return read_barrier(slot);
}

void graph_writer::write_object(slot_t slot, std::uint32_t type, scope& s) {
  const graph_type& t = schema_.types[type];
  const char* payload = reach(slot, s);
  const std::uint64_t header = frame::prefix(const_cast<char*>(payload)).header.load(std::memory_order_relaxed);
  if (header::type(header) != t.type->id)
    throw error(errc::corrupt, fmt::format("slot {:#x} is not a '{}', as the reference to it says", slot, t.name));
  std::uint64_t length = 0;
  if (t.is_array()) std::memcpy(&length, payload, 8);
  const std::uint64_t n = t.type->payload_bytes(length);
  if (n > limits_.bytes - bytes_) throw_limit("bytes", limits_.bytes);
  bytes_ += n;
  const auto room = static_cast<std::uint64_t>(end_ - at_);
  if (n > room || is_lent(t, n)) {
    pieces_ = n;
    return;
  }
  copy_bytes(at_, payload, n);
  if (t.has_refs()) number_refs(t, payload, at_, 0, n);
  at_ += n;
}

void graph_writer::write_in_pieces(slot_t slot, const graph_type& t, std::uint64_t n) {
  read_pin<char[]> pin(slot);
  const char* payload = reinterpret_cast<const char*>(pin.get());
  if (mutated(mutation::gather_unpinned)) pin = read_pin<char[]>::adopt(nullptr);
  // It was looked at in a section that has ended. A thread that changes the graph may have let go of it, and its slot be
  // another object's. From here on the pin keeps it.
  const std::uint64_t header = frame::prefix(const_cast<char*>(payload)).header.load(std::memory_order_relaxed);
  std::uint64_t length = 0;
  if (header::type(header) == t.type->id && t.is_array()) std::memcpy(&length, payload, 8);
  if (header::type(header) != t.type->id || t.type->payload_bytes(length) != n)
    throw error(errc::corrupt, fmt::format("slot {:#x}: the graph was changed while it was sent", slot));
  const auto room = static_cast<std::uint64_t>(end_ - at_);
  if (n > room && (n <= static_cast<std::uint64_t>(end_ - begin_) / channel_limits::small_share || room < 16)) flush();
  if (!is_lent(t, n)) return write_bytes(t, payload, 0, n);
  lent_.reserve(channel_limits::lent_max);
  lend(payload, n);
  lent_.push_back(std::move(pin));
}

void graph_writer::lend(const char* payload, std::uint64_t bytes) {
  for (std::uint64_t from = 0; from != bytes;) {
    const std::uint64_t step = std::min<std::uint64_t>(bytes - from, static_cast<std::uint64_t>(end_ - at_));
    if (step == 0 || !sink_.lend(used(), {payload + from, step})) {
      flush();
      continue;
    }
    end_ -= step;
    from += step;
  }
}

void graph_writer::write_bytes(const graph_type& t, const char* payload, std::uint64_t from, std::uint64_t to) {
  while (from != to) {
    if (end_ == at_) flush();
    const std::uint64_t step = std::min<std::uint64_t>(to - from, static_cast<std::uint64_t>(end_ - at_));
    copy_bytes(at_, payload + from, step);
    if (t.has_refs()) number_refs(t, payload, at_, from, from + step);
    at_ += step;
    from += step;
  }
}

void graph_writer::write_word(std::uint64_t w) {
  if (end_ - at_ < 8) flush();
  std::memcpy(at_, &w, 8);
  at_ += 8;
}

graph_writer::pending graph_writer::take_one() {
  pending& top = stack_.back();
  const pending out{top.first, 1, 1, top.type};
  top.first += static_cast<std::uint64_t>(static_cast<std::int64_t>(top.step));
  if (--top.count == 0) stack_.pop_back();
  return out;
}

void graph_writer::write_special() {
  if ((stack_.back().type & walk_bit) != 0) return write_batch();
  const pending p = take_one();
  if (is_choice(p.type))
    choose(p);
  else
    open_container(p);
}

// The place of its type among the alternatives goes before the object.
void graph_writer::choose(const pending& p) {
  const graph_choice& c = schema_.choices[p.type & ~choice_bit];
  const std::uint32_t type = type_of(p.first);
  for (std::size_t i = 0; i < c.types.size(); ++i) {
    if (schema_.types[c.types[i]].type->id != type) continue;
    if (8 > limits_.bytes - bytes_) throw_limit("bytes", limits_.bytes);
    bytes_ += 8;
    write_word(i);
    stack_.push_back({p.first, 1, 1, c.types[i]});
    return;
  }
  throw error(errc::corrupt, fmt::format("slot {:#x} is of no type that the reference to it allows", p.first));
}

void graph_writer::open_container(const pending& p) {
  const graph_type& t = schema_.types[p.type];
  if (type_of(p.first) != t.type->id)
    throw error(errc::corrupt, fmt::format("slot {:#x} is not a '{}', as the reference to it says", p.first, t.name));
  walks_.push_back({t.container->walk(p.first)});
  stack_.push_back({p.first, 1, 1, p.type | walk_bit});
}

// It stays on the stack below what a batch makes known, so the walk keeps that alive.
void graph_writer::write_batch() {
  const graph_type& t = schema_.types[schema_.types[stack_.back().type & ~walk_bit].entries];
  if (walks_.back().over) {
    walks_.pop_back();
    stack_.pop_back();
    return;
  }
  const container_batch b = walks_.back().walk->next();
  const std::uint64_t n = round_up(b.length * t.type->bytes, 8);
  if (n + 8 > limits_.bytes - bytes_) throw_limit("bytes", limits_.bytes);
  bytes_ += n + 8;
  if (b.copied && !acyclic_) kept_.push_back(ptr<char[]>::from_slot(b.array));
  walks_.back().over = b.length < batch_entries(t.type->bytes);
  write_word(b.length);
  if (b.length == 0) return;
  if (b.array == 0) return write_bytes(t, b.plain, 0, n);
  {
    const read_pin<char[]> pin(b.array);
    const char* payload = reinterpret_cast<const char*>(pin.get());
    const std::uint64_t header = frame::prefix(const_cast<char*>(payload)).header.load(std::memory_order_relaxed);
    std::uint64_t length = 0;
    if (header::type(header) == t.type->id) std::memcpy(&length, payload, 8);
    if (length < b.length)
      throw error(errc::corrupt, fmt::format("slot {:#x}: the graph was changed while it was sent", b.array));
    write_bytes(t, payload, 8, 8 + n);
  }
  push_children();
}

void graph_writer::write_pending() {
  while (!stack_.empty()) {
    if (!is_plain(stack_.back().type)) {
      write_special();
      continue;
    }
    slot_t large = 0;
    std::uint32_t large_type = 0;
    {
      scope s;
      in_section_ = 0;
      while (!stack_.empty() && large == 0 && is_plain(stack_.back().type)) {
        const auto [slot, count, step, type] = take_one();
        pieces_ = 0;
        write_object(slot, type, s);
        if (pieces_ != 0) {
          large = slot;
          large_type = type;
        } else if (!children_.empty()) {
          push_children();
        }
      }
    }
    if (large == 0) continue;
    write_in_pieces(large, schema_.types[large_type], pieces_);
    push_children();
  }
}

void graph_writer::write(slot_t root) {
  if (!begin_) flush();
  number_of(root, schema_.root_target);
  push_children();
  write_pending();
}

void graph_writer::write_each(std::span<const slot_t> roots) {
  if (!begin_) flush();
  write_word(roots.size());
  for (std::size_t from = 0; from < roots.size(); from += 64) {
    const std::span<const slot_t> group = roots.subspan(from, std::min<std::size_t>(64, roots.size() - from));
    std::uint64_t bits = 0;
    std::uint64_t known[64];
    std::size_t n = 0;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::uint64_t before = known_;
      const std::uint64_t word = group[i] == 0 ? 0 : number_of(group[i], schema_.root_target) + 1;
      if (known_ != before)
        bits |= std::uint64_t{1} << i;
      else
        known[n++] = word;
    }
    write_word(bits);
    for (std::size_t i = 0; i < n; ++i) write_word(known[i]);
    push_children();
    write_pending();
  }
}

}  // namespace fm::detail

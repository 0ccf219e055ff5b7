// Reading a graph depth first out of its parts, and making its objects; see graph_reader.h. Owns the check of every
// word before it is used. channel_core calls it, on the thread that receives.
#include "graph_reader.h"
#include "base/channel_limits.h"
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fm::detail {

namespace {

/// Takes a word out of a part: once, whatever the compiler thinks of what it is used for.
std::uint64_t take_word(const std::byte* at) noexcept {
  std::uint64_t w = 0;
  std::memcpy(&w, at, 8);
  __asm__ volatile("" : "+r"(w));
  return w;
}

/// A payload whose first word is known, and was checked: the length of an array.
void copy_payload(char* payload, const std::byte* from, std::uint64_t bytes, const std::uint64_t* length) noexcept {
  if (length == nullptr) {
    copy_bytes(payload, from, bytes);
    return;
  }
  std::memcpy(payload, length, 8);
  copy_bytes(payload + 8, from + 8, bytes - 8);
}

void store_ref(char* payload, std::uint64_t at, slot_t slot) noexcept {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(payload + at), slot, __ATOMIC_RELEASE);
}

}  // namespace

graph_reader::~graph_reader() { let_go(); }

void graph_reader::throw_bad(const std::string& why) const {
  throw error(errc::bad_frame,
              fmt::format("a graph with a '{}' as its root, at object {}: {}", schema_.root, arrived_, why));
}

void graph_reader::next_part() {
  if (last_) throw_bad("it ends before it is complete");
  const part_source::part p = source_.next();
  at_ = p.bytes.data();
  end_ = at_ + p.bytes.size();
  last_ = p.last;
  claimed_objects_ = p.objects;
}

// Empty parts are nothing to make progress with, but they are bounded: each costs its sender a credit.
void graph_reader::need_word() {
  while (available() < 8) next_part();
}

std::uint64_t graph_reader::word() {
  need_word();
  const std::uint64_t w = take_word(at_);
  at_ += 8;
  return w;
}

void graph_reader::account(std::uint64_t objects, std::uint64_t bytes) {
  if (bytes > limits_.bytes - bytes_)
    throw error(errc::too_large,
                fmt::format("a graph with a '{}' as its root has more than the {} bytes that are taken here",
                            schema_.root, limits_.bytes));
  bytes_ += bytes;
  arrived_ += objects;
}

void graph_reader::hold(slot_t holder) {
  if (held_ == holder) return;
  let_go();
  const user_section in_section;
  held_payload_ = mutated(mutation::link_clean) ? const_cast<char*>(read_barrier(holder)) : write_barrier(holder);
  pin_frame(held_payload_);
  held_ = holder;
}

void graph_reader::let_go() noexcept {
  if (held_payload_) unpin_frame(held_payload_);
  held_payload_ = nullptr;
  held_ = 0;
}

graph_reader::pending graph_reader::take(std::uint64_t count) {
  pending& top = stack_.back();
  pending out = top;
  out.count = count;
  top.number += count;
  top.field += count;
  top.count -= count;
  if (top.count == 0) stack_.pop_back();
  return out;
}

graph_target graph_reader::type_of(std::uint64_t number) const noexcept {
  const auto after = std::upper_bound(types_.begin(), types_.end(), number,
                                      [](std::uint64_t n, const type_run& r) { return n < r.number; });
  return std::prev(after)->type;
}

void graph_reader::make_known(graph_target type, std::uint32_t holder_type, std::uint64_t field, std::uint64_t count) {
  if (count > limits_.objects - known_)
    throw error(errc::too_large,
                fmt::format("a graph with a '{}' as its root has more than the {} objects that are taken here",
                            schema_.root, limits_.objects));
  if (!acyclic_) {
    slots_.resize(slots_.size() + count);
    if (!schema_.choices.empty()) chosen_.resize(slots_.size(), nothing_chosen);
    if (types_.empty() || types_.back().type != type) types_.push_back({known_, type});
  }
  if (children_.size() > hung_ && children_.back().type == type &&
      children_.back().field + children_.back().count == field)
    children_.back().count += count;
  else
    children_.push_back({known_, count, 0, field, type, holder_type});
  known_ += count;
}

void graph_reader::hang_children(slot_t holder) {
  for (; hung_ < children_.size(); ++hung_) children_[hung_].holder = holder;
}

void graph_reader::push_children(slot_t holder) {
  hang_children(holder);
  stack_.insert(stack_.end(), children_.rbegin(), children_.rend());
  children_.clear();
  hung_ = 0;
}

void graph_reader::link(const pending& p, slot_t first, std::uint64_t count) {
  if (p.holder == 0) {
    for (std::uint64_t i = 0; i < count; ++i) roots_[p.field + i].move_to_slot(first + i);
  } else {
    const graph_type& t = schema_.types[p.holder_type];
    const std::vector<std::uint32_t>& offsets = t.type->ref_offsets;
    const std::uint64_t each = t.is_array() ? t.type->bytes : 0;
    std::uint64_t base = t.is_array() ? 8 + p.field / offsets.size() * each : 0;
    std::size_t r = p.field % offsets.size();
    for (std::uint64_t i = 0; i < count; ++i) {
      store_ref(held_payload_, base + offsets[r], first + i);
      if (++r < offsets.size()) continue;
      r = 0;
      base += each;
    }
  }
  if (!acyclic_)
    for (std::uint64_t i = 0; i < count; ++i) slots_[p.number + i] = first + i;
}

// A run of objects of one size and without references: as many as have arrived and go together.
void graph_reader::read_together(const pending& p, const graph_type& t) {
  const std::uint64_t each = t.type->payload_bytes();
  if (p.holder != 0) hold(p.holder);
  for (std::uint64_t done = 0; done < p.count;) {
    const std::byte* const from = at_;
    const new_objects made = cache_.allocate_together(
        *t.type, 0, p.count - done,
        [&](std::uint64_t i, char* payload) noexcept { std::memcpy(payload, from + i * each, each); });
    pending part = p;
    part.number += done;
    part.field += done;
    link(part, made.first(), made.count());
    at_ += made.count() * each;
    done += made.count();
  }
}

void graph_reader::read_plain(const pending& p, const graph_type& t, std::uint64_t length, std::uint64_t bytes) {
  if (p.holder != 0) hold(p.holder);
  if (bytes <= available()) {
    const new_objects made = cache_.allocate_together(*t.type, length, 1, [&](std::uint64_t, char* payload) noexcept {
      copy_payload(payload, at_, bytes, t.is_array() ? &length : nullptr);
    });
    link(p, made.first(), 1);
    at_ += bytes;
    return;
  }
  // In pieces, into the frame that it will have; its length is there from the beginning, so that it is sound
  // throughout.
  slot_t slot = 0;
  {
    const new_objects made = cache_.allocate_together(*t.type, length, 1, [&](std::uint64_t, char* payload) noexcept {
      if (t.is_array()) std::memcpy(payload, &length, 8);
    });
    slot = made.first();
    link(p, slot, 1);
  }
  hold(slot);
  std::uint64_t from = t.is_array() ? 8 : 0;
  at_ += from;
  while (from < bytes) {
    if (available() == 0) {
      // Also the end of an array that was sent from where it lay: what is read ahead with it would be the next one.
      if ((bytes - from >= channel_limits::straight_from || bytes >= channel_limits::lent_from) && !last_) {
        const std::span<char> to(held_payload_ + from, bytes - from);
        const std::uint64_t n = source_.next_into(std::as_writable_bytes(to), last_);
        from += n;
        if (n != 0) continue;
      }
      next_part();
    }
    const std::uint64_t step = std::min(bytes - from, available());
    copy_bytes(held_payload_ + from, at_, step);
    at_ += step;
    from += step;
  }
}

slot_t graph_reader::read_ref(std::uint64_t word, graph_target target, std::uint32_t type, std::uint64_t at,
                              std::uint64_t field) {
  if (word == 0) return 0;
  const std::uint64_t number = word - 1;
  if (number == known_) {
    make_known(target, type, field, 1);
    return 0;
  }
  if (number > known_ || acyclic_)
    throw_bad(fmt::format("a reference to object {} of {} that are known", number, known_));
  check_target(number, target);
  const slot_t slot = slots_[number];
  if (slot == 0) {
    account(0, sizeof(late_ref));
    body_late_.push_back({0, at, number, target});
  }
  return slot;
}

void graph_reader::check_target(std::uint64_t number, graph_target target) const {
  graph_target actual = type_of(number);
  if (is_choice(actual)) {
    if (chosen_[number] == nothing_chosen) return;  // looked at again when it is there
    actual = schema_.choices[actual & ~choice_bit].types[chosen_[number]];
  }
  if (actual == target) return;
  if (is_choice(target)) {
    const std::vector<std::uint32_t>& allowed = schema_.choices[target & ~choice_bit].types;
    if (std::find(allowed.begin(), allowed.end(), actual) != allowed.end()) return;
  }
  throw_bad(fmt::format("a reference to a '{}' names object {}, a '{}'", schema_.name_of_target(target), number,
                        schema_.types[actual].name));
}

void graph_reader::read_refs(const graph_type& t, std::uint32_t type, char* first, std::uint64_t count,
                             std::uint64_t at, std::uint64_t field) {
  const graph_conversion* const c = conversion_of(type);
  const auto read = [&](char* from, std::uint64_t place, graph_target target, std::uint64_t f) {
    std::uint64_t w = 0;
    std::memcpy(&w, from, 8);
    const slot_t slot = read_ref(w, target, type, place, f);
    std::memcpy(from, &slot, 8);
  };
  if (t.type->bytes == 8 && c == nullptr) {
    // Nothing but references: those that make one object after the other known are one step.
    for (std::uint64_t i = 0; i < count;) {
      const std::uint64_t most = std::min(count - i, limits_.objects - known_);
      std::uint64_t n = 0, w = 0;
      for (; n < most; ++n) {
        std::memcpy(&w, first + (i + n) * 8, 8);
        if (w != known_ + n + 1) break;
      }
      if (n < 2) {
        read(first + i * 8, at + i * 8, t.targets[0], field + i);
        ++i;
        continue;
      }
      make_known(t.targets[0], type, field + i, n);
      std::memset(first + i * 8, 0, n * 8);
      i += n;
    }
    return;
  }
  const std::vector<std::uint32_t>& offsets = t.type->ref_offsets;
  for (std::uint64_t i = 0; i < count; ++i, first += t.type->bytes, at += t.type->bytes, field += offsets.size()) {
    if (c != nullptr) {
      for (const std::uint32_t r : c->order) read(first + offsets[r], at + offsets[r], t.targets[r], field + r);
    } else {
      for (std::size_t r = 0; r < offsets.size(); ++r)
        read(first + offsets[r], at + offsets[r], t.targets[r], field + r);
    }
  }
}

void graph_reader::gather(std::vector<std::byte>& to, std::uint64_t before, std::uint64_t bytes) {
  to.resize(before);
  for (std::uint64_t left = bytes; left != 0;) {
    if (available() == 0) next_part();
    const std::uint64_t step = std::min(left, available());
    to.insert(to.end(), at_, at_ + step);
    at_ += step;
    left -= step;
  }
}

// An object that is looked at before it is made: it has references, or the sender has another type.
void graph_reader::read_whole(const pending& p, const graph_type& t, std::uint64_t length, std::uint64_t bytes,
                              std::uint64_t sent) {
  const std::uint64_t count = t.is_array() ? length : 1, skip = t.is_array() ? 8 : 0;
  if (const graph_conversion* const c = conversion_of(p.type)) {
    gather(sent_, 0, sent);
    body_.assign(bytes, std::byte{});
    c->convert(reinterpret_cast<const char*>(sent_.data()) + skip, reinterpret_cast<char*>(body_.data()) + skip, count,
               t);
  } else {
    gather(body_, 0, bytes);
  }
  if (t.is_array()) std::memcpy(body_.data(), &length, 8);
  body_late_.clear();
  if (t.has_refs()) read_refs(t, p.type, reinterpret_cast<char*>(body_.data()) + skip, count, skip, 0);
  if (p.holder != 0) hold(p.holder);
  slot_t slot = 0;
  {
    const new_objects made = cache_.allocate_together(
        *t.type, length, 1, [&](std::uint64_t, char* payload) noexcept { std::memcpy(payload, body_.data(), bytes); });
    slot = made.first();
    link(p, slot, 1);
  }
  for (late_ref l : body_late_) {
    // A reference to itself is late only until now.
    l.holder = slot;
    late_.push_back(l);
  }
  push_children(slot);
}

void graph_reader::read_object(const pending& p, const graph_type& t) {
  const graph_conversion* const c = conversion_of(p.type);
  std::uint64_t length = 0;
  need_word();
  if (t.is_array()) {
    length = take_word(at_);  // at_ stays before it
    if (length > cache_.object_bytes_max() / std::max(t.type->bytes, c != nullptr ? c->bytes : 1))
      throw error(errc::too_large,
                  fmt::format("a graph with a '{}' as its root has a '{}' of {} elements: an object of this "
                              "heap has at most {} bytes",
                              schema_.root, t.name, length, cache_.object_bytes_max()));
  }
  const std::uint64_t bytes = t.type->payload_bytes(length);
  const std::uint64_t sent = c == nullptr   ? bytes
                             : t.is_array() ? 8 + round_up(length * c->bytes, 8)
                                            : round_up(c->bytes, 8);
  account(1, std::max(bytes, sent));
  if (t.has_refs() || c != nullptr)
    read_whole(p, t, length, bytes, sent);
  else
    read_plain(p, t, length, bytes);
}

void graph_reader::read_pending() {
  while (!stack_.empty()) {
    const pending& top = stack_.back();
    if (top.number == no_number) {
      read_batch();
      continue;
    }
    if (is_choice(top.type)) {
      choose();
      continue;
    }
    const graph_type& t = schema_.types[top.type];
    if (t.container != nullptr) {
      open_container(take(1), t);
      continue;
    }
    if (!t.has_refs() && !t.is_array() && conversion_of(top.type) == nullptr) {
      const std::uint64_t each = t.type->payload_bytes();
      need_word();
      if (const std::uint64_t n = std::min(top.count, available() / each); n != 0) {
        account(n, n * each);
        read_together(take(n), t);
        continue;
      }
    }
    read_object(take(1), t);
  }
}

void graph_reader::finish() {
  for (const late_ref& l : late_) {
    check_target(l.number, l.target);
    hold(l.holder);
    store_ref(held_payload_, l.at, slots_[l.number]);
  }
  let_go();
  if (available() != 0) throw_bad(fmt::format("{} bytes follow it", available()));
  if (!last_) {
    next_part();
    if (available() != 0 || !last_) throw_bad("more follows");
  }
  if (claimed_objects_ != arrived_) throw_bad(fmt::format("its sender counts {} objects", claimed_objects_));
  insert_staged();
}

ptr<char[]> graph_reader::read(const part_source::part& first) {
  at_ = first.bytes.data();
  end_ = at_ + first.bytes.size();
  last_ = first.last;
  claimed_objects_ = first.objects;
  roots_.resize(1);
  make_known(schema_.root_target, 0, 0, 1);
  push_children(0);
  read_pending();
  finish();
  return std::move(roots_.front());
}

std::vector<ptr<char[]>> graph_reader::read_each(const part_source::part& first) {
  at_ = first.bytes.data();
  end_ = at_ + first.bytes.size();
  last_ = first.last;
  claimed_objects_ = first.objects;
  const std::uint64_t count = word();
  if (count > limits_.objects)
    throw error(errc::too_large, fmt::format("{} roots: at most {} objects are taken here", count, limits_.objects));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> again;  // a root, and the number of the object that it shares
  for (std::uint64_t from = 0; from < count; from += 64) {
    const std::uint64_t n = std::min<std::uint64_t>(64, count - from);
    roots_.resize(from + n);
    const std::uint64_t bits = word();
    if (n < 64 && bits >> n != 0) throw_bad("bits beyond the last root");
    std::uint64_t field = from;
    for (std::uint64_t i = 0; i < n; ++i, ++field)
      if ((bits >> i & 1) != 0) make_known(schema_.root_target, 0, field, 1);
    for (std::uint64_t i = 0; i < n; ++i) {
      if ((bits >> i & 1) != 0) continue;
      const std::uint64_t w = word();
      if (w == 0) continue;
      if (w > known_ || acyclic_) throw_bad(fmt::format("root {} cannot be object {}", from + i, w - 1));
      check_target(w - 1, schema_.root_target);
      again.emplace_back(from + i, w - 1);
    }
    push_children(0);
    read_pending();
  }
  finish();
  for (const auto& [root, number] : again) {
    check_target(number, schema_.root_target);
    roots_[root].move_to_slot(slots_[number]);
  }
  return std::move(roots_);
}

}  // namespace fm::detail

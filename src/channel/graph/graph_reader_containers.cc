// Reading what is not one object: containers, batch after batch, and objects of one of several types; see
// graph_reader.h and farmem/detail/graph/containers.h. channel_core calls it, on the thread that receives.
#include "base/base.h"
#include "base/limits.h"
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "graph_reader.h"

namespace fm::detail {

namespace {

/// Words of which some are references, to where others may be looking.
void store_words(char* to, const char* from, std::uint64_t bytes) noexcept {
  for (std::uint64_t at = 0; at < bytes; at += 8) {
    std::uint64_t w = 0;
    std::memcpy(&w, from + at, 8);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(to + at), w, __ATOMIC_RELEASE);
  }
}

}  // namespace

void graph_reader::choose() {
  const graph_target choice = stack_.back().type;
  const std::uint64_t place = word();
  const graph_choice& mine = schema_.choices[choice & ~choice_bit];
  const std::vector<std::uint32_t>& theirs =
      evolution_ != nullptr ? evolution_->choices[choice & ~choice_bit] : mine.types;
  if (place >= theirs.size()) throw_bad(fmt::format("it is alternative {} of {}", place, theirs.size()));
  account(0, 8);
  pending one = take(1);
  one.type = theirs[place];
  if (!acyclic_)
    chosen_[one.number] =
        static_cast<std::uint8_t>(std::find(mine.types.begin(), mine.types.end(), one.type) - mine.types.begin());
  stack_.push_back(one);
}

// Empty, as an object of zeros is. The batches come next.
void graph_reader::open_container(const pending& p, const graph_type& t) {
  const std::uint64_t bytes = t.type->payload_bytes();
  account(1, bytes);
  if (p.holder != 0) hold(p.holder);
  slot_t slot = 0;
  {
    const new_objects made = cache_.allocate_together(
        *t.type, 0, 1, [&](std::uint64_t, char* payload) noexcept { std::memset(payload, 0, bytes); });
    slot = made.first();
    link(p, slot, 1);
  }
  stack_.push_back({no_number, 1, slot, 0, p.type, 0});
}

void graph_reader::read_batch() {
  const pending p = stack_.back();
  const graph_type& container = schema_.types[p.type];
  const graph_type& t = schema_.types[container.entries];
  const graph_conversion* const c = conversion_of(container.entries);
  const std::uint64_t each = c != nullptr ? c->bytes : t.type->bytes;
  const std::uint64_t length = word();
  if (length > batch_entries(each))
    throw_bad(fmt::format("a batch of '{}' has {} entries, and at most {} go together", container.name, length,
                          batch_entries(each)));
  const std::uint64_t bytes = round_up(length * t.type->bytes, 8), sent = round_up(length * each, 8);
  account(0, 8 + std::max(bytes, sent) + (length != 0 && p.field == 0 ? container.container->first_bytes : 0));
  const bool more = length == batch_entries(each);
  if (!more)
    stack_.pop_back();
  else
    stack_.back().field += length;
  if (length == 0) return;
  // As an array: its length, and the entries.
  if (c != nullptr) {
    gather(sent_, 0, sent);
    body_.assign(8 + bytes, std::byte{});
    c->convert(reinterpret_cast<const char*>(sent_.data()), reinterpret_cast<char*>(body_.data()) + 8, length, t);
  } else {
    gather(body_, 8, bytes);
  }
  std::memcpy(body_.data(), &length, 8);
  if (container.container->place != nullptr)
    place_batch(container, p, length, more);
  else
    stage_batch(p.type, p.holder, length);
}

// Each stretch of entries goes to the array that it belongs to.
void graph_reader::place_batch(const graph_type& container, const pending& p, std::uint64_t length, bool more) {
  const std::uint32_t entries = container.entries;
  const graph_type& t = schema_.types[entries];
  std::uint64_t from = p.field;
  char* body = reinterpret_cast<char*>(body_.data()) + 8;
  while (length != 0) {
    let_go();  // making room waits for memory
    const container_place to = container.container->place(p.holder, from, length, more);
    const std::uint64_t at = 8 + to.first * t.type->bytes, bytes = to.entries * t.type->bytes;
    body_late_.clear();
    if (t.has_refs()) read_refs(t, entries, body, to.entries, at, to.first * t.targets.size());
    hang_children(to.array);
    for (late_ref l : body_late_) {
      l.holder = to.array;
      late_.push_back(l);
    }
    hold(to.array);
    if (t.has_refs())
      store_words(held_payload_ + at, body, bytes);
    else
      copy_bytes(held_payload_ + at, body, bytes);
    body += bytes;
    from += to.entries;
    length -= to.entries;
  }
  push_children(0);
}

void graph_reader::stage_batch(std::uint32_t type, slot_t slot, std::uint64_t length) {
  const std::uint32_t entries = schema_.types[type].entries;
  const graph_type& t = schema_.types[entries];
  const std::uint64_t bytes = t.type->payload_bytes(length);
  body_late_.clear();
  if (t.has_refs()) read_refs(t, entries, reinterpret_cast<char*>(body_.data()) + 8, length, 8, 0);
  staged s{slot, {}, length, type};
  {
    const new_objects made = cache_.allocate_together(
        *t.type, length, 1, [&](std::uint64_t, char* payload) noexcept { std::memcpy(payload, body_.data(), bytes); });
    s.batch = ptr<char[]>::from_slot(made.first());
  }
  for (late_ref l : body_late_) {
    l.holder = s.batch.slot();
    late_.push_back(l);
  }
  push_children(s.batch.slot());
  if (t.has_refs())
    staged_.push_back(std::move(s));
  else
    insert(s);
}

// The batches of a container come one after the other: as they arrive, because without references nothing comes between
// them, or as they were sorted.
void graph_reader::insert(const staged& s) {
  let_go();  // it waits for memory
  const graph_type& t = schema_.types[s.type];
  if (filled_ != s.container) {
    finish_filling();
    filling_ = t.container->fill(s.container);
    filled_ = s.container;
  }
  switch (filling_->add(s.batch.slot(), s.count)) {
    case insertion::done: return;
    case insertion::null_key: throw_bad(fmt::format("a key of a '{}' is null", t.name));
    case insertion::key_twice: throw_bad(fmt::format("a key of a '{}' comes twice", t.name));
    // No breach: the sender may be another version of the program.
    case insertion::out_of_order:
      throw error(
          errc::layout_mismatch,
          fmt::format("a graph with a '{}' as its root: a key of a '{}' is not after the one before in the order "
                      "that its keys have here",
                      schema_.root, t.name));
  }
}

void graph_reader::finish_filling() {
  if (filling_) filling_->finish();
  filling_ = nullptr;
  filled_ = 0;
}

// Batches of a container in which others are nested come with theirs in between.
void graph_reader::insert_staged() {
  std::stable_sort(staged_.begin(), staged_.end(),
                   [](const staged& a, const staged& b) { return a.container < b.container; });
  for (const staged& e : staged_) insert(e);
  finish_filling();
}

}  // namespace fm::detail

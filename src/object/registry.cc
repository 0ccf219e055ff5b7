// The registry of types; registry.h has the structure and the invariant.
#include "registry.h"
#include "os/os.h"
#include <fmt/format.h>
#include <memory>
#include <set>
#include <utility>

namespace fm::detail {
namespace {

const char* to_string(type_kind k) { return k == type_kind::object ? "object" : "array"; }

/// A description may come from a peer, so it is not trusted: its references must lie inside, aligned, in order.
void validate(const type_descriptor& d) {
  const auto bad = [&](const std::string& why) {
    throw error(errc::invalid_argument, fmt::format("type '{}': {}", d.name, why));
  };
  if (d.name.empty()) bad("a type needs a name");
  if (d.kind != type_kind::object && d.kind != type_kind::array)
    bad(fmt::format("kind {} is not known", static_cast<std::uint32_t>(d.kind)));
  if (d.bytes == 0 || d.bytes > type_registry::max_bytes)
    bad(fmt::format("{} bytes is outside 1..{}", d.bytes, type_registry::max_bytes));
  std::uint64_t free_from = 0;
  for (const std::uint32_t offset : d.ref_offsets) {
    if (offset % 8 != 0) bad(fmt::format("the reference at offset {} is not aligned to 8", offset));
    if (offset < free_from) bad(fmt::format("the reference at offset {} overlaps the one before it", offset));
    free_from = std::uint64_t{offset} + 8;
    if (free_from > d.bytes) bad(fmt::format("the reference at offset {} passes the end, {}", offset, d.bytes));
  }
  if (!d.ref_offsets.empty() && d.bytes % 8 != 0) bad("a type with references must be a multiple of 8 bytes");
}

bool same_layout(const type_descriptor& a, const type_descriptor& b) {
  return a.layout_hash == b.layout_hash && a.bytes == b.bytes && a.ref_offsets == b.ref_offsets;
}

std::string key_of(const type_descriptor& d) { return fmt::format("{} {}", to_string(d.kind), d.name); }

/// The process's registry. Never destroyed: threads may look types up while the process exits.
type_registry& global() {
  static type_registry& r = *new type_registry;
  return r;
}
const os::fork_guard types_at_fork(
    os::fork_rank::leaves, []() noexcept { global().lock(); }, []() noexcept { global().unlock(); },
    []() noexcept { global().unlock(); });

}  // namespace

type_registry::~type_registry() {
  for (std::uint32_t id = 1; id <= count(); ++id) delete find(id);
  for (auto& b : blocks_) delete b.load(std::memory_order_relaxed);
}

const type_descriptor* type_registry::find(std::uint32_t id) const noexcept {
  if (id > max_types) return nullptr;
  const block* b = blocks_[id / block_types].load(std::memory_order_acquire);
  return b ? b->types[id % block_types].load(std::memory_order_acquire) : nullptr;
}

const type_descriptor& type_registry::add(type_descriptor d) {
  validate(d);
  std::string key = key_of(d);
  const std::lock_guard lock(mutex_);
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    if (same_layout(*known->second, d)) return *known->second;
    throw error(errc::layout_mismatch, fmt::format("{} type '{}' is registered as {} but described as {}",
                                                   to_string(d.kind), d.name, known->second->layout, d.layout));
  }
  return append(std::move(d), std::move(key));
}

void type_registry::add_stored(std::span<const type_descriptor> types) {
  for (const type_descriptor& d : types) validate(d);
  const std::lock_guard lock(mutex_);
  const std::uint32_t known = count_.load(std::memory_order_relaxed);
  std::set<std::string> keys;
  for (std::uint32_t number = 1; number <= types.size(); ++number) {
    const type_descriptor& d = types[number - 1];
    if (!keys.insert(key_of(d)).second)
      throw error(errc::invalid_argument, fmt::format("type '{}' is described twice", d.name));
    const auto mine = by_key_.find(key_of(d));
    const bool is_known = mine != by_key_.end();
    if (is_known && !same_layout(*mine->second, d))
      throw error(errc::layout_mismatch, fmt::format("{} type '{}' is {} in this program and {} in the stored heap",
                                                     to_string(d.kind), d.name, mine->second->layout, d.layout));
    if (is_known ? mine->second->id != number : number <= known)
      throw error(errc::layout_mismatch,
                  fmt::format("type number {} is '{}' in the stored heap, and another one in this process: attach the "
                              "heap before others, and before channels and pools are used",
                              number, d.name));
  }
  if (types.size() > limit_)
    throw error(errc::too_large, fmt::format("the stored heap has {} types, {} are possible", types.size(), limit_));
  for (std::size_t i = known; i < types.size(); ++i) append(types[i], key_of(types[i]));
}

const type_descriptor& type_registry::append(type_descriptor d, std::string key) {
  const std::uint32_t last = count_.load(std::memory_order_relaxed);
  if (last >= limit_)
    throw error(errc::too_large, fmt::format("type '{}': all {} type numbers are used", d.name, limit_));

  d.id = last + 1;
  std::atomic<block*>& home = blocks_[d.id / block_types];
  if (!home.load(std::memory_order_relaxed)) home.store(new block, std::memory_order_release);
  auto made = std::make_unique<const type_descriptor>(std::move(d));
  by_key_.emplace(std::move(key), made.get());
  const type_descriptor& t = *made.release();
  // The pointer before the count: a reader that sees the count finds every number up to it.
  home.load(std::memory_order_relaxed)->types[t.id % block_types].store(&t, std::memory_order_release);
  count_.store(t.id, std::memory_order_release);
  return t;
}

const type_descriptor* find_type(std::uint32_t id) noexcept { return global().find(id); }
std::uint32_t type_count() noexcept { return global().count(); }
const type_descriptor& register_type(type_descriptor d) { return global().add(std::move(d)); }
void register_stored_types(std::span<const type_descriptor> types) { global().add_stored(types); }

void throw_wrong_type(std::uint32_t is, std::string_view wanted) {
  const type_descriptor* const d = find_type(is);
  throw error(errc::wrong_type,
              fmt::format("an object is {} {}, and not {}", d && d->kind == type_kind::array ? "an array of" : "a",
                          d ? d->name : "of no known type", wanted));
}

}  // namespace fm::detail

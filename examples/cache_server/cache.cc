// Values into the pool and out of it; see cache.h.
#include "cache.h"

#include <fmt/format.h>

namespace fm::example {

namespace {

/// What one attempt to make room frees: small objects make room for a large one only when whole blocks become empty.
constexpr std::uint64_t evicted_at_once = 64u << 10;
constexpr int attempts_max = 64;

}  // namespace

cache::item* cache::find(std::string_view key) {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return nullptr;
  const items::iterator i = at->second;
  if (i->expires_at_ms != 0 && i->expires_at_ms <= unix_ms()) {
    drop(*i);
    ++count_.expired;
    return nullptr;
  }
  items_.splice(items_.begin(), items_, i);
  return &*i;
}

decoded_value cache::load(item& i) {
  scratch_.resize(i.bytes);
  const errc e = pool_.read_into(i.value, scratch_);
  if (e != errc::ok) throw error(e, fmt::format("the value of '{}'", i.key));
  const auto v = decode_value(scratch_);
  if (!v || v->key != i.key) throw error(errc::corrupt, fmt::format("the value of '{}' is another one", i.key));
  return *v;
}

std::optional<std::string_view> cache::get(std::string_view key) {
  item* const i = find(key);
  ++(i == nullptr ? count_.misses : count_.hits);
  return i == nullptr ? std::nullopt : std::optional(load(*i).value);
}

std::optional<std::int64_t> cache::expiry(std::string_view key) {
  const item* const i = find(key);
  return i == nullptr ? std::nullopt : std::optional(i->expires_at_ms);
}

bool cache::evict_oldest(std::uint64_t bytes, const item* kept) {
  std::uint64_t freed = 0;
  while (freed < bytes && !items_.empty()) {
    item* oldest = &items_.back();
    if (oldest == kept) {
      if (items_.size() == 1) break;
      oldest = &*std::prev(items_.end(), 2);
    }
    freed += oldest->bytes;
    drop(*oldest);
    ++count_.evicted;
  }
  return freed != 0;
}

/// An object of the bytes in scratch_.
pool_address cache::allocate(const item* kept) {
  for (int attempt = 0;; ++attempt) {
    const auto r = pool_.try_alloc_bytes(scratch_);
    if (r) return *r;
    if (!is_full(r.error().code()) || attempt == attempts_max || !options_.evict ||
        !evict_oldest(std::max<std::uint64_t>(evicted_at_once, 2 * scratch_.size()), kept))
      throw r.error();
  }
}

void cache::set(std::string_view key, std::string_view value, std::int64_t expires_at_ms) {
  const std::uint64_t bytes = value_object_bytes(key.size(), value.size());
  if (bytes > pool_.object_bytes_max())
    throw error(errc::too_large, fmt::format("a key of {} and a value of {} bytes; the pool takes {} with both",
                                             key.size(), value.size(), pool_.object_bytes_max()));
  item* const i = find(key);
  if (expires_at_ms == keep_expiry) expires_at_ms = i == nullptr ? 0 : i->expires_at_ms;
  store(key, value, expires_at_ms, i);
}

void cache::store(std::string_view key, std::string_view value, std::int64_t expires_at_ms, item* existing) {
  encode_value(scratch_, key, value, expires_at_ms, ++changes_);
  if (existing != nullptr && existing->bytes == scratch_.size()) {
    pool_.write_bytes(existing->value, scratch_);
    ++count_.in_place;
  } else if (existing != nullptr) {
    const pool_address now = allocate(existing), before = existing->value;
    directory_.replace(existing->hash, before, now);
    existing->value = now;
    existing->bytes = scratch_.size();
    pool_.free(before);
    ++count_.anew;
  } else {
    item i{std::string(key), directory_.hash(key), allocate(nullptr), scratch_.size(), 0};
    for (int attempt = 0;; ++attempt) {
      const errc e = directory_.insert(i.hash, i.value);
      if (e == errc::ok) break;
      if (attempt < attempts_max && options_.evict && evict_oldest(evicted_at_once, nullptr)) continue;
      pool_.free(i.value);
      throw error(e, "no room for an entry of the directory");
    }
    items_.push_front(std::move(i));
    by_key_.emplace(items_.front().key, items_.begin());
    existing = &items_.front();
    ++count_.anew;
  }
  set_expiry(*existing, expires_at_ms);
}

void cache::set_expiry(item& i, std::int64_t at_ms) {
  if (i.expires_at_ms != 0) expiries_.erase({i.expires_at_ms, &i});
  if (at_ms != 0) expiries_.emplace(at_ms, &i);
  i.expires_at_ms = at_ms;
}

bool cache::expire(std::string_view key, std::int64_t at_ms) {
  item* const i = find(key);
  if (i == nullptr) return false;
  const std::string value(load(*i).value);
  store(key, value, at_ms, i);  // of the same size, so in place
  return true;
}

void cache::drop(item& i) {
  directory_.remove(i.hash, i.value);
  pool_.free(i.value);
  set_expiry(i, 0);
  const auto at = by_key_.find(i.key);
  const items::iterator where = at->second;
  by_key_.erase(at);
  items_.erase(where);
}

bool cache::erase(std::string_view key) {
  item* const i = find(key);
  if (i == nullptr) return false;
  drop(*i);
  return true;
}

void cache::clear() {
  while (!items_.empty()) drop(items_.back());
}

std::int64_t cache::expire_some(unsigned keys_max) {
  const std::int64_t now = unix_ms();
  while (!expiries_.empty()) {
    const auto [at_ms, i] = *expiries_.begin();
    if (at_ms > now || keys_max-- == 0) return at_ms;
    drop(*i);
    ++count_.expired;
  }
  return 0;
}

std::string cache::verify() {
  std::string faults;
  for (item& i : items_) {
    const decoded_value v = load(i);
    if (v.header.expires_at_ms != i.expires_at_ms) faults += fmt::format("'{}' expires at another time\n", i.key);
  }
  const directory::counts n = directory_.count();
  if (n.entries != items_.size()) faults += fmt::format("{} entries for {} keys\n", n.entries, items_.size());
  const pool_report r = pool_.verify();
  if (!r.ok()) faults += r.text;
  return faults;
}

}  // namespace fm::example

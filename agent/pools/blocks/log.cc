// Numbers, records and the word of a pool's log; see log.h.
#include "log.h"

#include "object_memory.h"
#include "os/os.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

namespace fm::agent {

pool_log::entry pool_log::make(record_kind kind, std::size_t bytes) {
  auto* const n = static_cast<node*>(std::malloc(sizeof(node) + bytes));
  if (n == nullptr) throw std::bad_alloc();
  new (n)
      node{nullptr, {static_cast<std::uint32_t>(sizeof(record_head) + bytes), static_cast<std::uint16_t>(kind), 0, 0}};
  return entry(n);
}

void pool_log::show(std::uint64_t number) noexcept {
  if (word_ != nullptr) shared_memory::store_word(word_, number);
}

std::uint64_t pool_log::append(entry e) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = end_.load(std::memory_order_relaxed) + 1;
  end_.store(number, std::memory_order_release);
  if (!waits_) show(number);
  if (e == nullptr) return number;
  e->head.number = number;
  node* const n = e.release();
  bytes_.fetch_add(n->head.bytes, std::memory_order_relaxed);
  (last_ != nullptr ? last_->next : first_) = n;
  last_ = n;
  if (unsent_ == nullptr) unsent_ = n;
  ring();
  return number;
}

void pool_log::ring() noexcept {
  bell.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) os::futex_wake(bell, 1);
}

void pool_log::forget() noexcept {
  for (node* n = std::exchange(first_, nullptr); n != nullptr;) std::free(std::exchange(n, n->next));
  last_ = unsent_ = nullptr;
  sent_ = 0;
  bytes_.store(0, std::memory_order_relaxed);
}

void pool_log::record(bool on) noexcept {
  const std::lock_guard lock(mutex_);
  recording_ = on;
  forget();
  waits_ = false;
  confirmed_.store(0, std::memory_order_release);
  show(end_.load(std::memory_order_relaxed));
}

std::uint64_t pool_log::wait_for_backup() noexcept {
  const std::lock_guard lock(mutex_);
  waits_ = true;
  return end_.load(std::memory_order_relaxed);
}

void pool_log::show_in(std::byte* word) noexcept {
  const std::lock_guard lock(mutex_);
  word_ = word;
  show(end_.load(std::memory_order_relaxed));
}

void pool_log::begin_after(std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  end_.store(number, std::memory_order_release);
  confirmed_.store(number, std::memory_order_release);
  show(number);
}

std::uint32_t pool_log::take(std::vector<std::byte>& to, std::size_t bytes_max, std::uint64_t& after) {
  const std::lock_guard lock(mutex_);
  after = sent_;
  std::uint32_t count = 0;
  for (std::size_t bytes = 0; unsent_ != nullptr; unsent_ = unsent_->next, ++count) {
    if (count != 0 && bytes + unsent_->head.bytes > bytes_max) break;
    bytes += unsent_->head.bytes;
    const auto* const from = reinterpret_cast<const std::byte*>(&unsent_->head);
    to.insert(to.end(), from, from + unsent_->head.bytes);
    sent_ = unsent_->head.number;
  }
  return count;
}

void tell_how_long(std::span<std::byte> records, std::uint64_t now_ms) noexcept {
  while (!records.empty()) {
    record_head h;
    std::memcpy(&h, records.data(), sizeof h);
    const auto kind = static_cast<record_kind>(h.kind);
    const std::size_t at = kind == record_kind::object   ? offsetof(object_record, expires_ms)
                           : kind == record_kind::expiry ? offsetof(expiry_record, expires_ms)
                           : kind == record_kind::stored ? offsetof(stored_record, expires_ms)
                                                         : 0;
    std::uint64_t time = 0;
    if (at != 0) std::memcpy(&time, records.data() + sizeof h + at, sizeof time);
    if (time != 0) {  // what has expired does so at once: 0 would be never
      time = time > now_ms ? std::min(time - now_ms, pool_expiry_ms_max) : 1;
      std::memcpy(records.data() + sizeof h + at, &time, sizeof time);
    }
    records = records.subspan(h.bytes);
  }
}

void pool_log::send_again_after(std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  unsent_ = first_;
  sent_ = number;
  while (unsent_ != nullptr && unsent_->head.number <= number) unsent_ = unsent_->next;
}

void pool_log::confirmed(std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  if (number <= confirmed_.load(std::memory_order_relaxed) || number > end_.load(std::memory_order_relaxed)) return;
  confirmed_.store(number, std::memory_order_release);
  while (first_ != nullptr && first_ != unsent_ && first_->head.number <= number) {
    node* const n = std::exchange(first_, first_->next);
    bytes_.fetch_sub(n->head.bytes, std::memory_order_relaxed);
    std::free(n);
  }
  if (first_ == nullptr) last_ = nullptr;
  if (waits_) show(number);
}

}  // namespace fm::agent

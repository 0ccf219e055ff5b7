// Checking a request before a transport touches it, and carrying out a one-sided operation on mapped bytes; see
// one_sided.h. It keeps no state, and any thread may call it.
#include "one_sided.h"
#include "base/copy.h"

#include <algorithm>
#include <cstring>

namespace fm::fabric {

errc check_request(const request& r, std::uint32_t message_bytes_max) noexcept {
  if (r.sg_count > request::max_sg) return errc::invalid_argument;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < r.sg_count; ++i) {
    if (!r.sg[i].data && r.sg[i].bytes != 0) return errc::invalid_argument;
    if (__builtin_add_overflow(total, std::uint64_t(r.sg[i].bytes), &total)) return errc::invalid_argument;
  }
  switch (r.kind) {
    case op_kind::read:
    case op_kind::write: return errc::ok;
    case op_kind::compare_swap:
    case op_kind::fetch_add: return r.where.offset % 8 == 0 ? errc::ok : errc::invalid_argument;
    case op_kind::message: return total <= message_bytes_max ? errc::ok : errc::too_large;
  }
  return errc::invalid_argument;
}

errc apply_atomic(op_kind kind, std::byte* at, std::uint64_t operand, std::uint64_t compare,
                  std::uint64_t& old) noexcept {
  if (reinterpret_cast<std::uintptr_t>(at) % 8 != 0) return errc::invalid_argument;
  auto* word = reinterpret_cast<std::uint64_t*>(at);
  if (kind == op_kind::fetch_add) {
    old = __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
  } else {
    old = compare;
    __atomic_compare_exchange_n(word, &old, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }
  return errc::ok;
}

namespace {
template <class Byte, class Copy>
void walk(const request& r, std::uint64_t from, std::span<Byte> bytes, const Copy& copy) noexcept {
  for (std::size_t i = 0; i < r.sg_count && !bytes.empty(); ++i) {
    const buffer& b = r.sg[i];
    if (from >= b.bytes) {
      from -= b.bytes;
      continue;
    }
    const std::size_t n = std::min<std::size_t>(bytes.size(), b.bytes - from);
    copy(static_cast<std::byte*>(b.data) + from, bytes.first(n));
    bytes = bytes.subspan(n);
    from = 0;
  }
}
}  // namespace

void gather(const request& r, std::uint64_t from, std::span<std::byte> to) noexcept {
  walk(r, from, to,
       [](const std::byte* at, std::span<std::byte> part) { detail::copy_bytes(part.data(), at, part.size()); });
}

void scatter(const request& r, std::uint64_t from, std::span<const std::byte> bytes) noexcept {
  walk(r, from, bytes,
       [](std::byte* at, std::span<const std::byte> part) { detail::copy_bytes(at, part.data(), part.size()); });
}

errc apply_one_sided(request& r, std::byte* at) noexcept {
  if (r.kind != op_kind::read && r.kind != op_kind::write)
    return apply_atomic(r.kind, at, r.operand, r.compare, r.value);
  if (r.kind == op_kind::read) detail::begin_loading(at, r.bytes());
  for (std::size_t i = 0; i < r.sg_count; ++i) {
    const buffer& b = r.sg[i];
    if (b.bytes == 0) continue;
    if (r.kind == op_kind::read)
      detail::copy_bytes(b.data, at, b.bytes);
    else
      detail::copy_bytes(at, b.data, b.bytes);
    at += b.bytes;
  }
  return errc::ok;
}

}  // namespace fm::fabric

// Stand-ins for the handles of the upper layers, with the properties that reflection has to live with: a reference
// that cannot be copied or moved and is made from a root, and roots that can be copied and have destructors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <farmem/detail/types/fields.h>

namespace fm {

template <class T>
class ptr {
 public:
  ptr() = default;
  ptr(std::nullptr_t) {}
  ptr(const ptr& o) : slot_(o.slot_) {}
  ptr& operator=(const ptr& o) = default;
  ~ptr() { slot_ = 0; }
  ptr(const ref<T>& r);

 private:
  std::uint64_t slot_ = 0;
};

template <class T>
class weak {
 public:
  weak() = default;
  explicit weak(const ptr<T>&) {}

 private:
  std::uint64_t slot_ = 0;
};

template <class T>
class ref {
 public:
  constexpr ref() noexcept = default;
  ref(const ptr<T>&) noexcept {}
  ref(std::nullptr_t) noexcept {}
  ref(const ref&) = delete;
  ref& operator=(const ref&) = delete;
  ref& operator=(const ptr<T>&) noexcept { return *this; }

 private:
  std::atomic<std::uint64_t> slot_{0};
};

}  // namespace fm

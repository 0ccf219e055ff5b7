// Plain pointers; see plain_key_value.h. Values come from mimalloc, which packs 128-byte blocks without headers: the
// densest pages that a program with individually allocated values can have.
#include "plain_key_value.h"

#include <map>
#include <mimalloc.h>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "../support/key_value.h"

namespace fm::bench {
namespace {

class plain_store {
 public:
  explicit plain_store(std::uint64_t keys) : values_(keys) {
    for (std::uint64_t key = 0; key < keys; ++key) {
      void* at = mi_malloc(sizeof(kv_value));
      if (at == nullptr) throw error(errc::out_of_memory, "value " + std::to_string(key));
      values_[key] = new (at) kv_value;
      fill_value(*values_[key], key);
    }
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t key) const noexcept { return sum_of(*values_[key]); }
  void write(std::uint64_t key, std::uint64_t n) noexcept { values_[key]->written += n; }

 private:
  std::vector<kv_value*> values_;
};

class plain_map {
 public:
  explicit plain_map(std::uint64_t keys) {
    kv_value v;
    for (std::uint64_t key = 0; key < keys; ++key) {
      fill_value(v, key);
      all_.emplace_hint(all_.end(), key, v);
    }
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t key) const {
    const std::shared_lock lock(mutex_);
    return sum_of(all_.find(key)->second);
  }
  void write(std::uint64_t key, std::uint64_t n) {
    const std::lock_guard lock(mutex_);
    all_.find(key)->second.written += n;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, kv_value, std::less<>, mi_stl_allocator<std::pair<const std::uint64_t, kv_value>>> all_;
};

template <class Store>
int store_main(const std::vector<std::string>& args) {
  const std::uint64_t keys = std::stoull(args.at(0));
  Store store(keys);
  return serve_commands({{"keys", double(keys)}},
                        [&](const std::vector<std::string>& words) { return run_key_value(store, keys, words); });
}

}  // namespace

int plain_key_value_main(const std::vector<std::string>& args) { return store_main<plain_store>(args); }
int plain_map_main(const std::vector<std::string>& args) { return store_main<plain_map>(args); }

}  // namespace fm::bench

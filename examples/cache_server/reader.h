// Another process's view of the cache: the server is not asked, its values are read one-sidedly from the agents' memory, while
// the server changes them and the pool is compacted.
#pragma once

#include <string>
#include <unordered_map>

#include "format.h"

namespace fm::example {

/// What a server tells its readers: a file that only its user may read, because the tenant in it is the key to the pool.
struct share_file {
  std::vector<std::string> agents;
  std::string name;
  pool_tenant tenant;
  pool_address root;

  /// Written beside it and renamed, so a reader sees all of it or nothing. Throws fm::error.
  void write(const std::string& path) const;
  /// Throws fm::error: not_found, invalid_argument with the line.
  static share_file read(const std::string& path);
};

/// For one thread; the pool may be shared.
class directory_reader {
 public:
  /// Reads the root and the pages. Throws fm::error: not_found (the server is gone), corrupt.
  directory_reader(fm::pool& p, pool_address root);

  /// The value of a key; nothing when there is none, or it has expired. Throws fm::error: timed_out when the directory
  /// changed under every attempt, and what the pool throws.
  [[nodiscard]] std::optional<std::string> get(std::string_view key);

  struct findings {
    std::uint64_t values = 0;     ///< read, and proved to be what their entry says
    std::uint64_t overtaken = 0;  ///< the server had removed or replaced it meanwhile, and the bucket says so
    std::uint64_t expired = 0;
    std::uint64_t wrong = 0;     ///< bytes that are no value, of another key, or older than what was read before
    std::uint64_t dangling = 0;  ///< named by the bucket though it was freed
    void add(const findings& o) noexcept {
      values += o.values, overtaken += o.overtaken, expired += o.expired, wrong += o.wrong, dangling += o.dangling;
    }
  };
  /// Reads what a bucket and those behind it name, and judges it. `i` counts modulo the number of buckets.
  findings check_bucket(std::uint64_t i);
  [[nodiscard]] std::uint64_t buckets() const noexcept { return first_.size(); }
  [[nodiscard]] std::uint64_t restarts() const noexcept { return restarts_; }

 private:
  enum class step : std::uint8_t { found, absent, overtaken };
  step try_get(std::string_view key, std::uint64_t hash, std::string& value);
  /// False: the object is not there any more.
  bool read_bucket(pool_ptr<directory_bucket>& at, directory_bucket& b);
  bool read_value(pool_address& at);
  void judge(const directory_entry& e, findings& f);

  fm::pool& pool_;
  std::uint64_t seed_ = 0;
  std::vector<pool_ptr<directory_bucket>> first_;
  std::vector<std::byte> object_;
  std::unordered_map<std::string, std::uint64_t> newest_;  ///< the last change that was seen of each key
  std::uint64_t restarts_ = 0;
};

}  // namespace fm::example

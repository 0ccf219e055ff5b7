// fm::pool: trivially copyable objects in the memory of agents, allocated and freed explicitly, shared by processes. Reads
// are one-sided: they take no lock, and no thread of the agent over transports with one-sided reads. Allocation, writing and freeing
// are calls to the agent, which compacts sparse blocks beside all that; no pointer ever breaks by it.
// (CoRM: Taranov, Di Girolamo, Hoefler, SIGMOD 2021. What is different here, and why, is in the layer map's page.)
//
//   fm::pool pool({.agents = {"shm:///run/farmem/agent.sock"}, .name = "sessions", .tenant = key});
//   fm::pool_ptr<session> p = pool.alloc(session{...});   // send p to anybody who has the pool open
//   session s = pool.read(p);                             // corrects p, if the object has been moved
//   pool.write(p, s);
//   pool.free(p);
//
// Consistency. A read returns a value that one write (or the allocation) gave, whole, and that was the object's during the call.
// Writes of one object are made one after the other by its agent. There is nothing across objects.
//
// Errors, as fm::error where a function throws and in the result where it does not:
//   not_found         the pointer's object was freed, or there never was one; a forged pointer
//   access_denied     the pointer is of another pool, tenant or agent, or null
//   layout_mismatch   the object has another size
//   too_large         more bytes than the largest class has; object_bytes_max()
//   quota_exceeded, agent_full      no room, after compaction, on any agent
//   timed_out, agent_lost, disconnected, cancelled (the pool was closed)
// An allocation, write or free that ends with timed_out or disconnected may have been made.
//
// Thread-safe, except that a pointer that is passed by reference is changed: that one is the caller's to guard.
#pragma once

#include <farmem/pool_options.h>
#include <farmem/pool_ptr.h>
#include <farmem/pool_stats.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace fm {

/// How a one-sided read ended.
enum class pool_read : std::uint8_t {
  ok,
  torn,        ///< the object is being changed: try again
  moved,       ///< it is not (any more) where the pointer and the table say; or freed
  unknown,     ///< the table has no such block: freed, or never there
  wrong_size,  ///< it has another size
  failed,      ///< the transport did not deliver
};

class pool {
 public:
  /// Opens the pool on all agents. Throws (unreachable, refused, quota_exceeded, invalid_argument, ...) naming the agent.
  explicit pool(const pool_options& options);
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;
  /// Closes: objects stay, while another process has the pool open, and pool_options::keep beyond. No call may be under way.
  ~pool();

  /// A new object. One message to an agent.
  template <class T>
  [[nodiscard]] pool_ptr<T> alloc(const T& value) {
    check_type<T>();
    return pool_ptr<T>(alloc_bytes(bytes_of(value)));
  }
  [[nodiscard]] pool_address alloc_bytes(std::span<const std::byte> payload) {
    return value_or_throw(try_alloc_bytes(payload));
  }
  [[nodiscard]] result<pool_address> try_alloc_bytes(std::span<const std::byte> payload);

  /// The object's value: one one-sided read where the pointer is right; otherwise also a read of its word in the table, and of
  /// where it is now; otherwise the agent is asked. `p` is corrected.
  template <class T>
  [[nodiscard]] T read(pool_ptr<T>& p) {
    return value_or_throw(try_read(p));
  }
  template <class T>
  [[nodiscard]] T read(const pool_ptr<T>& p) {
    pool_ptr<T> copy = p;
    return read(copy);
  }
  template <class T>
  [[nodiscard]] result<T> try_read(pool_ptr<T>& p) {
    check_type<T>();
    T value;
    if (const errc e = read_into(p.address(), bytes_of(value)); e != errc::ok) return fail(e, describe(p.address(), e));
    return value;
  }
  /// The whole object, whatever its size.
  [[nodiscard]] std::vector<std::byte> read_bytes(pool_address& p) { return value_or_throw(try_read_bytes(p)); }
  [[nodiscard]] result<std::vector<std::byte>> try_read_bytes(pool_address& p);
  /// An object of exactly `to.size()` bytes. `to` has no particular contents after an error.
  errc read_into(pool_address& p, std::span<std::byte> to) noexcept;

  /// One one-sided read where the pointer says, and how it ended. Corrects nothing.
  template <class T>
  [[nodiscard]] pool_read direct_read(const pool_ptr<T>& p, T& value) noexcept {
    check_type<T>();
    return direct_read_into(p.address(), bytes_of(value));
  }
  [[nodiscard]] pool_read direct_read_into(pool_address p, std::span<std::byte> to) noexcept;
  /// Reads the whole block that the table names one-sidedly and looks for the object by its identity; corrects `p` (CoRM's ScanRead).
  template <class T>
  [[nodiscard]] pool_read scan_read(pool_ptr<T>& p, T& value) {
    check_type<T>();
    return scan_read_into(p.address(), bytes_of(value));
  }
  [[nodiscard]] pool_read scan_read_into(pool_address& p, std::span<std::byte> to);
  /// Asks the agent. Corrects `p`.
  template <class T>
  [[nodiscard]] T rpc_read(pool_ptr<T>& p) {
    check_type<T>();
    T value;
    if (const errc e = rpc_read_into(p.address(), bytes_of(value)); e != errc::ok)
      throw error(e, describe(p.address(), e));
    return value;
  }
  errc rpc_read_into(pool_address& p, std::span<std::byte> to) noexcept;

  /// Replaces the value. One message. Corrects `p`.
  template <class T>
  void write(pool_ptr<T>& p, const T& value) {
    check_type<T>();
    write_bytes(p.address(), bytes_of(value));
  }
  void write_bytes(pool_address& p, std::span<const std::byte> payload) { value_or_throw(try_write_bytes(p, payload)); }
  [[nodiscard]] result<void> try_write_bytes(pool_address& p, std::span<const std::byte> payload);

  /// Ends the object. Every pointer to it is dead from then on, and says so (not_found) for ever.
  template <class T>
  void free(const pool_ptr<T>& p) {
    free(p.address());
  }
  void free(const pool_address& p) { value_or_throw(try_free(p)); }
  [[nodiscard]] result<void> try_free(const pool_address& p);

  /// Gives up the pointer's old identity for one of the block that the object lives in now, so that the block that it was born in can be
  /// used again (CoRM's ReleasePtr). Only for objects that nobody else has a pointer to: `p` is changed, and all
  /// copies of it are dead. Without effect on objects that were not moved.
  template <class T>
  void release(pool_ptr<T>& p) {
    release(p.address());
  }
  void release(pool_address& p) { value_or_throw(try_release(p)); }
  [[nodiscard]] result<void> try_release(pool_address& p);

  /// Compacts all classes on all agents, in bounded steps, and returns when nothing is left to merge. Afterwards, as far as
  /// nobody allocates or frees meanwhile, no two blocks of a class that may be merged are both at most half full; even, no two
  /// have objects that would fit into one. Throws on errors of agents.
  pool_compaction compact();

  /// Statistics of this process and of the agents. Throws when an agent does not answer.
  [[nodiscard]] pool_stats stats() const;
  /// Has every agent compare its records with each other and with the bytes that readers see, checksums included. O(bytes).
  [[nodiscard]] pool_report verify() const;

  [[nodiscard]] const pool_tenant& tenant() const noexcept;
  /// The largest object that every agent of the pool takes, bytes.
  [[nodiscard]] std::uint64_t object_bytes_max() const noexcept;
  /// Breaks the connections to all agents, as if the network had; for tests.
  void drop_connections() noexcept;

 private:
  template <class T>
  static constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T>, "an object of a pool is bytes: its type must be trivially copyable");
    static_assert(std::is_default_constructible_v<T>, "reading makes a T to read into");
    static_assert(!std::is_pointer_v<T>, "a pointer means nothing in another process: use fm::pool_ptr");
    static_assert(sizeof(T) <= 512 << 10, "larger than any object of a pool");
  }
  template <class T>
  static std::span<const std::byte> bytes_of(const T& value) noexcept {
    return {reinterpret_cast<const std::byte*>(&value), sizeof(T)};
  }
  template <class T>
  static std::span<std::byte> bytes_of(T& value) noexcept {
    return {reinterpret_cast<std::byte*>(&value), sizeof(T)};
  }
  [[nodiscard]] std::string describe(const pool_address& p, errc why) const;

  class impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace fm

// fm::pool: trivially copyable objects in the memory of agents, allocated and freed explicitly, and shared by
// processes. Reads are one-sided: they take no lock, and over transports with one-sided reads no thread of the agent.
// Allocations, writes and frees are calls to the agent. It compacts sparse blocks meanwhile, and no pointer breaks.
// (CoRM: Taranov, Di Girolamo, Hoefler, SIGMOD 2021.)
//
//   fm::pool pool({.agents = {"shm:///run/farmem/agent.sock"}, .name = "sessions", .tenant = key});
//   fm::pool_ptr<session> p = pool.alloc(session{...});   // any process that has the pool open may use p
//   session s = pool.read(p);                             // corrects p, if the object has been moved
//   pool.write(p, s);
//   pool.free(p);
#pragma once

#include <farmem/detail/types/fields.h>
#include <farmem/pool/options.h>
#include <farmem/pool/ptr.h>
#include <farmem/pool/stats.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace fm {

template <class T>
class pool_operation;
namespace detail {
struct pool_transfer;
}

/// How a one-sided read ended.
enum class pool_read : std::uint8_t {
  ok,          ///< the value was read
  torn,        ///< the object is being changed: try again
  moved,       ///< the object is not where the pointer and the table say: it was moved or freed
  unknown,     ///< the table has no such block: it was freed, or never existed
  wrong_size,  ///< the object has another size
  failed,      ///< the transport failed
};

/// Behaviour of pool::bind if the name is bound to another object.
enum class pool_bind : std::uint8_t {
  create,   ///< it fails with conflict: of several processes that bind a name, one succeeds
  replace,  ///< the name names the new object from then on
};

/// One read of pool::read_many_into.
struct pool_read_item {
  pool_address at{};          ///< the object; its hint is corrected
  std::span<std::byte> to{};  ///< where its bytes go: exactly as many as the object has
  errc code = errc::ok;       ///< how the read ended; the contents of `to` are unspecified unless it is ok
};

/// A pool of objects that processes share. See the CoRM paper for the ideas.
///
/// Consistency: a read returns the whole value of one write or of the allocation, and the object had that value during
/// the call. The agent orders the writes of one object. There is no order across objects.
///
/// Functions that throw throw fm::error; try_ functions and functions that return errc return the same codes:
/// - not_found: the object was freed, expired or never existed, or the pointer is forged
/// - access_denied: the pointer is null, or of another pool or tenant
/// - layout_mismatch: the object has another size
/// - conflict: the object has another version, or the name is bound to another object
/// - unsupported: the agent speaks an older version of the protocol, which has no such call
/// - too_large: more bytes than object_bytes_max()
/// - quota_exceeded, agent_full: no room on any agent, after compaction
/// - timed_out, disconnected: the agent did not answer in time, or the connection broke
/// - agent_lost: the agent is lost, was started again since the object was made, or is not one of the pool's
/// - under_replicated: with replicas, the other agent of a part does not answer, and nobody has said who goes on
/// - cancelled: the pool was closed
///
/// If an allocation, write, free or other change ends with timed_out, it was made before the call returned, or it is never made: the
/// agent refuses a change that comes to it later. So it does not undo what another process changes afterwards. A
/// one-sided read may still miss it for a moment; rpc_read, or a change of the object that succeeds, comes after it. If
/// the call ends with disconnected, agent_lost or cancelled, it may be made until pool_options::access_within has passed
/// since it began, and not after that. An object that an allocation may have made is freed with the pool.
///
/// With pool_options::replicas, what was acknowledged is kept when one agent is lost, and what a read has returned was
/// acknowledged, or is. A change that ends with under_replicated may have been made. A call waits while agents change
/// places, until pool_options::access_within has passed.
///
/// That relies on the clocks of both machines advancing at the same rate within a thousandth, and not standing still
/// while the machine is suspended.
///
/// Thread-safe. Functions that take a pointer by reference may change it; the caller guards that pointer.
class pool {
 public:
  /// Opens the pool on all agents. Throws fm::error unreachable, refused, quota_exceeded, invalid_argument and others,
  /// and names the agent or the option.
  explicit pool(const pool_options& options);
  /// As the constructor, without exceptions.
  [[nodiscard]] static result<std::unique_ptr<pool>> open(const pool_options& options) {
    return attempt([&] { return std::make_unique<pool>(options); });
  }
  /// Not copyable.
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;
  /// As close().
  ~pool();
  /// Ends the lease and the connections. The pool's objects stay while another process has it open, and for
  /// pool_options::keep after that. No call may be in progress. Later calls fail with cancelled. Idempotent.
  void close() noexcept;

  /// Allocates an object with a value. One message to an agent; more if agents are full. `pool.alloc(v, {.expires_after =
  /// 30s})` makes one that expires, as expire_after says.
  template <class T>
  [[nodiscard]] pool_ptr<T> alloc(const T& value, const pool_alloc_options& how = {}) {
    check_type<T>();
    return pool_ptr<T>(alloc_bytes(bytes_of(value), how));
  }
  /// Allocates an object of any bytes. As alloc.
  [[nodiscard]] pool_address alloc_bytes(std::span<const std::byte> payload, const pool_alloc_options& how = {}) {
    return value_or_throw(try_alloc_bytes(payload, how));
  }
  /// As alloc_bytes, without exceptions.
  [[nodiscard]] result<pool_address> try_alloc_bytes(std::span<const std::byte> payload,
                                                     const pool_alloc_options& how = {});

  /// The value of the object. If the hint of the pointer is right, this takes one one-sided read. Otherwise it reads
  /// the block's word in the table and looks at the new place, and if that fails, it asks the agent. Corrects the hint
  /// of `p` (CoRM, section 3.2).
  template <class T>
  [[nodiscard]] T read(pool_ptr<T>& p) {
    return value_or_throw(try_read(p));
  }
  /// The value of the object, without correcting `p`. As the other read.
  template <class T>
  [[nodiscard]] T read(const pool_ptr<T>& p) {
    pool_ptr<T> copy = p;
    return read(copy);
  }
  /// As read, without exceptions.
  template <class T>
  [[nodiscard]] result<T> try_read(pool_ptr<T>& p) {
    check_type<T>();
    T value;
    if (const errc e = read_into(p.address(), bytes_of(value)); e != errc::ok) return fail(e, describe(p.address(), e));
    return value;
  }
  /// The bytes of an object of any size. As read.
  [[nodiscard]] std::vector<std::byte> read_bytes(pool_address& p) { return value_or_throw(try_read_bytes(p)); }
  /// As read_bytes, without exceptions.
  [[nodiscard]] result<std::vector<std::byte>> try_read_bytes(pool_address& p);
  /// Reads an object of exactly `to.size()` bytes. As read. After an error, the contents of `to` are unspecified.
  errc read_into(pool_address& p, std::span<std::byte> to) noexcept;

  /// The values of many objects, each with a result of its own, in the order of `ps`. One-sided reads of up to 64 objects
  /// are in flight at a time, at all agents, so a round of them takes about as long as one read. An object that is not
  /// where its pointer says costs as in read, by itself. Each value is whole; together they are of no one moment. Corrects
  /// the pointers. O(ps).
  template <class T>
  [[nodiscard]] std::vector<result<T>> read_many(std::span<pool_ptr<T>> ps) {
    check_type<T>();
    const auto values = std::make_unique<T[]>(ps.size());
    std::vector<pool_read_item> items(ps.size());
    for (std::size_t i = 0; i < ps.size(); ++i) items[i] = {ps[i].address(), bytes_of(values[i])};
    read_many_into(items);
    std::vector<result<T>> all;
    all.reserve(ps.size());
    for (std::size_t i = 0; i < ps.size(); ++i) {
      ps[i].address() = items[i].at;
      if (items[i].code == errc::ok)
        all.emplace_back(values[i]);
      else
        all.emplace_back(fail(items[i].code, describe(items[i].at, items[i].code)));
    }
    return all;
  }
  /// As read_many, for bytes: fills in `code` of each item, and corrects its `at`. Throws nothing but std::bad_alloc.
  void read_many_into(std::span<pool_read_item> items);

  /// Starts a read, and returns at once: `auto r = pool.read_async(p); ... r.wait();`, or `T v = co_await r;` in an
  /// fm::task. Reads that are started before the first is awaited are in flight together. If the object is not where `p`
  /// says, the thread that takes the result looks for it, as read does. Over transports without latency, the read is
  /// over when this returns. The first read of a block may wait for a piece of the table. Needs
  /// <farmem/pool/operation.h>.
  template <class T>
  [[nodiscard]] pool_operation<T> read_async(const pool_ptr<T>& p);

  /// Makes one one-sided read at the place that the pointer names, and reports how it ended. Corrects nothing.
  template <class T>
  [[nodiscard]] pool_read direct_read(const pool_ptr<T>& p, T& value) noexcept {
    check_type<T>();
    return direct_read_into(p.address(), bytes_of(value));
  }
  /// As direct_read, for bytes.
  [[nodiscard]] pool_read direct_read_into(pool_address p, std::span<std::byte> to) noexcept;
  /// Reads the whole block one-sidedly and looks for the object by its identity (ScanRead of CoRM). Corrects `p`.
  /// O(block).
  template <class T>
  [[nodiscard]] pool_read scan_read(pool_ptr<T>& p, T& value) {
    check_type<T>();
    return scan_read_into(p.address(), bytes_of(value));
  }
  /// As scan_read, for bytes.
  [[nodiscard]] pool_read scan_read_into(pool_address& p, std::span<std::byte> to);
  /// Reads the object by a message to the agent. Corrects `p`.
  template <class T>
  [[nodiscard]] T rpc_read(pool_ptr<T>& p) {
    check_type<T>();
    T value;
    if (const errc e = rpc_read_into(p.address(), bytes_of(value)); e != errc::ok)
      throw error(e, describe(p.address(), e));
    return value;
  }
  /// As rpc_read, for bytes and without exceptions.
  errc rpc_read_into(pool_address& p, std::span<std::byte> to) noexcept;

  /// Replaces the value of the object, which keeps its size. One message to the agent. Corrects `p`.
  template <class T>
  void write(pool_ptr<T>& p, const T& value) {
    check_type<T>();
    write_bytes(p.address(), bytes_of(value));
  }
  /// As write, for bytes.
  void write_bytes(pool_address& p, std::span<const std::byte> payload) { value_or_throw(try_write_bytes(p, payload)); }
  /// As write_bytes, without exceptions.
  [[nodiscard]] result<void> try_write_bytes(pool_address& p, std::span<const std::byte> payload);

  /// The value of the object with its version, for write_if. As read. Takes a message where the agent has to be asked.
  /// Throws as read, and unsupported.
  template <class T>
  [[nodiscard]] pool_versioned<T> read_versioned(pool_ptr<T>& p) {
    return value_or_throw(try_read_versioned(p));
  }
  /// As read_versioned, without exceptions.
  template <class T>
  [[nodiscard]] result<pool_versioned<T>> try_read_versioned(pool_ptr<T>& p) {
    check_type<T>();
    pool_versioned<T> v;
    if (const errc e = read_versioned_into(p.address(), bytes_of(v.value), v.version); e != errc::ok)
      return fail(e, describe(p.address(), e));
    return v;
  }
  /// As read_versioned, for an object of exactly `to.size()` bytes. After an error, the contents of `to` and the version
  /// are unspecified.
  errc read_versioned_into(pool_address& p, std::span<std::byte> to, pool_version& version) noexcept;
  /// Replaces the value of the object if it still has that version, and returns the version that it has then. Nobody
  /// else has changed the object in between. Otherwise throws conflict, and nothing was changed. One message to the
  /// agent. Corrects `p`.
  ///
  /// If it ends with timed_out, it was made before the call returned, or it is never made. The same write_if once more
  /// tells: it succeeds if the first was not made. If it ends with conflict, the first was made, or somebody else has
  /// changed the object; only the value says which. Versions of a restarted agent need no care: pointers of before fail
  /// with agent_lost.
  template <class T>
  pool_version write_if(pool_ptr<T>& p, pool_version version, const T& value) {
    return value_or_throw(try_write_if(p, version, value));
  }
  /// As write_if, without exceptions.
  template <class T>
  [[nodiscard]] result<pool_version> try_write_if(pool_ptr<T>& p, pool_version version, const T& value) {
    check_type<T>();
    return try_write_bytes_if(p.address(), version, bytes_of(value));
  }
  /// As write_if, for bytes.
  pool_version write_bytes_if(pool_address& p, pool_version version, std::span<const std::byte> payload) {
    return value_or_throw(try_write_bytes_if(p, version, payload));
  }
  /// As write_bytes_if, without exceptions.
  [[nodiscard]] result<pool_version> try_write_bytes_if(pool_address& p, pool_version version,
                                                        std::span<const std::byte> payload);

  /// Frees the object. From then on, every use of a pointer to it ends with not_found. One message to the agent.
  template <class T>
  void free(const pool_ptr<T>& p) {
    free(p.address());
  }
  /// As the other free.
  void free(const pool_address& p) { value_or_throw(try_free(p)); }
  /// As free, without exceptions.
  [[nodiscard]] result<void> try_free(const pool_address& p);

  /// The object expires `after` from now, whatever was said before. One message to the agent, which counts from when it
  /// makes the change, by its own clock, in ms and rounded up. Neither writes nor compaction nor release change the time.
  ///
  /// From its time on, every call that takes a message ends with not_found, as if the object had been freed. The agent
  /// frees it soon afterwards, and a one-sided read may succeed until then. If the agent is not overloaded, that takes at
  /// most 20 ms, and some microseconds for each other object whose time has come. Nobody has to ask for it.
  ///
  /// Throws as free, invalid_argument if `after` is not positive or longer than 365 days, and unsupported. If it ends with
  /// timed_out or disconnected: as changes of objects do.
  template <class T>
  void expire_after(const pool_ptr<T>& p, duration after) {
    expire_after(p.address(), after);
  }
  /// As the other expire_after.
  void expire_after(const pool_address& p, duration after) { value_or_throw(try_expire_after(p, after)); }
  /// As expire_after, without exceptions.
  [[nodiscard]] result<void> try_expire_after(const pool_address& p, duration after);
  /// The object does not expire any more. Has no effect on one that does not. Otherwise as expire_after.
  template <class T>
  void keep(const pool_ptr<T>& p) {
    keep(p.address());
  }
  /// As the other keep.
  void keep(const pool_address& p) { value_or_throw(try_keep(p)); }
  /// As keep, without exceptions.
  [[nodiscard]] result<void> try_keep(const pool_address& p);

  /// Whether the pointer is an old one: compaction has moved its object out of the virtual block that it was born in, and
  /// that block cannot be used again as long as the object has this identity (CoRM, section 3.3). Reads through an old
  /// pointer cost nothing more. release gives the object a new identity. Compaction may change the answer at any time. One
  /// one-sided read of 8 bytes; says not_found if the block is gone, and nothing about whether the object is.
  template <class T>
  [[nodiscard]] bool is_old(const pool_ptr<T>& p) {
    return is_old(p.address());
  }
  /// As the other is_old.
  [[nodiscard]] bool is_old(const pool_address& p) { return value_or_throw(try_is_old(p)); }
  /// As is_old, without exceptions.
  [[nodiscard]] result<bool> try_is_old(const pool_address& p);

  /// Gives the object an identity of the block that it lives in now (ReleasePtr of CoRM). The block that it was born in
  /// can be reused then. `p` is a pointer to the new identity afterwards, and not an old one. All copies of the old
  /// pointer become invalid, so no other code may hold one. Has no effect through a pointer that is not old. One
  /// message to the agent.
  template <class T>
  void release(pool_ptr<T>& p) {
    release(p.address());
  }
  /// As the other release.
  void release(pool_address& p) { value_or_throw(try_release(p)); }
  /// As release, without exceptions.
  [[nodiscard]] result<void> try_release(pool_address& p);

  /// The next objects of the pool, of up to `most`, and moves the cursor on: `for (fm::pool_cursor c; !c.done;) for (auto&
  /// o : pool.list(c)) ...`. May give none though there are more. An object that is there all the while, with one
  /// identity, comes exactly once, however compaction moves it. One that is made, freed or released meanwhile may come or
  /// not; a pointer that was given may be freed by then. One message, of bounded work for the agent. Throws errors of
  /// agents, and invalid_argument if the cursor is none of this pool or `most` is 0.
  [[nodiscard]] std::vector<pool_listing> list(pool_cursor& cursor, std::size_t most = 1024) {
    return value_or_throw(try_list(cursor, most));
  }
  /// As list, without exceptions. After an error, the cursor is where it was.
  [[nodiscard]] result<std::vector<pool_listing>> try_list(pool_cursor& cursor, std::size_t most = 1024);

  // ---- names ----
  // A pool has up to 1024 names of 1 to 47 bytes, so that processes find a first object, such as the root of an index.
  // The agent that is first in pool_options::agents keeps them, so all processes name the same one first. Names live as
  // long as the pool on that agent. A name keeps no object alive and does not follow release. One message each.

  /// Gives the object a name. Throws conflict, as `how` says, agent_full if there are too many names, and
  /// invalid_argument if the name cannot be one. If it ends with timed_out or disconnected: as changes of objects do.
  template <class T>
  void bind(std::string_view name, const pool_ptr<T>& p, pool_bind how = pool_bind::create) {
    bind(name, p.address(), how);
  }
  /// As the other bind.
  void bind(std::string_view name, const pool_address& p, pool_bind how = pool_bind::create) {
    value_or_throw(try_bind(name, p, how));
  }
  /// As bind, without exceptions.
  [[nodiscard]] result<void> try_bind(std::string_view name, const pool_address& p, pool_bind how = pool_bind::create);
  /// The object of that name, which the caller knows to be a T; it may have been freed. Throws not_found.
  template <class T>
  [[nodiscard]] pool_ptr<T> lookup(std::string_view name) {
    return value_or_throw(try_lookup<T>(name));
  }
  /// As lookup, without exceptions.
  template <class T>
  [[nodiscard]] result<pool_ptr<T>> try_lookup(std::string_view name) {
    return try_lookup_address(name).map([](const pool_address& a) { return pool_ptr<T>(a); });
  }
  /// As try_lookup, without the type.
  [[nodiscard]] result<pool_address> try_lookup_address(std::string_view name);
  /// Takes the name away. The object stays. Throws not_found.
  void unbind(std::string_view name) { value_or_throw(try_unbind(name)); }
  /// As unbind, without exceptions.
  [[nodiscard]] result<void> try_unbind(std::string_view name);

  /// Compacts all classes on all agents, in bounded steps, and returns when no pair of blocks is left to merge. If no
  /// process allocates or frees meanwhile, afterwards no two blocks that may be merged have objects that would fit into
  /// one. While others read or write by call, nine tenths of the agents' time are theirs. Then it waits for 20 ms at most
  /// until nobody can be reading emptied blocks any more, and their memory is free. Throws errors of agents.
  pool_compaction compact();

  /// Statistics of this process and of the agents. Throws when an agent does not answer.
  [[nodiscard]] pool_stats stats() const;
  /// Makes every agent compare its records with each other and with the bytes that readers see, checksums included.
  /// O(bytes). Throws errors of agents.
  [[nodiscard]] pool_report verify() const;

  /// The tenant that owns the pool, to hand to other processes. O(1).
  [[nodiscard]] const pool_tenant& tenant() const noexcept;
  /// Bytes of the largest object that every agent of the pool takes. O(agents).
  [[nodiscard]] std::uint64_t object_bytes_max() const noexcept;
  /// Breaks the connections to all agents, as a network failure would. For tests.
  void drop_connections() noexcept;

 private:
  template <class T>
  static constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T>, "an object of a pool is bytes: its type must be trivially copyable");
    static_assert(std::is_default_constructible_v<T>, "reading makes a T to read into");
    static_assert(!detail::is_weak<T>, "an fm::weak means nothing in another process: use fm::pool_ptr");
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

  template <class T>
  friend class pool_operation;
  std::shared_ptr<detail::pool_transfer> start_read(const pool_address& p, std::size_t bytes);
  /// The outcome; the bytes are in `t` then.
  errc finish_read(detail::pool_transfer& t) noexcept;

  class impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace fm

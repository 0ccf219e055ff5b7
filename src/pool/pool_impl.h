// The inside of fm::pool, for the files of this folder that define its members: the agents, and which of them a pointer
// is for. The list of agents is fixed once the pool is open, and empty once it is closed.
#pragma once

#include <farmem/pool/pool.h>

#include "reader.h"

namespace fm {

namespace pool_detail {

inline protocol::pool_object object_of(const pool_address& p) {
  return {p.block(), p.generation(), p.index(), p.hint(), 0};
}
/// `w` is where the object of `p` is now, as the agent says.
inline void take_where(agent_client& a, const protocol::pool_where& w, pool_address& p) {
  p = pool_address::make(a.instance(), w.object.vblock, w.object.generation, w.object.index, w.object.slot);
  a.learn_word(w.object.vblock, w.word);
}
constexpr const char* closed = "the pool was closed";
/// "object INSTANCE:BLOCK:INDEX:GENERATION".
std::string text_of(const pool_address& p);

}  // namespace pool_detail

class pool::impl {
 public:
  explicit impl(pool_options o);

  /// The agent that the pointer is of; null: none.
  pool_detail::agent_client* agent_of(const pool_address& p) const noexcept {
    for (const auto& a : agents)
      if (a->instance() == p.instance()) return a.get();
    return nullptr;
  }
  /// The error for a pointer that is of none of the agents' pools: their objects are lost if the pointer is of an earlier
  /// instance of this pool.
  [[nodiscard]] errc foreign(const pool_address& p) const noexcept;
  [[nodiscard]] pool_detail::reader reader_of(pool_detail::agent_client& a) const noexcept {
    return {a, options.trust_lines, a.patience()};
  }
  /// The same, for a call that has begun.
  [[nodiscard]] pool_detail::reader reader_of(pool_detail::agent_client& a,
                                              const pool_detail::due& until) const noexcept {
    return {a, options.trust_lines, until};
  }

  /// The agent that keeps names. Errors: invalid_argument if it cannot be one; unsupported.
  [[nodiscard]] result<pool_detail::agent_client*> keeper_of_name(std::string_view name) const;

  /// Until an object expires, in ms, for the agents' messages; 0 for no time. Errors: invalid_argument; unsupported, if
  /// one of the agents knows no such thing.
  [[nodiscard]] result<std::uint64_t> expiry_of(const pool_alloc_options& how) const;

  /// Throws cancelled after pool::close.
  void require_open() const {
    if (agents.empty()) throw error(errc::cancelled, pool_detail::closed);
  }

  pool_options options;
  std::unique_ptr<fabric::service> local;      ///< outlives the sessions with it
  detail::agent_events events;                 ///< outlives those who post
  std::unique_ptr<pool_detail::copies> parts;  ///< of a pool with replicas; outlives the agents
  std::vector<std::unique_ptr<pool_detail::agent_client>> agents;
  std::atomic<std::uint32_t> next{0};

 private:
  void check() const;
  void open();
  void open_replicated();
};

}  // namespace fm

// One-sided reads of objects: one attempt at a place, and what corrects it. Nothing here keeps state but the caches of
// agent_client. An object is returned only when its checksum or its versions show that nobody changed it meanwhile.
// fm::pool calls it, from any thread.
#pragma once

#include <farmem/pool/pool.h>

#include "agent_client.h"
#include "probe.h"

namespace fm::pool_detail {

/// Where a read's bytes go: a buffer for an object of exactly its size, or a vector for one of any.
struct target {
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::vector<std::byte>* any = nullptr;
  bool wants_version = false;  ///< also of the agent, which must speak version 3.1
  std::uint64_t version = 0;   ///< of what was read, if the agent was not asked or a version is wanted
};

inline blocks::identity identity_of(const pool_address& p) noexcept { return {p.block(), p.generation(), p.index()}; }

class reader {
 public:
  /// `until` is of one call of the program.
  reader(agent_client& agent, bool trust_lines, const due& until)
      : agent_(agent), trust_lines_(trust_lines), until_(until) {}

  /// The cached word of a virtual block, or 0; see agent_client::word.
  [[nodiscard]] std::uint64_t word_of(std::uint32_t vblock) noexcept { return agent_.word(vblock, until_); }
  /// One read at `slot` of the frame that `word` names.
  [[nodiscard]] pool_read attempt(std::uint64_t word, std::uint32_t slot, const blocks::identity& id,
                                  target& to) noexcept;
  /// Looks at `slots` slots from `slot` on, in one read. True: the object is in what `slot` is then, and `to` has it if
  /// `how` is ok.
  [[nodiscard]] bool look(std::uint64_t word, std::uint32_t& slot, std::uint32_t slots, const blocks::identity& id,
                          target& to, pool_read& how) noexcept;
  /// The whole of `read`: direct, corrected, asked. `p` is corrected. `text` is for errors that the agent explains.
  errc read(pool_address& p, target& to, std::string* text) noexcept;
  /// The rest of `read`, after an attempt with that word that ended with `how`.
  errc settle(pool_address& p, target& to, std::uint64_t word, pool_read how, std::string* text) noexcept;
  pool_read direct(pool_address p, target& to) noexcept;
  pool_read scan(pool_address& p, target& to);
  errc ask(pool_address& p, target& to, std::string* text) noexcept;

  // ---- an attempt in pieces, for those who make several at a time ----
  /// Where it goes to; anything but ok ends it. Learns the region if need be, so not in a section.
  [[nodiscard]] pool_read prepare(placement& q, std::uint64_t word, std::uint32_t slot, const blocks::identity& id,
                                  const target& to) noexcept;
  /// Its requests. `staged` has staging_bytes().
  static void fill(probe& q, const target& to, std::byte* staged) noexcept;
  /// The attempt's result, when all requests are done without an error, and tenure was held.
  [[nodiscard]] pool_read finish(probe& q, target& to) noexcept;
  [[nodiscard]] bool tenure_held(std::uint32_t tenure) noexcept;

 private:
  [[nodiscard]] pool_read judged(probe& q, target& to) noexcept;
  [[nodiscard]] pool_read judge(const blocks::object_header& h, const blocks::identity& id, std::uint32_t size_class,
                                const target& to) const noexcept;
  [[nodiscard]] pool_read attempt_mapped(blocks::place at, std::uint32_t offset, std::uint32_t size_class,
                                         const blocks::identity& id, target& to) noexcept;
  [[nodiscard]] bool post(request_set& set) noexcept;
  /// look() as far as it is worth it. Finds what a merge has put beside its slot.
  [[nodiscard]] bool seek(std::uint64_t word, std::uint32_t& slot, const blocks::identity& id, target& to,
                          pool_read& how) noexcept;
  /// The same where the agent's memory is mapped: by loads of headers, of all slots. A thousand of them take some microseconds,
  /// and the agent may be in a step of compaction, which takes longer.
  [[nodiscard]] bool seek_mapped(std::uint64_t word, std::uint32_t& slot, const blocks::identity& id, target& to,
                                 pool_read& how) noexcept;
  errc correct(pool_address& p, target& to, std::uint64_t word, pool_read how, std::string* text) noexcept;

  agent_client& agent_;
  const bool trust_lines_;
  due until_;
};

}  // namespace fm::pool_detail

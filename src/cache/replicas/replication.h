// A new member of a tablet's replica set, beside the program. Which one, and when, is decided in members.h.
//
//   1  The new member is told that it is a backup, and forgets what it had of the tablet, if anything (a member that was
//      dropped while it joined).
//   2  The set is stored with the member joining: every batch that is opened from now on goes there as well.
//   3  Every batch that the primary was sent before is settled. An object that was copied out before step 2 is in the
//      primary's entries now, or is sent to both.
//   4  The primary's entries are read, and what they name is read one-sidedly and sent as imports, which give way to what
//      the member has already.
//   5  The member's entries are read: it must have every slot that the primary had in step 4.
//   6  The set is stored with the member on probation: no batch counts as stored without it. Every batch from before that is
//      settled. If the member missed none, it is whole; otherwise it is dropped.
//
// A tablet at a time, by the collector's thread, between two collections. So no slot is released meanwhile, which an import
// could fill again, and no other set changes.
//
// Home copies are read where the primary has them and sent by this process. The agents could send them to each other, and
// spare it the bytes; but an import must not pass what the owner sends, and the owner's sequence is the order that there
// is.
//
// Invariant owned here: a member that does not have everything is never whole: whatever fails, it is dropped.
#pragma once

#include "base/replica_limits.h"
#include "cache/tablets/replica_set.h"
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

namespace fm::remote {
struct batch;
class agent_session;
}  // namespace fm::remote

namespace fm::detail {

class object_cache;

class replication {
 public:
  /// `stopping`: the heap closes, and nothing is waited for any more.
  replication(object_cache& cache, const std::atomic<bool>& stopping) noexcept;
  ~replication();

  /// The agent becomes a backup of the tablet, with everything. False: nothing has happened. Waits for agents.
  bool join(std::uint32_t tablet, std::uint32_t member);

  struct counters {
    std::atomic<std::uint64_t> joined{0}, failed{0}, objects{0}, bytes{0};
  } counts;

 private:
  struct stored {
    home_address at;
    slot_t slot;
  };
  struct imports;  ///< batches on their way to the new member
  void abandon(std::unique_ptr<imports> given_up) noexcept;

  /// What went wrong; null: nothing did.
  const char* copy(std::uint32_t tablet, remote::agent_session& from, remote::agent_session& to);
  bool read_entries(std::uint32_t tablet, remote::agent_session& of);
  bool list(std::uint32_t tablet, remote::agent_session& from);
  /// What begins at all_[i], as far as one read reaches; the next one to be read.
  std::size_t copy_some(std::size_t i, remote::agent_session& from, imports& to);
  bool copy_one(slot_t slot, remote::agent_session& from, imports& to);
  bool has_all(std::uint32_t tablet, remote::agent_session& of);
  /// The heap closes, or an agent is lost.
  [[nodiscard]] bool ends() const noexcept;

  object_cache& cache_;
  const std::atomic<bool>& stopping_;
  std::vector<stored> all_;
  std::vector<word_t> entries_;
  std::vector<std::byte> buffer_;
  std::vector<std::unique_ptr<imports>> abandoned_;  ///< batches of them may be on their way
};

}  // namespace fm::detail

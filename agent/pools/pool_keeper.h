// The thread of a pool with replicas on one of its two agents, `fm-replica`. At the primary it finds a backup, teaches it
// what there is, sends it what changes, and asks for its promises. At the backup it waits for the primary to fall silent.
// At both it asks the arbiter who goes on.
//
//   no backup ──open_backup──► teaching: an image beside all changes
//             ──the image is out──► settling: only what the backup confirms counts
//             ──all is confirmed──► the arbiter is told ──► backup_joined ──► following
//   any of them ──the backup is silent, full, or has forgotten──► no backup, if nobody else goes on
//   following ──the backup's agent is drained──► leave_backup ──► no backup, and another one is looked for
//   following ──the pool has ended──► leave_backup, until it is heard
//   following ──this agent is drained──► leaving: nothing is served
//             ──leases are over──► take_over ──► the backup is the primary
//
// An agent that is drained leaves only if a third one could take its place. Until that has everything there is one copy.
//
// Invariants owned here
//   - The arbiter's record names a backup only if that has confirmed all that ever counted. So whoever is told to go on
//     has it.
//   - While it is not known what the arbiter's record says, nothing counts that the backup has not confirmed, and a
//     backup promises nothing.
//   - A backup begins to take over only from silence, or because an administrator or a primary that leaves says so.
//   - A primary never leaves to a backup that it has told to go. So a backup that has forgotten the pool after that has not
//     served it, nor given it to anybody else.
//   - A copy without an arbiter goes when neither its primary nor a client has asked for it for as long as a pool stays that
//     nobody has open. It never goes when it was told to take over.
// The thread holds the pool's structure for bounded steps, and no lock while it waits for anybody. `stop` and the calls of
// sessions and of the administrator only leave word. Thread-safe.
#pragma once

#include "agent/base/arbiter.h"
#include "agent/base/environment.h"
#include "backup_link.h"
#include "pool.h"

#include <condition_variable>
#include <string>
#include <thread>
#include <vector>

namespace fm::agent {

class pool_keeper {
 public:
  /// `start` begins.
  pool_keeper(environment& agent, pool& of);
  pool_keeper(const pool_keeper&) = delete;
  pool_keeper& operator=(const pool_keeper&) = delete;
  ~pool_keeper();

  /// Once, when the pool is complete. Throws fm::error (out_of_memory).
  void start();
  /// The thread ends soon. `ended`: and so does the pool, whose primary this is, and the backup is told.
  void stop(bool ended) noexcept;
  /// The thread has done all that it had to, or never began: nobody waits who lets the keeper go. The agent is woken then.
  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// The same, and nobody is told anything that takes long: the agent ends.
  void hurry() noexcept {
    hurries_.store(true);
    stop(false);
  }
  /// Agents that may become the backup, in the order in which they are tried; of a client that opens the pool, or tries to.
  void may_ask(std::vector<std::string> urls);
  /// An administrator says that this agent goes on, and that the other one does not. `term` is the one that both are in.
  /// Returns a text that says what this led to; waits for a second at most.
  [[nodiscard]] std::string survive(std::uint64_t term);
  /// Address of the backup that has all that counts; empty: there is none.
  [[nodiscard]] std::string backup() const;
  [[nodiscard]] bool has_backup() const noexcept { return has_backup_.load(std::memory_order_acquire); }
  /// Of the pool's record at the arbiter.
  [[nodiscard]] std::string record_name() const;

 private:
  enum class stage : std::uint8_t { none, teaching, settling, following };

  void run() noexcept;
  void wait_for_bell(std::uint32_t seen, time_point until) noexcept;
  bool step(time_point now, time_point& until);
  bool lead(time_point now, time_point& until);
  bool follow(time_point now, time_point& until);
  /// Of a backup, without an arbiter: nobody has asked for it for too long, and it is none any more.
  bool give_up(bool is_silent);
  bool hand_over(time_point now, time_point& until);
  /// What lead and hand_over do with the backup's answers.
  backup_link::news hear_backup();
  [[nodiscard]] std::string why_lost(const backup_link::news& news) const;
  /// Another agent than the two could be a backup, as far as is known.
  [[nodiscard]] bool has_third(time_point now);
  /// What a backup is opened with.
  [[nodiscard]] open_backup_body hello() const;
  void find_backup(time_point now, time_point& until);
  bool teach();
  bool send_records();
  void join_backup(time_point now, time_point& until);
  void tell_backup();
  void lose_backup(time_point now, const std::string& why, time_point& until);
  void drop_link(bool tell);
  /// Says that the pool has ended, for as long as it takes: without an arbiter nobody else would.
  void tell_end();
  void end(const char* why);
  /// Asks the arbiter. Without one, `free` changes are made, and others only if an administrator has said so.
  errc decide(const pair_record& before, const pair_record& next, bool free, pair_record& now);
  /// An administrator wants that term to be beaten here.
  [[nodiscard]] bool is_by_hand(std::uint64_t term) const;
  void ring() noexcept { replicas_.log.ring(); }
  void set_backup(const std::string& url);

  environment& agent_;
  pool& pool_;
  pool_replication& replicas_;
  const std::uint64_t self_;
  const std::uint32_t region_bytes_;
  std::atomic<bool> stop_{false}, ended_{false}, hurries_{false}, done_{true};

  mutable std::mutex mutex_;  ///< what others leave here
  std::condition_variable decided_;
  std::vector<std::string> urls_;
  std::uint64_t by_hand_ = 0;  ///< the term that an administrator wants to be beaten
  std::string backup_url_;
  std::atomic<bool> has_backup_{false};
  time_point asked_for_{};  ///< by a client, on the agent's clock

  // ---- of the thread ----
  stage stage_ = stage::none;
  std::unique_ptr<backup_link> link_;
  std::size_t next_url_ = 0;
  std::size_t tried_ = 0;           ///< of the URLs, since one was taken
  time_point try_at_{};             ///< not before
  std::uint64_t third_beside_ = 0;  ///< the backup beside which a third agent was looked for
  std::size_t next_third_ = 0;      ///< of the URLs
  time_point third_until_{};        ///< what was found is not looked for again
  bool has_third_ = false;
  time_point promised_{};         ///< when what the backup has answered last was sent
  time_point heard_{};            ///< the same, later by what this thread was late itself: silence counts from here
  bool told_ = false;             ///< the backup knows that it is one
  bool lets_go_ = false;          ///< the backup was told that it is none any more, because it leaves
  bool let_go_ = false;           ///< the same, but maybe on a connection that has broken since
  bool left_ = false;             ///< and it has answered, or has forgotten
  time_point stayed_{};           ///< when this agent was last found not to be drained, or became the primary
  time_point leases_until_{};     ///< of a primary that leaves: then nobody reads from it
  bool asked_over_ = false;       ///< and the backup was told to take over
  bool ever_asked_over_ = false;  ///< the same, but maybe on a connection that has broken since
  bool takes_over_ = false;       ///< and it has answered that it does
  time_point round_at_{};         ///< the last one
  time_point followed_{};         ///< when the primary was last not silent, on the agent's clock
  std::uint64_t settled_at_ = 0;  ///< what the backup has to confirm before it joins
  pair_record record_;            ///< what the arbiter's is, as far as this agent has set it
  bool registered_ = false;       ///< the arbiter knows of the pool
  bool asks_ = false;             ///< the arbiter was asked whether this agent goes on, and what it says is not known
  bool image_begun_ = false;
  bool warned_ = false;             ///< that nobody says who goes on
  std::vector<std::byte> records_;  ///< that are being gathered
  std::thread thread_;
};

}  // namespace fm::agent

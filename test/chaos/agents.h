// The agents of a chaos round: real processes at addresses that stay the same when an agent is started again. The test
// notes which of them died or hung for so long that they may count as dead.
//
// Invariant: `died` is set before the signal is sent, so an error that the death causes is never seen before the reason.
// The director of a round calls the members that send signals; worker threads only read `died`.
#pragma once

#include <farmem/farmem.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "partitions.h"
#include "program/live_agent.h"

namespace chaos {

class chaos_agent {
 public:
  chaos_agent(const std::string& transport, std::vector<std::string> settings)
      : transport_(transport),
        settings_(std::move(settings)),
        live_(std::make_unique<agent_test::live_agent>(settings_)) {
    url_ = live_->url(transport_);
  }

  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  /// Objects of this agent may be lost in this round.
  [[nodiscard]] bool died() const noexcept { return died_.load(); }

  void kill() {
    died_.store(true);
    was_stopped_ = false;
    live_->program->end(SIGKILL);
    running_ = false;
  }
  /// Stops the process, does `meanwhile()`, and lets it go on. If that took more than `harmless`, the heap may have given
  /// the agent up.
  template <class Meanwhile>
  void stop(fm::duration harmless, Meanwhile&& meanwhile) {
    const fm::time_point deadline = fm::clock::now() + harmless;
    live_->program->send(SIGSTOP);
    meanwhile();
    if (fm::clock::now() > deadline) died_.store(true), was_stopped_ = true;
    live_->program->send(SIGCONT);
  }
  /// Drops packets to or from it while `meanwhile()` runs. If that took more than `harmless`, the heap may have given the
  /// agent up. Over tcp, in a network of the test's own.
  template <class Meanwhile>
  void cut_off(cut which, fm::duration harmless, Meanwhile&& meanwhile) {
    const fm::time_point deadline = fm::clock::now() + harmless;
    network::drop(live_->url("tcp"), which);
    meanwhile();
    if (fm::clock::now() > deadline) died_.store(true), was_stopped_ = true;
    network::mend();
  }
  /// Starts the program again at the same address. Its memory is another incarnation's.
  void start() {
    live_->start_again();
    running_ = true;
  }
  /// It may have died because it was stopped, or cut off, for too long.
  [[nodiscard]] bool was_stopped() const noexcept { return was_stopped_; }
  [[nodiscard]] bool running() const noexcept { return running_; }
  /// A new round: an agent that runs is as good as new for a new heap.
  void forget() {
    if (!running_) start();
    died_.store(false);
  }

 private:
  std::string transport_;
  std::vector<std::string> settings_;
  std::unique_ptr<agent_test::live_agent> live_;
  std::string url_;
  bool running_ = true, was_stopped_ = false;
  std::atomic<bool> died_{false};
};

}  // namespace chaos

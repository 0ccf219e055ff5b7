// The agents of a simulated program, and how its heaps get others beside it.
#pragma once

#include <farmem/farmem.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/service/service.h"
#include "plan.h"

namespace fm::sim {

struct agent {
  std::string host;
  std::unique_ptr<fm::agent::store> store;
};
std::unique_ptr<fm::agent::store> make_store(const plan& p, const std::string& name);

/// Gives the heaps other agents, on a thread of its own, as often as the plan says.
class coming_and_going {
 public:
  /// `agents` has room for all that come. `failed` ends the run.
  coming_and_going(const plan& p, std::vector<agent>& agents, std::vector<heap*> heaps,
                   std::function<void(const std::exception&)> failed)
      : plan_(p),
        agents_(agents),
        heaps_(std::move(heaps)),
        failed_(std::move(failed)),
        replicas_(p.replicas),
        thread_([this] { run(); }) {}
  coming_and_going(const coming_and_going&) = delete;
  coming_and_going& operator=(const coming_and_going&) = delete;
  ~coming_and_going() { end(); }
  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run();
  void come();
  void go();
  void other_replicas();
  void other_cache();
  void look_at_load();

  const plan& plan_;
  std::vector<agent>& agents_;
  const std::vector<heap*> heaps_;
  const std::function<void(const std::exception&)> failed_;
  std::uint64_t replicas_;
  std::vector<std::size_t> there_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace fm::sim

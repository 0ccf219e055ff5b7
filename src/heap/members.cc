// Agents that come and go while a heap is open, and how many of them store an object; members of heap_core.
//
// Invariant: an agent is added by the collector's thread, between two collections. A collection has numbered the agents
// when it began.
#include "agent/embedded/embedded.h"
#include "base/log.h"
#include "base/replica_limits.h"
#include "cache/tablets/replica_set.h"
#include "heap/heap_core.h"
#include <farmem/detail/barriers/section_break.h>
#include <fmt/format.h>

#include <algorithm>

namespace fm::detail {

std::unique_ptr<remote::agent_session> heap_core::open_session(const std::string& url) {
  if (url.starts_with("local:") && !local_)
    local_ = agent::start_embedded({agent::embedded_for::heap, options_.local_memory, options_.local_region});
  const auto number = static_cast<std::uint32_t>(links_.size());
  contexts_.push_back(std::make_unique<link_context>(link_context{this, number, url}));
  session_options_.context = contexts_.back().get();
  session_options_.in_process = local_.get();
  session_options_.heap_id[1] += 1;  // the same agent may be named twice
  try {
    return remote::agent_session::open(url, session_options_);
  } catch (...) {
    contexts_.pop_back();
    throw;
  }
}

remote::agent_session* heap_core::find_agent(const std::string& url) noexcept {
  for (const auto& link : links_)
    if (!link->lost() && link->url() == url) return link.get();
  return nullptr;
}

std::size_t heap_core::agents_that_stay() const noexcept {
  return static_cast<std::size_t>(std::count_if(links_.begin(), links_.end(),
                                                [](const auto& link) { return !link->lost() && !link->is_leaving(); }));
}

std::vector<std::string> heap_core::agents() const {
  std::vector<std::string> all;
  for (const auto& link : links_)
    if (!link->lost()) all.push_back(link->url());
  return all;
}

void heap_core::add_agent(const std::string& url) {
  const section_break outside;
  section_break::require_left("adding an agent");
  const std::lock_guard one_at_a_time(adding_mutex_);
  if (closing_.load()) throw error(errc::heap_closed, "the heap is closed");
  if (find_agent(url)) throw error(errc::invalid_argument, fmt::format("{} is an agent of the heap already", url));
  if (links_.size() == limits::agents_max)
    throw error(errc::invalid_argument,
                fmt::format("{}: the heap has had {} agents, and counts those that it has left", url, links_.size()));
  std::unique_ptr<remote::agent_session> session = open_session(url);
  if (const std::uint64_t region = session->region_bytes(), most = cache_->bytes_at_agents_max(); region / 2 < most) {
    session.reset();
    contexts_.pop_back();
    throw error(errc::invalid_argument,
                fmt::format("{} has regions of {} bytes, and objects of this heap may have {}: regions twice as large "
                            "are needed",
                            url, region, most));
  }
  const auto add = [&] {
    const std::lock_guard lock(members_mutex_);
    cache_->expect_agent(*session, [&] { links_.push_back(std::move(session)); });
    collector_->members().look_at_room();
    if (!(*(links_.end() - 1))->lost()) return;
    cache_->note_lost_agent();  // it was lost before anybody could be told
    collector_->agent_lost();
  };
  if (!collector_->run_between(add)) throw error(errc::heap_closed, "the heap was closed while an agent was added");
  tell(url, agent_change::added);
  collector_->look_at_members();
}

void heap_core::remove_agent(const std::string& url, duration within) {
  const section_break outside;  // tablets are handed over when sections have ended
  section_break::require_left("removing an agent");
  const time_point deadline = clock::now() + within;
  std::unique_lock lock(members_mutex_);
  remote::agent_session* const link = find_agent(url);
  if (!link) throw error(errc::invalid_argument, fmt::format("{} is no agent of the heap", url));
  if (!link->can_be_left())
    throw error(errc::unsupported, fmt::format("{} is too old to be left while the heap is open", url));
  const std::size_t others = agents_that_stay() - (link->is_leaving() ? 0 : 1), needed = cache_->replicas();
  if (others < needed)
    throw error(errc::invalid_argument,
                fmt::format("without {} the heap has {} agents, and each object is stored on {}", url, others, needed));
  bool is_going = !link->begin_leaving();
  collector_->look_at_members();
  // It is lost to the heap at once, and gone when the agent has been told.
  const auto has_ended = [&] { return link->left() ? link->is_gone() : link->lost(); };
  const std::uint32_t kept = link->times_kept();
  const auto is_over = [&] { return clock::now() >= deadline || link->times_kept() != kept; };
  while (!has_ended() && !closing_.load()) {
    if (!is_going && is_over() && link->end_leaving()) break;
    is_going = is_going || is_over();  // too late to stay: it is a moment
    members_changed_.wait_for(lock, std::chrono::milliseconds(is_going ? 1 : 100));
  }
  if (link->lost()) return;
  if (closing_.load()) throw error(errc::heap_closed, "the heap was closed while an agent was being left");
  if (link->times_kept() != kept) throw error(errc::cancelled, fmt::format("{} is kept", url));
  std::uint64_t tablets = 0;
  for (const std::uint32_t t : cache_->slots().tablets()) {
    const replica_set set = replica_set::of_tablet(t);
    for (std::uint32_t a = 0; a < links_.size(); ++a) tablets += links_[a].get() == link && set.has(a);
  }
  throw error(errc::timed_out, fmt::format("{} still stores objects of {} tablets, and stays", url, tablets));
}

void heap_core::keep_agent(const std::string& url) {
  const std::lock_guard lock(members_mutex_);
  remote::agent_session* const link = find_agent(url);
  if (!link) throw error(errc::invalid_argument, fmt::format("{} is no agent of the heap", url));
  link->keep();
  members_changed_.notify_all();
}

void heap_core::set_replicas(std::uint32_t n) {
  const std::lock_guard lock(members_mutex_);
  const std::size_t most = std::min<std::size_t>(agents_that_stay(), limits::replicas_max);
  if (n < options_.min_replicas || n > most)
    throw error(errc::invalid_argument,
                fmt::format("{} replicas: {} to {} are possible, which are min_replicas and the agents that there are",
                            n, options_.min_replicas, most));
  cache_->set_replicas(n);
  session_options_.suspect_within = n > 1 ? options_.suspect_within : duration{};
  for (const auto& link : links_) link->set_suspect_within(session_options_.suspect_within);
  collector_->look_at_members();
}

}  // namespace fm::detail

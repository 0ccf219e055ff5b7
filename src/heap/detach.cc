// Heaps that outlive their process: leaving one at its agents, and taking one over; members of heap_core.
//
// Leaving. Everything goes home, the collector ends, and each agent gets the record (heap_record.h). Only then the
// sessions end, without closing the heap. Whatever fails before leaves the heap open here, and the record is gone as soon
// as anything changes.
//
// Taking over. First all agents are asked for their record: they must have the same one. Then they give the heap to this
// process, in one order for all who try, so that one of two has it in the end. Nothing is changed before everything is
// there that the heap needs here: until then, whoever fails leaves it as it was. Backups that take the place of agents that
// are done without are the exception. They must before a collection begins, and their agents' record is gone with that.
//
// | what would break it | what prevents it |
// |---|---|
// | the owner detaches, one agent does not answer, and the owner goes on; somebody attaches what the others have | the agent that did not answer has no record, and is asked before anybody takes anything |
// | the owner goes on, and its agent is taken from it in the state of then | a record is gone when the heap has changed (heap::changes, agent/heaps/heap.h) |
// | an agent that was left out is added again, and has the name already when the heap is detached | what it had of the same lineage gives way |
// | an agent that was left out comes back with an older record, and is asked first | the record with the largest number counts, and all must have it |
// | a process dies while it attaches, and another one attaches | the record stays until the heap has changed or is claimed, and numbers of batches go on from what the agent has applied |
// | a process claims the heap at some agents, and dies | as with any owner that dies: those free it when its lease ends |
// | two processes have one heap, each of them some agents | each asks for the agents in the record's order, and gives back what it has got |
// | a cycle of the earlier owner has a number that the next one uses again | numbers of cycles go on, too |
//
// What a crash leaves could be attached as well, as of some checkpoint: agents append, so a checkpoint would be a set of
// entries, and no region that one of them names could be given back before the next. That keeps garbage and every old
// version between two checkpoints, which is the heap twice over where most of it changes. It is not built.
#include "base/log.h"
#include "base/replica_limits.h"
#include "heap/heap_core.h"
#include <farmem/detail/barriers/access.h>
#include <farmem/detail/barriers/section_break.h>
#include <farmem/object/object.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace fm::detail {

namespace {

void check_name(const std::string& name, const std::string& secret) {
  const auto fits = [](const std::string& s) {
    return s.size() < protocol::heap_name_bytes && s.find('\0') == std::string::npos;
  };
  if (name.empty() || !fits(name))
    throw error(errc::invalid_argument,
                fmt::format("the name of a heap has {} bytes, 1 to {} without zeros are possible", name.size(),
                            protocol::heap_name_bytes - 1));
  if (!fits(secret))
    throw error(errc::invalid_argument, fmt::format("the secret of heap {} has {} bytes, up to {} without zeros are "
                                                    "possible",
                                                    name, secret.size(), protocol::heap_name_bytes - 1));
}

/// The set with other numbers of agents; `number_of(agent)` is `no_agent` for one that is not there.
constexpr std::uint32_t no_agent = ~0u;
template <class NumberOf>
bool renumber(const replica_set& from, replica_set& to, NumberOf&& number_of) {
  bool first = true;
  const auto add = [&](std::uint32_t agent) {
    const std::uint32_t n = number_of(agent);
    if (n == no_agent) return;
    if (first)
      to.set_primary(n);
    else
      to.add(n);
    first = false;
  };
  add(from.primary());
  from.for_each_whole_backup(add);
  return !first;
}

}  // namespace

// ---- leaving ----

void heap_core::check_nothing_is_here() const {
  if (cache_->pages().count().sided != 0) throw error(errc::timed_out, "objects of the heap are still in use");
  for (const std::uint32_t t : cache_->slots().tablets())
    for (std::uint64_t page = t * pages_per_tablet; page < (t + std::uint64_t{1}) * pages_per_tablet; ++page) {
      if (hit.pages[page].state.load(std::memory_order_acquire) == page_given_back) continue;
      for (slot_t s = page * page_slots; s < (page + 1) * page_slots; ++s)
        if (const word_t w = word_at(s).load(std::memory_order_acquire); word::is_resident(w) || word::is_fetching(w))
          throw error(errc::timed_out,
                      fmt::format("the object of slot {:#x} is still in use: a pin or an open scope has "
                                  "it, or another thread uses the heap",
                                  s));
    }
}

heap_record heap_core::record_of(slot_t root) {
  heap_record r;
  std::random_device device;
  r.number = detached_before_ + 1;
  r.id = std::uint64_t{device()} << 32 | device();
  std::copy(std::begin(lineage_), std::end(lineage_), std::begin(r.lineage));
  r.root = root;
  r.cycles = collector_->cycles_begun();
  r.object_bytes = cache_->bytes_at_agents_max();
  std::vector<std::uint32_t> numbers;
  for (const auto& link : links_) {
    numbers.push_back(link->lost() ? no_agent : static_cast<std::uint32_t>(r.agents.size()));
    if (!link->lost()) r.agents.push_back(link->url());
  }
  for (std::uint32_t n = 1, last = type_count(); n <= last; ++n) r.types.push_back(*find_type(n));
  std::vector<std::uint32_t> tablets = cache_->slots().tablets();
  std::sort(tablets.begin(), tablets.end());
  for (const std::uint32_t t : tablets) {
    const replica_set now = replica_set::of_tablet(t);
    replica_set set;
    if (links_[now.primary()]->lost() || !renumber(now, set, [&](std::uint32_t a) { return numbers[a]; }))
      throw error(errc::agent_lost,
                  fmt::format("{} is lost, and no other agent has its tablets yet", links_[now.primary()]->url()));
    FM_ASSERT(!now.is_joined(), "a member joins within one step of this thread");
    if (!r.tablets.empty() && r.tablets.back().first + r.tablets.back().count == t && r.tablets.back().set == set)
      ++r.tablets.back().count;
    else
      r.tablets.push_back({.first = t, .count = 1, .set = set});
  }
  return r;
}

void heap_core::detach(const detach_options& how, slot_t root) {
  collector_->refuse_notice("detaching a heap");
  const section_break outside;
  section_break::require_left("detaching a heap");
  const time_point deadline = clock::now() + how.within;
  if (closing_.load()) throw error(errc::heap_closed, "the heap is closed");
  check_name(how.name, how.secret);
  if (root == 0) throw error(errc::null_handle, fmt::format("heap {} is detached without a root", how.name));
  if (tablet_info_of(root).heap.load(std::memory_order_acquire) != cache_.get())
    throw error(errc::invalid_argument, fmt::format("the root of heap {} is an object of another heap", how.name));
  for (const auto& link : links_)
    if (!link->lost() && (link->url().starts_with("local:") || !link->can_be_detached()))
      throw error(errc::unsupported,
                  fmt::format("{} cannot keep a heap: it is too old, or ends with this process", link->url()));
  const auto evict = [&] {
    if (const errc e = cache_->evict_all(deadline); e != errc::ok)
      throw error(e, fmt::format("heap {} is not detached: not everything could be written home", how.name));
    check_nothing_is_here();
  };
  evict();
  const auto leave = [&] {
    evict();  // notices may have used the heap
    if (!collector_->members().forget_left())
      throw error(errc::timed_out, "an agent that was the primary of a tablet does not answer that it is not any more");
    const remote::detached_heap left{how.name, how.secret, record_of(root).bytes(), {lineage_[0], lineage_[1]}};
    const auto keep_ms = std::chrono::duration_cast<std::chrono::milliseconds>(how.keep_for).count();
    for (const auto& link : links_) {
      if (link->lost()) continue;
      std::string why;
      const errc e = link->detach_heap(left, static_cast<std::uint64_t>(std::max<std::int64_t>(keep_ms, 0)), why);
      if (e != errc::ok)
        throw error(e, fmt::format("{} does not keep heap {}: {}", link->url(), how.name, why.empty() ? "-" : why));
    }
  };
  if (!collector_->run_last(leave)) throw error(errc::heap_closed, "the heap was closed while it was detached");
  for (const auto& link : links_) link->keep_heap(true);
  close();
}

// ---- taking over ----

namespace {

/// The latest record that the agents have which the program names. If none has any, throws what says most of why.
std::vector<std::byte> find_record(const attach_options& which, const heap_options& options,
                                   const remote::agent_session_options& session) {
  std::vector<std::byte> latest;
  std::uint64_t number = 0;
  std::optional<error> failed;
  for (const std::string& url : options.agents) {
    if (std::find(which.lost.begin(), which.lost.end(), url) != which.lost.end()) continue;
    if (url.starts_with("local:")) continue;  // which is new
    try {
      std::vector<std::byte> found = remote::read_record(url, which.name, which.secret, session);
      const std::uint64_t n = heap_record::read(found).number;
      if (n > number) latest = std::move(found), number = n;
    } catch (const error& e) {
      const bool says_more = e.code() == errc::conflict || e.code() == errc::access_denied;
      if (!failed || says_more) failed = e;
    }
  }
  if (!latest.empty()) return latest;
  if (failed) throw error(*failed);
  throw error(errc::invalid_argument, "heap_options::agents names no agent that could have the heap");
}

}  // namespace

std::unique_ptr<heap_core> heap_core::attach(const attach_options& which, const heap_options& options,
                                             const type_descriptor& (*root)()) {
  check_name(which.name, which.secret);
  remote::agent_session_options so;
  so.session.connect_within = options.connect_within;
  so.heap_name = options.name.empty() ? program_invocation_short_name : options.name;
  attachment a{{which.name, which.secret, find_record(which, options, so)}, {}, which.lost};
  a.record = heap_record::read(a.from.record);
  for (const std::string& url : which.lost)
    if (std::find(a.record.agents.begin(), a.record.agents.end(), url) == a.record.agents.end())
      throw error(errc::invalid_argument, fmt::format("{} is no agent of heap {}", url, which.name));
  heap_options mine = options;
  mine.agents.clear();
  for (const std::string& url : a.record.agents) {
    if (std::find(which.lost.begin(), which.lost.end(), url) != which.lost.end()) continue;
    mine.agents.push_back(url);
    if (remote::read_record(url, which.name, which.secret, so) != a.from.record)
      throw error(errc::stale, fmt::format("{} has another state of heap {}: it was left out before", url, which.name));
  }
  register_stored_types(a.record.types);
  if (root) a.root = &root();
  return std::make_unique<heap_core>(mine, &a);
}

void heap_core::adopt(const attachment& from) {
  std::vector<std::uint32_t> numbers;
  std::uint32_t alive = 0;
  for (const std::string& url : from.record.agents) {
    const bool is_lost = std::find(from.lost.begin(), from.lost.end(), url) != from.lost.end();
    numbers.push_back(is_lost ? no_agent : alive++);
  }
  std::vector<heap_record::run> promoted;
  for (const heap_record::run& t : from.record.tablets) {
    heap_record::run now{.first = t.first, .count = t.count, .set = {}};
    if (!renumber(t.set, now.set, [&](std::uint32_t a) { return numbers[a]; }))
      throw error(errc::agent_lost, fmt::format("{} tablets of heap {} were stored on {} alone", t.count,
                                                from.from.name, from.record.agents[t.set.primary()]));
    cache_->slots().adopt(now.first, now.count, now.set);
    if (numbers[t.set.primary()] == no_agent) promoted.push_back(now);
  }
  stored_root_ = from.record.root;
  std::copy(std::begin(from.record.lineage), std::end(from.record.lineage), std::begin(lineage_));
  detached_before_ = from.record.number;
  if (const std::uint32_t type = type_number(stored_root_); from.root && type != from.root->id)
    throw_wrong_type(type, from.root->name);
  for (const heap_record::run& t : promoted) {
    remote::agent_session& next = *links_[t.set.primary()];
    const errc e = next.promote_tablets(t.first, t.count);
    if (e == errc::ok || next.lost()) continue;  // a loss like any other: the next backup takes its place (rehoming.h)
    throw error(e, fmt::format("{} does not become the primary of {} tablets", next.url(), t.count));
  }
  if (!promoted.empty())
    log::info("heap {}: backups have taken {} runs of tablets over from {} lost agents", from.from.name,
              promoted.size(), from.lost.size());
}

// From here on the heap is this process's. An agent that does not hear of it knows by the first change.
void heap_core::claim() noexcept {
  for (const auto& link : links_) {
    link->keep_heap(false);
    if (const errc e = link->claim_heap(); e != errc::ok)
      log::warn("{} is not told that its heap was attached: {}", link->url(), to_string(e));
  }
}

}  // namespace fm::detail

// Opening and closing a heap, its options, and its statistics; see heap_core.h.
#include "heap/heap_core.h"
#include "agent/embedded/embedded.h"
#include "base/log.h"
#include "base/replica_limits.h"
#include "collector/roots/weak_cells.h"
#include "heap/inherited.h"
#include <cerrno>
#include <farmem/detail/barriers/roots.h>
#include <farmem/detail/barriers/section_break.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

namespace fm::detail {

namespace {

std::uint64_t random_word() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

void check_replicas(const heap_options& o) {
  const std::size_t most = std::min<std::size_t>(o.agents.size(), limits::replicas_max);
  if (o.replicas == 0 || o.replicas > most)
    throw error(errc::invalid_argument, fmt::format("heap_options::replicas is {}: 1 to {} are possible with {} agents",
                                                    o.replicas, most, o.agents.size()));
  if (o.min_replicas == 0 || o.min_replicas > o.replicas)
    throw error(errc::invalid_argument, fmt::format("heap_options::min_replicas is {}: 1 to {}, which is `replicas`",
                                                    o.min_replicas, o.replicas));
  std::set<std::string> named;
  for (const std::string& url : o.agents)
    if (o.replicas > 1 && !named.insert(url).second)
      throw error(errc::invalid_argument,
                  fmt::format("heap_options::agents names {} twice: replicas need agents of their own", url));
}

void tell_of_replicas(const heap_options& o, const growing_list<remote::agent_session>& links) {
  if (o.replicas == 1) {
    if (links.size() > 1) log::info("an agent that dies takes its objects along: heap_options::replicas is 1");
    return;
  }
  std::set<std::uint16_t> zones;
  std::size_t without = 0;
  for (const auto& link : links)
    if (link->zone() == 0)
      ++without;
    else
      zones.insert(link->zone());
  if (zones.size() + without >= o.replicas) return;
  const std::string text = fmt::format("{} agents are in {} zones, and each object is stored on {}", links.size(),
                                       zones.size() + without, o.replicas);
  if (o.strict_zones) throw error(errc::invalid_argument, "heap_options::strict_zones: " + text);
  log::warn("{}: some replicas of an object are in one zone", text);
}

}  // namespace

heap_core::heap_core(const heap_options& options, const attachment* attaches) : options_(options) {
  if (options.cache_max != 0 && options.cache_max < options.cache)
    throw error(errc::invalid_argument, fmt::format("heap_options::cache_max is {}, and the cache has {} bytes",
                                                    options.cache_max, options.cache));
  if (options.agents.empty()) throw error(errc::invalid_argument, "heap_options::agents is empty");
  if (options.agents.size() > limits::agents_max)
    throw error(errc::invalid_argument, fmt::format("heap_options::agents names {} agents: {} are possible",
                                                    options.agents.size(), limits::agents_max));
  if (!(options.collect_share > 0 && options.collect_share <= 1))
    throw error(
        errc::invalid_argument,
        fmt::format("heap_options::collect_share is {}: more than 0 and at most 1 is possible", options.collect_share));
  if (options.segment != 0 && (!is_power_of_two(options.segment) || options.segment < page_bytes))
    throw error(errc::invalid_argument,
                fmt::format("heap_options::segment {}: a power of two from {}", options.segment, page_bytes));
  if (!(options.evacuation.below_live_ratio >= 0 && options.evacuation.below_live_ratio <= 1))
    throw error(errc::invalid_argument, fmt::format("heap_options::evacuation: a live ratio of {} is not in [0, 1]",
                                                    options.evacuation.below_live_ratio));
  check_replicas(options);
  let_go_of_parents();
  reserve_hit(options.slots);
  try {
    open(options, attaches);
  } catch (...) {
    close();
    throw;
  }
}

void heap_core::tell(const std::string& url, agent_change change) noexcept {
  try {
    events_.post({.change = change, .agent = url});
  } catch (const std::bad_alloc&) {
    log::warn("{} is {}, and there is no memory to say so", url, to_string(change));
  }
}

void heap_core::open(const heap_options& options, const attachment* attaches) {
  remote::agent_session_options& lo = session_options_;
  lo.session.connect_within = options.connect_within;
  lo.session.reconnect_for = options.reconnect_within;
  lo.session.operation_within = options.access_within;
  lo.session.on_demand_paging = options.on_demand_paging;
  lo.heap_name = options.name.empty() ? program_invocation_short_name : options.name;
  lo.heap_id[0] = random_word();
  lo.heap_id[1] = random_word();
  lo.incarnation = random_word();
  lineage_[0] = lo.heap_id[0];
  lineage_[1] = lo.heap_id[1];
  lo.quota_bytes = options.quota;
  lo.on_retire = [](void* context, std::uint32_t region, std::uint32_t generation) noexcept {
    const auto& c = *static_cast<link_context*>(context);
    return c.heap->take_retirement({c.agent, region, generation});
  };
  if (options.replicas > 1) lo.suspect_within = options.suspect_within;
  lo.is_replaceable = [](void* context) noexcept {
    const auto& c = *static_cast<link_context*>(context);
    object_cache* const cache = c.heap->cache_for_links_.load(std::memory_order_acquire);
    return cache && cache->losses().is_replaceable(c.agent);
  };
  lo.on_traced = [](void* context, std::uint64_t) noexcept {
    const auto& c = *static_cast<link_context*>(context);
    if (collector* gc = c.heap->collector_for_links_.load(std::memory_order_acquire)) gc->traced();
  };
  events_.start(options.on_agent_event);
  lo.on_news = [](void* context, remote::agent_news what) noexcept {
    const auto& c = *static_cast<link_context*>(context);
    constexpr agent_change changes[] = {agent_change::silent, agent_change::back, agent_change::full,
                                        agent_change::leaving, agent_change::staying};
    c.heap->tell(c.url, changes[static_cast<int>(what)]);
    collector* const gc = c.heap->collector_for_links_.load(std::memory_order_acquire);
    if (!gc || (what != remote::agent_news::leaving && what != remote::agent_news::full)) return;
    if (what == remote::agent_news::full) gc->members().look_at_room();
    gc->look_at_members();
  };
  lo.on_lost = [](void* context, errc) noexcept {
    const auto& c = *static_cast<link_context*>(context);
    c.heap->tell(c.url, agent_change::lost);
    // seq_cst here and below: see agent_session_impl::lost.
    if (object_cache* cache = c.heap->cache_for_links_.load()) cache->note_lost_agent();
    if (collector* gc = c.heap->collector_for_links_.load()) gc->agent_lost();
  };
  if (attaches) lo.attaches = &attaches->from;
  for (const std::string& url : options.agents) links_.push_back(open_session(url));
  lo.attaches = nullptr;
  tell_of_replicas(options, links_);
  cache_options co;
  co.capacity_bytes = options.cache;
  co.capacity_bytes_most = options.cache_max;
  if (options.segment != 0) {
    co.segment_bytes = options.segment;
  } else {
    while (co.segment_bytes > 64 << 10 && options.cache / co.segment_bytes < 64) co.segment_bytes /= 2;
  }
  co.policy.promote_probability = options.promote_probability;
  co.hit_bytes = options.hit;
  co.hit_residents_max = options.hit_residents;
  co.replicas = options.replicas;
  co.rebalances = options.rebalance;
  co.strict_zones = options.strict_zones;
  co.min_replicas = options.min_replicas;
  co.elastic = options.elastic;
  co.background_evictor = options.background_evictor;
  co.dumped = options.dump_cache;
  co.access_within = options.access_within;
  co.memory_within = options.memory_within;
  if (attaches) co.stored_before_max = attaches->record.object_bytes;
  cache_ = std::make_unique<object_cache>(co, links_);
  begin_retirements();
  collector_options go;
  if (attaches) {
    adopt(*attaches);
    go.cycles_before = attaches->record.cycles;
  }
  go.automatic = options.collect;
  go.every = options.collect_every;
  go.young = options.collect_young;
  go.continuous = options.collect_continuously;
  go.share = options.collect_share;
  go.verify = options.verify_cycles;
  go.call_within = options.access_within;
  go.evacuation = options.evacuation;
  go.agents_talk = options.agents_talk;
  go.on_rehomed = [this](const rehomed::from& a, std::vector<lost_type> lost_types) {
    tablets_rehomed_.fetch_add(a.tablets, std::memory_order_relaxed);
    tablets_promoted_.fetch_add(a.promoted, std::memory_order_relaxed);
    events_.post({.change = agent_change::rehomed,
                  .agent = a.agent,
                  .tablets = a.tablets,
                  .promoted_tablets = a.promoted,
                  .lost_objects = a.lost_objects,
                  .lost_types = std::move(lost_types)});
  };
  go.on_left = [this](std::uint32_t agent) {
    tell(links_[agent]->url(), agent_change::left);
    members_changed_.notify_all();
  };
  go.on_replicated = [this] { events_.post({.change = agent_change::replicated}); };
  collector_ = std::make_unique<collector>(*cache_, go);
  collector_for_links_.store(collector_.get());
  if (attaches) claim();
  // One that was lost before the collector could be told.
  if (std::any_of(links_.begin(), links_.end(), [](const auto& link) { return link->lost(); })) {
    cache_->note_lost_agent();
    collector_->agent_lost();
  }
}

heap_core::~heap_core() { close(); }

cycle_report heap_core::collect(std::string_view why, evacuate what) { return collector_->collect(why, what); }

cycle_report heap_core::collect_young(std::string_view why) { return collector_->collect_young(why); }

void heap_core::collect_soon(std::string_view why) { collector_->ask(why); }

void heap_core::on_dead(slot_t slot, std::function<void()> notice) {
  collector_->notices().add(slot, std::move(notice));
}

// An agent that is just being added has no region of the heap that it could want back.
bool heap_core::take_retirement(const early_retirement& r) noexcept try {
  object_cache* cache = cache_for_links_.load(std::memory_order_acquire);
  if (!cache) {
    const std::lock_guard lock(members_mutex_);
    cache = cache_for_links_.load(std::memory_order_acquire);
    if (!cache) {
      early_retirements_.push_back(r);
      return true;
    }
  }
  return r.agent < cache->agents().size() && cache->retirements().add(r.agent, r.region, r.generation);
} catch (const std::bad_alloc&) {
  return false;  // it is told again on the next connection
}

// One whom there is no memory for stays with its agent.
void heap_core::begin_retirements() {
  const std::lock_guard lock(members_mutex_);
  cache_for_links_.store(cache_.get());
  for (const early_retirement& r : early_retirements_) (void)cache_->retirements().add(r.agent, r.region, r.generation);
  early_retirements_ = {};
}

void heap_core::close() noexcept {
  closing_.store(true);
  members_changed_.notify_all();  // an event's function may be waiting to leave an agent
  events_.stop();
  if (collector_) collector_->stop();
  if (cache_ && !cache_->closed()) {
    // Roots of this heap become null: code that still holds one gets a typed error and not another heap's object.
    // Asked of the table, because there may be no memory for a list.
    static constexpr auto is_mine = [](slot_t slot, void* cache) {
      return tablet_info_of(slot).heap.load(std::memory_order_acquire) == cache;
    };
    const auto forget = [](root_cell& cell, slot_t slot, void* cache) {
      if (is_mine(slot, cache)) cell.word.compare_exchange_strong(slot, 0, std::memory_order_acq_rel);
    };
    roots::for_each(forget, cache_.get());
    forget_weak(is_mine, cache_.get());
    cache_->close();
  }
  for (auto& link : links_) link->close();
}

heap_stats heap_core::stats(detail_level level) {
  heap_stats s;
  object_cache& c = *cache_;
  const section_break outside;  // whoever has the list of mutators may be waiting for sections to end
  c.mutators().for_each([&](mutator& m) {
    const mutator_counters& n = m.counters;
    s.allocated_objects += n.allocated_objects.get();
    s.allocated_bytes += n.allocated_bytes.get();
    s.misses += n.misses.get();
    s.misses_by_slot += n.misses_by_slot.get();
    s.waits_for_fetch += n.waits_for_fetch.get();
    s.fetched_bytes += n.fetched_bytes.get();
    s.touches += n.touches.get();
    s.prefetches += n.prefetches.get();
    s.elastic_installs += n.elastic_installs.get();
    s.elastic_touches += n.elastic_touches.get();
    s.stalls_for_memory += n.stalls_for_memory.get();
  });
  s.failed_misses = c.misses().failed.load(std::memory_order_relaxed);
  s.ghost_hits = c.misses().ghost_hits.load(std::memory_order_relaxed);
  const evictor::counters& e = c.eviction().counts;
  s.elastic_untouched = e.elastic_untouched.load(std::memory_order_relaxed);
  s.segments_cooled = e.cooled.load(std::memory_order_relaxed);
  s.segments_released = e.segments_released.load(std::memory_order_relaxed);
  s.dropped_objects = e.dropped.load(std::memory_order_relaxed);
  s.written_objects = e.written.get();
  s.written_bytes = e.written_bytes.get();
  s.acknowledged_objects = e.acknowledged.load(std::memory_order_relaxed);
  s.cancelled_drops = e.cancelled.load(std::memory_order_relaxed);
  s.write_failures = e.write_failures.load(std::memory_order_relaxed);
  s.relocations = e.relocated.get();
  s.stragglers = e.stragglers.load(std::memory_order_relaxed);
  s.pauses = e.pauses.load(std::memory_order_relaxed);
  s.pauses_abandoned = e.pauses_abandoned.load(std::memory_order_relaxed);
  const arena::counts q = c.memory().queue_lengths();
  s.segments_free = q.free;
  s.segments_active = q.active;
  s.segments_filled = q.filled;
  s.segments_trial = q.trial;
  s.segments_writing = q.writing;
  s.cache_bytes = std::uint64_t{c.memory().capacity_segments()} * c.memory().segment_bytes();
  s.cache_used_bytes = s.cache_bytes - std::uint64_t{q.free} * c.memory().segment_bytes();
  const lease_book::counts leases = c.leases().count();
  s.threads = c.mutators().count();
  s.thread_bytes = leases.bytes + s.threads * sizeof(mutator);
  s.leases_taken_back = leases.taken_back;
  const hit_pages::counts pages = c.pages().count();
  s.hit_bytes = pages.pages * page_bytes;
  s.hit_pages_given_back = pages.given_back;
  s.hit_pages_opened_again = pages.opened_again;
  s.hit_words_aside = pages.sided;
  s.cache_memory_bytes = std::uint64_t{q.backed} * c.memory().segment_bytes();
  s.hit_record_bytes =
      c.slots().tablets().size() * (sizeof(tablet_info) + pages_per_tablet * sizeof(page_info) + tablet_slots / 8);
  s.handle_bytes = roots::memory_bytes();
  s.book_bytes = c.memory().record_bytes() + c.misses().left().bytes() + pages.sided * 2 * sizeof(word_t);
  for (auto& link : links_) {
    const remote::agent_session_stats l = link->stats();
    s.batches += l.batches;
    s.batches_resent += l.batches_resent;
    s.reconnects += l.reconnects;
    s.regions += l.regions;
    s.regions_retired += l.retired;
    s.bytes_bounced += l.bytes_bounced;
    s.buffer_bytes += l.buffer_bytes;
    s.agents_lost += link->lost() && !link->left();
    s.agents_left += link->left();
  }
  s.tablets_rehomed = tablets_rehomed_.load(std::memory_order_relaxed);
  s.tablets_promoted = tablets_promoted_.load(std::memory_order_relaxed);
  s.tablets_degraded = c.losses().degraded_tablets();
  const replication::counters& joined = collector_->members().joined();
  s.tablets_replicated = joined.joined.load(std::memory_order_relaxed);
  s.replicated_objects = joined.objects.load(std::memory_order_relaxed);
  s.replicated_bytes = joined.bytes.load(std::memory_order_relaxed);
  s.tablets_handed_over = collector_->members().moved().handed_over.load(std::memory_order_relaxed);
  s.tablets_moved_for_load = collector_->members().moved_for_load.load(std::memory_order_relaxed);
  s.lost_objects = c.losses().objects();
  s.collections = collector_->counts.cycles.load(std::memory_order_relaxed);
  s.collections_failed = collector_->counts.failed.load(std::memory_order_relaxed);
  s.collected_objects = collector_->counts.freed_objects.load(std::memory_order_relaxed);
  s.collected_bytes = collector_->counts.freed_bytes.load(std::memory_order_relaxed);
  s.evacuated_objects = collector_->counts.evacuated_objects.load(std::memory_order_relaxed);
  s.evacuated_bytes = collector_->counts.evacuated_bytes.load(std::memory_order_relaxed);
  s.emptied_regions = collector_->counts.emptied_regions.load(std::memory_order_relaxed);
  s.young_collections = collector_->counts.young_cycles.load(std::memory_order_relaxed);
  s.young_collections_failed = collector_->counts.young_failed.load(std::memory_order_relaxed);
  s.young_collected_objects = collector_->counts.young_freed_objects.load(std::memory_order_relaxed);
  s.young_collected_bytes = collector_->counts.young_freed_bytes.load(std::memory_order_relaxed);
  s.last_cycle = collector_->last();
  s.last_young = collector_->last(generation::young);
  s.pause_ns = collector_->pause_ns.snapshot();
  s.miss_ns = c.misses().miss_ns.snapshot();
  s.stall_ns = c.pressure().stall_ns.snapshot();
  s.waits_expired = c.pressure().expired.load(std::memory_order_relaxed);
  s.gate_ns = epochs::gate_waits().snapshot();
  s.blocked_in_scopes = section_break::not_left();
  bool all = true;
  s.observed_until = clock::now();
  s.recent_pauses = epochs::pauses().since(opened_, all);
  s.observed_from = all || s.recent_pauses.empty() ? opened_ : s.recent_pauses.front().begin;
  if (level == detail_level::types) count_types(s);
  return s;
}

}  // namespace fm::detail

namespace fm {

std::string heap_stats::text() const {
  const auto us = [](std::uint64_t ns) { return double(ns) / 1000.0; };
  return fmt::format(
      "objects   {} allocated, {} bytes\n"
      "reading   {} misses ({} by slot, {} of ghosts, {} failed), {} bytes fetched, {} touches of cold objects, {} "
      "moved on\n"
      "          miss p50 {:.1f} us, p99 {:.1f} us, p99.9 {:.1f} us, max {:.1f} us\n"
      "elastic   {} neighbours, {} used, {} evicted untouched; {} prefetches\n"
      "writing   {} objects, {} bytes, {} acknowledged, {} drops cancelled, {} failed; {} batches, {} sent again\n"
      "cache     {} of {} bytes; segments {} free, {} filled, {} on trial, {} active, {} writing; {} dropped "
      "objects\n"
      "threads   {}, with {} bytes of their own; {} times taken back\n"
      "hit       {} bytes; {} pages given back, {} opened again, {} words aside\n"
      "memory    {} bytes named: cache {}, table {} and its records {}, handles {}, books {}, buffers {}\n"
      "stalls    {} for memory, {} expired, p99 {:.1f} us, max {:.1f} us; {} pauses, {} abandoned\n"
      "agents    {} regions, {} retired, {} reconnects; {} lost, {} tablets re-homed, {} objects lost; {} bytes copied "
      "on their way to or from a device\n"
      "replicas  {} tablets degraded, {} taken over, {} handed over ({} of them because of load), {} replicated anew "
      "with {} objects, {} bytes\n"
      "collector {} cycles, {} failed; {} objects, {} bytes freed; {} objects, {} bytes evacuated, {} regions emptied; "
      "{} collections of young objects, {} failed; {} objects, {} bytes freed; "
      "pause p50 {:.1f} us, p99 {:.1f} us, max {:.1f} us\n"
      "          threads waited for pauses {} times, p99 {:.1f} us, max {:.1f} us, and blocked inside of long scopes "
      "{} "
      "times; utilisation in 10 ms at least {:.3f}\n",
      allocated_objects, allocated_bytes, misses, misses_by_slot, ghost_hits, failed_misses, fetched_bytes, touches,
      relocations, us(miss_ns.quantile_ns(0.5)), us(miss_ns.quantile_ns(0.99)), us(miss_ns.quantile_ns(0.999)),
      us(miss_ns.max_ns), elastic_installs, elastic_touches, elastic_untouched, prefetches, written_objects,
      written_bytes, acknowledged_objects, cancelled_drops, write_failures, batches, batches_resent, cache_used_bytes,
      cache_bytes, segments_free, segments_filled, segments_trial, segments_active, segments_writing, dropped_objects,
      threads, thread_bytes, leases_taken_back, hit_bytes, hit_pages_given_back, hit_pages_opened_again,
      hit_words_aside, named_bytes(), cache_memory_bytes, hit_bytes, hit_record_bytes, handle_bytes, book_bytes,
      buffer_bytes, stalls_for_memory, waits_expired, us(stall_ns.quantile_ns(0.99)), us(stall_ns.max_ns), pauses,
      pauses_abandoned, regions, regions_retired, reconnects, agents_lost, tablets_rehomed, lost_objects, bytes_bounced,
      tablets_degraded, tablets_promoted, tablets_handed_over, tablets_moved_for_load, tablets_replicated,
      replicated_objects, replicated_bytes, collections, collections_failed, collected_objects, collected_bytes,
      evacuated_objects, evacuated_bytes, emptied_regions, young_collections, young_collections_failed,
      young_collected_objects, young_collected_bytes, us(pause_ns.quantile_ns(0.5)), us(pause_ns.quantile_ns(0.99)),
      us(pause_ns.max_ns), gate_ns.count, us(gate_ns.quantile_ns(0.99)), us(gate_ns.max_ns), blocked_in_scopes,
      bmu(std::chrono::milliseconds(10)));
}

}  // namespace fm

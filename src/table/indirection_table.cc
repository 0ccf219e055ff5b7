// Reserving the table, and giving out tablet numbers (farmem/detail/barriers/indirection_table.h).
//
// Invariants owned here: the arrays are reserved once and never unmapped, since root cells in statics outlive every
// heap and look here; free numbers are kept as runs that do not touch each other. The cache takes tablets and gives
// them back; heap_core reserves the table before its first heap is open.
#include "os/os.h"
#include "table/table.h"
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

namespace fm::detail {

namespace {

// Before the first heap there is only slot 0, null: dereferencing it must already be a typed error.
constinit std::atomic<word_t> word_of_null{word::unknown};

}  // namespace

constinit hit_arrays hit{.words = &word_of_null};

namespace {

// Never unmapped: root cells in statics outlive every heap and look here.
struct reservations {
  os::reservation words, tablets, pages, young;
};
std::atomic<reservations*> reserved{nullptr};

std::mutex tablets_mutex;
const os::fork_guard tablets_at_fork = os::guard_at_fork<tablets_mutex>(os::fork_rank::leaves);
std::map<std::uint32_t, std::uint32_t> free_runs;  // first -> count, of the numbers given back
std::uint32_t next_tablet = 1;                     // tablet 0 holds slot 0, which is null

std::uint64_t default_slots() {
  if (const char* text = std::getenv("FARMEM_SLOTS")) {
    const auto n = std::strtoull(text, nullptr, 0);
    if (n < 2 * tablet_slots || n > slot_limit)
      throw error(errc::bad_config, fmt::format("FARMEM_SLOTS={}: wants {} to {}", text, 2 * tablet_slots, slot_limit));
    return n;
  }
  std::uint64_t slots = FM_TSAN || FM_ASAN ? std::uint64_t{1} << 27 : slot_limit;
  // Under `ulimit -v` reserved address space counts, although it costs no memory: the table gets a quarter of it.
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    while (slots > 2 * tablet_slots && slots > limit.rlim_cur / 4 / sizeof(word_t)) slots /= 2;
  return slots;
}

reservations* reserve(std::uint64_t slots) {
  try {
    return new reservations{os::reservation(slots * sizeof(word_t), page_bytes),
                            os::reservation(slots / tablet_slots * sizeof(tablet_info), page_bytes),
                            os::reservation(slots / page_slots * sizeof(page_info), page_bytes),
                            os::reservation(slots / 8, page_bytes)};
  } catch (const error& e) {
    const std::string_view code = to_string(e.code());
    throw error(e.code(),
                fmt::format("a table of {} slots, fewer are asked for by heap_options::slots or FARMEM_SLOTS: {}",
                            slots, std::string_view(e.what()).substr(code.size() + 2)));
  }
}

}  // namespace

void reserve_hit(std::uint64_t slots) {
  const std::lock_guard lock(tablets_mutex);
  if (slots > slot_limit)
    throw error(errc::invalid_argument, fmt::format("slot range {}: at most {} (40 bits)", slots, slot_limit));
  if (hit.slots != 0) {
    if (slots > hit.slots)
      throw error(errc::slots_exhausted,
                  fmt::format("slot range {} asked for, but the process has reserved {}", slots, hit.slots));
    return;
  }
  slots = round_up(slots == 0 ? default_slots() : std::max(slots, 2 * tablet_slots), tablet_slots);
  reservations* const made = reserve(slots);
  os::reservation::prefer_huge_pages(made->words.base(), made->words.bytes());
  hit.tablets = reinterpret_cast<tablet_info*>(made->tablets.base());
  hit.pages = reinterpret_cast<page_info*>(made->pages.base());
  hit.young = reinterpret_cast<std::atomic<std::uint64_t>*>(made->young.base());
  hit.slots = slots;
  hit.words = reinterpret_cast<std::atomic<word_t>*>(made->words.base());
  reserved.store(made, std::memory_order_release);
}

void prefer_small_hit_pages() noexcept {
  const reservations* r = reserved.load(std::memory_order_acquire);
  FM_CHECK(r, "the table is reserved before heaps are opened");
  os::reservation::keep_small_pages(r->words.base(), r->words.bytes());
}

std::uint32_t take_tablets(object_cache* heap, std::uint32_t agent, std::uint32_t count) {
  const std::lock_guard lock(tablets_mutex);
  std::uint32_t first = 0;
  if (next_tablet + count <= hit.slots / tablet_slots) {
    first = next_tablet;
    next_tablet += count;
  } else {
    for (auto it = free_runs.begin(); it != free_runs.end(); ++it) {
      if (it->second < count) continue;
      first = it->first;
      auto run = free_runs.extract(it);
      run.key() += count;
      run.mapped() -= count;
      if (run.mapped() != 0) free_runs.insert(std::move(run));
      break;
    }
  }
  if (first == 0)
    throw error(errc::slots_exhausted,
                fmt::format("all {} slots of the process are granted; raise FARMEM_SLOTS", hit.slots));
  for (std::uint32_t t = first; t < first + count; ++t) {
    hit.tablets[t].agent.store(agent, std::memory_order_relaxed);
    hit.tablets[t].replicas.store(0, std::memory_order_relaxed);
    hit.tablets[t].heap.store(heap, std::memory_order_release);
  }
  return first;
}

void take_stored_tablets(object_cache* heap, std::uint32_t first, std::uint32_t count) {
  const std::lock_guard lock(tablets_mutex);
  const std::uint64_t end = std::uint64_t{first} + count, most = hit.slots / tablet_slots;
  if (first == 0 || end > most)
    throw error(errc::slots_exhausted,
                fmt::format("a stored heap has tablets up to {}, and this process has room for {}: raise "
                            "heap_options::slots or FARMEM_SLOTS",
                            end, most));
  if (!free_runs.empty()) {
    if (const auto last = std::prev(free_runs.end()); last->first + last->second == next_tablet) {
      next_tablet = last->first;
      free_runs.erase(last);
    }
  }
  // So all numbers are free from next_tablet on, or in one run of those that were given back.
  auto run = free_runs.upper_bound(first);
  if (first >= next_tablet) {
    if (first > next_tablet) free_runs.emplace(next_tablet, first - next_tablet);
    next_tablet = static_cast<std::uint32_t>(end);
  } else {
    if (run != free_runs.begin()) --run;
    const bool is_free =
        run != free_runs.end() && run->first <= first && end <= std::uint64_t{run->first} + run->second;
    if (!is_free)
      throw error(errc::slots_exhausted,
                  fmt::format("tablets {} to {} of a stored heap are another heap's in this process: attach it before "
                              "other heaps are opened",
                              first, end - 1));
    const std::uint32_t run_first = run->first, run_end = run->first + run->second;
    if (run_end > end) free_runs.emplace(static_cast<std::uint32_t>(end), run_end - static_cast<std::uint32_t>(end));
    if (run_first == first)
      free_runs.erase(run_first);
    else
      free_runs[run_first] = first - run_first;
  }
  for (std::uint32_t t = first; t < end; ++t) {
    hit.tablets[t].agent.store(0, std::memory_order_relaxed);
    hit.tablets[t].replicas.store(0, std::memory_order_relaxed);
    hit.tablets[t].heap.store(heap, std::memory_order_release);
  }
}

void give_back_tablets(std::uint32_t first, std::uint32_t count) noexcept {
  const std::lock_guard lock(tablets_mutex);
  for (std::uint32_t t = first; t < first + count; ++t) hit.tablets[t].heap.store(nullptr, std::memory_order_release);
  os::reservation::discard(hit.words + first * tablet_slots, count * tablet_slots * sizeof(word_t));
  os::reservation::discard(hit.young + first * tablet_slots / 64, count * tablet_slots / 8);
  for (std::uint64_t p = first * (tablet_slots / page_slots); p < (first + count) * (tablet_slots / page_slots); ++p) {
    hit.pages[p].drops.fetch_add(1, std::memory_order_relaxed);
    hit.pages[p].dirty_card.store(0, std::memory_order_relaxed);
    hit.pages[p].pin_card.store(0, std::memory_order_relaxed);
    hit.pages[p].state.store(page_given_back, std::memory_order_release);
  }
  auto it = free_runs.end();
  try {
    it = free_runs.emplace(first, count).first;
  } catch (const std::bad_alloc&) {
    return;  // the numbers are not used again: there are more of them than memory
  }
  if (auto after = std::next(it); after != free_runs.end() && it->first + it->second == after->first) {
    it->second += after->second;
    free_runs.erase(after);
  }
  if (it != free_runs.begin()) {
    if (auto before = std::prev(it); before->first + before->second == it->first) {
      before->second += it->second;
      free_runs.erase(it);
    }
  }
}

void forget_tablets() noexcept {
  const std::lock_guard lock(tablets_mutex);
  if (hit.slots == 0) return;
  os::reservation::discard(hit.words, std::uint64_t{next_tablet} * tablet_slots * sizeof(word_t));
  os::reservation::discard(hit.young, std::uint64_t{next_tablet} * tablet_slots / 8);
  os::reservation::discard(hit.tablets, round_up(next_tablet * sizeof(tablet_info), page_bytes));
  os::reservation::discard(hit.pages, round_up(next_tablet * pages_per_tablet * sizeof(page_info), page_bytes));
  free_runs.clear();
  next_tablet = 1;
}

}  // namespace fm::detail

// gdb's printers read `hit`. They are a section of this object file, so that every program that has the table has them.
#if __has_include(<farmem_gdb_script.h>)
#include <farmem_gdb_script.h>
#endif

#include "program.h"
#include "heap/heap_core.h"

#include <fmt/format.h>

#include <numeric>

namespace chaos {

using stress::word_of;

namespace {

std::uint32_t agent_of(fm::detail::slot_t slot) {
  return fm::detail::tablet_info_of(slot).agent.load(std::memory_order_relaxed);
}
std::uint64_t identity(std::uint64_t number, std::uint64_t birth) { return number * 0x10003 + birth; }

void fill_in(item& i, std::uint64_t version) {
  const std::uint64_t who = identity(i.number, i.birth);
  i.version = version;
  for (std::size_t k = 0; k < i.words.size(); ++k) i.words[k] = word_of(who, version, k);
  i.check = word_of(who, version, 99);
}
bool good(const item& i, std::uint64_t number, std::uint64_t birth, std::uint64_t version) {
  const std::uint64_t who = identity(number, birth);
  bool ok = i.number == number && i.birth == birth && i.version == version && i.check == word_of(who, version, 99);
  for (std::size_t k = 0; k < i.words.size(); ++k) ok = ok && i.words[k] == word_of(who, version, k);
  return ok;
}

/// A thread tells those who wait for progress after so many steps: seldom, since they share a lock.
constexpr std::uint64_t steps_between_news = 64;

/// Of the thread that runs: its operations that ended with the right data.
thread_local std::atomic<std::uint64_t>* my_operations = nullptr;

/// Errors by which a heap may refuse an operation while agents hang, break or are full. Nothing is lost by them.
bool passes_by_itself(fm::errc e) {
  return e == fm::errc::timed_out || e == fm::errc::disconnected || e == fm::errc::agent_full ||
         e == fm::errc::cache_full || e == fm::errc::quota_exceeded;
}

}  // namespace

program::program(fm::heap& h, const plan& p, const std::vector<std::unique_ptr<chaos_agent>>& agents)
    : heap_(&h), plan_(p), agents_(agents), items_(p.items), tallies_(static_cast<std::size_t>(p.threads)) {}

program::~program() { end(); }

void program::build() {
  for (std::uint32_t i = 0; i < plan_.items; ++i) make(i);
}

void program::begin() {
  for (int t = 0; t < plan_.threads; ++t) threads_.emplace_back([this, t] { work(t); });
}

void program::end() {
  ending_.store(true);
  for (auto& t : threads_) t.join();
  threads_.clear();
}

void program::change_heap(const std::function<void(const fm::ptr<kept_items>&)>& detach,
                          const std::function<fm::attached_heap<kept_items>&()>& attach) {
  end();
  {
    fm::vector<fm::ref<item>> all(*heap_);
    for (const record& r : items_) all.push_back(r.object);
    const auto root = heap_->make_with<kept_items>([&](kept_items& k) { k.all = all; });
    detach(root);
  }
  const fm::attached_heap<kept_items>& next = attach();
  heap_ = next.heap.get();
  const fm::vector<fm::ref<item>> all = next.root->all;
  for (std::size_t i = 0; i < items_.size(); ++i) items_[i].object = all[i];
  ending_.store(false);
  begin();
}

std::vector<std::uint64_t> program::progress() const {
  std::vector<std::uint64_t> all;
  for (const auto& t : tallies_) all.push_back(t.well.load(std::memory_order_relaxed));
  return all;
}

double program::rate(std::uint64_t operations, fm::duration most) {
  const auto total = [this] {
    const auto all = progress();
    return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
  };
  const fm::time_point begin = fm::clock::now();
  const std::uint64_t from = total();
  std::unique_lock lock(mutex_);
  got_on_.wait_until(lock, begin + most, [&] { return total() - from >= operations; });
  return double(total() - from) / std::chrono::duration<double>(fm::clock::now() - begin).count();
}

void program::work(int thread) {
  std::mt19937_64 random(stress::mix(plan_.seed * 64 + static_cast<std::uint64_t>(thread)));
  my_operations = &tallies_[static_cast<std::size_t>(thread)].well;
  try {
    for (std::uint64_t steps = 1; !ending_.load(std::memory_order_relaxed); ++steps) {
      step(random);
      if (steps % steps_between_news != 0) continue;
      const std::lock_guard lock(mutex_);
      got_on_.notify_all();
    }
  } catch (const std::exception& e) {
    wrong.add(fmt::format("thread {}: {}", thread, e.what()));
  }
}

void program::step(std::mt19937_64& random) {
  const auto n = plan_.items;
  const auto number = static_cast<std::uint32_t>(random() % 2 == 0 ? random() % n : random() % (n / 16));
  const std::uint64_t what = random() % 100;
  const std::lock_guard lock(locks_.of(number));
  if (what < 60)
    read(number);
  else if (what < 80)
    write(number);
  else if (what < 88)
    follow(number);
  else if (what < 94)
    link(number, static_cast<std::uint32_t>(random() % n));
  else
    (void)judged(number, "make", [&] { make(number); });
  // Half of the lost items are made anew; the others must stay lost.
  if (items_[number].lost && number % 2 == 0) (void)judged(number, "make anew", [&] { make(number); });
}

bool program::may_be_lost(std::uint32_t agent_at_birth, fm::detail::slot_t slot) const {
  return !plan_.has_replicas && (agents_[agent_at_birth]->died() || agents_[agent_of(slot)]->died());
}

template <class Access>
bool program::judged(std::uint32_t number, const char* who, Access&& access) {
  record& r = items_[number];
  try {
    access();
    if (my_operations) my_operations->fetch_add(1, std::memory_order_relaxed);
    return true;
  } catch (const fm::error& e) {
    if (e.code() == fm::errc::agent_lost && r.object && may_be_lost(r.agent, r.object.slot())) {
      if (!r.lost) done.lost.fetch_add(1, std::memory_order_relaxed);
      r.lost = true;
    } else if (passes_by_itself(e.code())) {
      done.refused.fetch_add(1, std::memory_order_relaxed);
    } else {
      wrong.add(
          fmt::format("{}: item {} of agent {} (slot {:#x}): {}", who, number, r.agent, r.object.slot(), e.what()));
    }
    return false;
  }
}

void program::make(std::uint32_t number) {
  record& r = items_[number];
  item i;
  i.number = number;
  i.birth = r.birth + 1;
  fill_in(i, 1);
  r.object = heap_->make<item>(std::move(i));
  ++r.birth;
  r.version = 1;
  r.agent = agent_of(r.object.slot());
  r.lost = false;
  r.partner = {};
}

void program::check(const item& i, std::uint32_t number, const char* who) {
  const record& r = items_[number];
  if (r.lost)
    wrong.add(fmt::format("{}: item {} (slot {:#x}) was lost, and is there again", who, number, r.object.slot()));
  if (!good(i, number, r.birth, r.version))
    wrong.add(fmt::format("{}: item {} (slot {:#x}, agent {}) should have birth {} version {}: it says {}, {}, {}", who,
                          number, r.object.slot(), r.agent, r.birth, r.version, i.number, i.birth, i.version));
}

void program::read(std::uint32_t number) {
  (void)judged(number, "read", [&] {
    const auto pin = items_[number].object.read();
    check(*pin.get(), number, "read");
  });
}

void program::write(std::uint32_t number) {
  (void)judged(number, "write", [&] {
    auto pin = items_[number].object.write();
    check(*pin, number, "write");
    fill_in(*pin, ++items_[number].version);
  });
}

void program::link(std::uint32_t number, std::uint32_t to) {
  edge e;
  fm::ptr<item> target;
  if (&locks_.of(to) == &locks_.of(number)) return;
  {
    // In the order of threads that hold one lock and try for another: never wait for the second.
    const std::unique_lock lock(locks_.of(to), std::try_to_lock);
    if (!lock.owns_lock()) return;
    if (items_[to].lost) return;
    target = items_[to].object;
    e = {to, items_[to].birth, items_[to].agent};
  }
  (void)judged(number, "link", [&] {
    items_[number].object.write()->partner = target;
    items_[number].partner = e;
  });
}

void program::follow(std::uint32_t number) {
  fm::ptr<item> partner;
  const bool reached = judged(number, "follow", [&] { partner = items_[number].object.read()->partner; });
  if (!reached) return;
  const edge& e = items_[number].partner;
  if (!partner || e.birth == 0) {
    if (static_cast<bool>(partner) != (e.birth != 0)) wrong.add(fmt::format("item {} has another partner", number));
    return;
  }
  try {
    // Its number and birth never change, so nobody's lock is needed for them.
    const auto pin = partner.read();
    if (pin->number != e.number || pin->birth != e.birth)
      wrong.add(fmt::format("item {}: its partner should be {}, {} and is {}, {}", number, e.number, e.birth,
                            pin->number, pin->birth));
  } catch (const fm::error& error) {
    const bool explained =
        error.code() == fm::errc::agent_lost ? may_be_lost(e.agent, partner.slot()) : passes_by_itself(error.code());
    if (!explained) wrong.add(fmt::format("partner {} of item {}: {}", e.number, number, error.what()));
  }
}

void program::compare() {
  for (std::uint32_t i = 0; i < plan_.items; ++i) {
    const std::lock_guard lock(locks_.of(i));
    read(i);
  }
}

bool program::fill(std::uint64_t bytes_max) {
  constexpr std::size_t words = 1024;
  std::vector<fm::ptr<std::uint64_t[]>> all;
  try {
    for (std::uint64_t bytes = 0; bytes < bytes_max; bytes += words * 8)
      all.push_back(heap_->array<std::uint64_t>(words));
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::agent_lost && !passes_by_itself(e.code()))
      wrong.add(fmt::format("filling: {}", e.what()));
    return true;
  }
  return false;
}

}  // namespace chaos

// fm::run and fm::run_all: run tasks on this thread, with many of their fetches in flight.
//
// A loop resumes coroutines whose objects are resident. It checks the other awaits, polls the sessions, evicts while it
// waits, and sleeps if there is nothing to do. It ends when its tasks have ended and no await is left in it. Every
// await has a deadline, so the loop ends.
#pragma once

#include <algorithm>
#include <farmem/tasks/task.h>
#include <vector>

namespace fm {
namespace detail {

/// This thread's awaits while it runs tasks. Loops nest: a task may call fm::run, and its siblings wait meanwhile.
class run_loop {
 public:
  /// Throws errc::scope_misuse inside of a scope.
  run_loop();
  ~run_loop();
  run_loop(const run_loop&) = delete;
  run_loop& operator=(const run_loop&) = delete;

  /// The innermost loop of this thread, or null.
  static run_loop* current() noexcept;

  /// Resumes what is ready, or waits a moment until something may be.
  void turn();
  /// Turns until nothing is awaited: by coroutines that are not tasks, say, which the tasks started.
  void finish() {
    while (!ready_.empty() || !in_flight_.empty() || !queued_.empty() || !event_waits_.empty()) turn();
  }
  void add(event_wait& w) noexcept { event_waits_.push_back(w); }
  /// Rung when something outside has happened.
  [[nodiscard]] const std::shared_ptr<bell>& door() const noexcept { return door_; }
  /// A suspended await; `posted` when its fetch is under way.
  void add(fetch_wait& w, bool posted) noexcept;
  /// Whether a new await is to queue: others wait already for what it would have to wait for, or the fetches of the
  /// coroutines that run now are gathered.
  [[nodiscard]] bool queues() noexcept { return !queued_.empty() || begins_gathering(); }

 private:
  using wait_list = boost::intrusive::list<fetch_wait, boost::intrusive::constant_time_size<false>>;
  using event_list = boost::intrusive::list<event_wait, boost::intrusive::constant_time_size<false>>;
  /// A heap that something is awaited from, and how far it was when its awaits were looked at.
  struct seen {
    object_cache* cache;
    std::uint32_t completions, releases;
    bool memory;  ///< something waits for memory
    bool ours;    ///< only fetches of this thread are waited for, whose end wakes it
  };

  void resume_ready();
  bool begins_gathering() noexcept;
  void post_queued() noexcept;
  bool look();
  bool look_at(fetch_wait& w);
  void add_heap(const fetch_wait& w);
  void note(const fetch_wait& w);
  bool resume_events();
  void idle();

  run_loop* outer_;
  wait_list in_flight_;  ///< suspended, looked at in every turn
  wait_list queued_;     ///< suspended, in order: gathered, or behind one that found no record or no memory
  wait_list ready_;
  event_list event_waits_;  ///< suspended until their events happen
  std::shared_ptr<bell> door_ = std::make_shared<bell>();
  std::uint32_t rings_seen_ = 0;  ///< before the last look at event_waits_
  std::vector<seen> heaps_;
  time_point gathering_since_{};  ///< while fetches are gathered, ...
  std::size_t gathered_ = 0;      ///< ... so many
  time_point idle_since_{};
  bool spins_ = false;  ///< it polls before it sleeps
};

}  // namespace detail

/// Runs a task on this thread until it has ended. Returns its result or rethrows its exception. It blocks: inside of an
/// fm::scope it throws scope_misuse. Throws invalid_argument for a task that was moved from, or that has been awaited or
/// run. Loops nest: a task may call fm::run, and the tasks beside it wait meanwhile.
template <class T>
T run(task<T> t) {
  if (!t.handle()) throw error(errc::invalid_argument, "fm::run of a task that was moved from");
  if (!t.handle().promise().begin_await()) throw error(errc::invalid_argument, "fm::run of a task that was awaited");
  detail::run_loop loop;
  t.handle().resume();
  while (!t.done()) loop.turn();
  loop.finish();
  return t.handle().promise().take();
}

/// Runs the tasks of a range on this thread, `in_flight` of them (at least 1) at a time: `fm::run_all(ids |
/// std::views::transform(look_up), 16)`. When a task ends, the next one is taken from the range. Tasks of an lvalue
/// range are moved from. Returns their results in the order of the range as a std::vector, or nothing if they have
/// none.
///
/// If a task throws, no more tasks are taken, those that have begun run to their end, and the first exception is
/// rethrown. At most 64 fetches a heap are in flight; further awaits queue. Throws scope_misuse inside of an fm::scope.
template <std::ranges::input_range Range>
requires detail::is_task<std::remove_cvref_t<std::ranges::range_reference_t<Range>>>
auto run_all(Range&& tasks, std::size_t in_flight = 16) {
  using task_type = std::remove_cvref_t<std::ranges::range_reference_t<Range>>;
  using value = typename task_type::value_type;
  constexpr bool has_values = !std::is_void_v<value>;
  if (in_flight == 0) throw error(errc::invalid_argument, "fm::run_all with 0 tasks in flight");

  struct running {
    task_type task;
    std::size_t number = 0;  // in the range
  };
  detail::run_loop loop;
  std::vector<running> active;
  std::vector<std::size_t> unused;  // of active
  std::vector<std::conditional_t<has_values, std::optional<value>, char>> values;
  detail::task_promise_base* finished = nullptr;
  std::exception_ptr failed;

  const auto start = [&](task_type t, std::size_t number) {
    if (!t.handle()) throw error(errc::invalid_argument, "fm::run_all of a task that was moved from");
    if (!t.handle().promise().begin_await())
      throw error(errc::invalid_argument, "fm::run_all of a task that was awaited");
    if constexpr (has_values) values.emplace_back();
    if (unused.empty()) {
      // Room first: a place that is neither unused nor taken would be waited for.
      if (unused.capacity() <= active.size()) unused.reserve(2 * active.size() + 1);
      active.emplace_back();
      unused.push_back(active.size() - 1);
    }
    const std::size_t at = unused.back();
    unused.pop_back();
    t.handle().promise().set_finished(&finished, at);
    active[at] = {std::move(t), number};
    active[at].task.handle().resume();
  };
  const auto collect = [&] {
    while (finished) {
      const std::size_t at = finished->index();
      finished = finished->next_finished();
      running done = std::move(active[at]);
      unused.push_back(at);
      try {
        if constexpr (has_values)
          values[done.number].emplace(done.task.handle().promise().take());
        else
          done.task.handle().promise().take();
      } catch (...) {
        if (!failed) failed = std::current_exception();
      }
    }
  };

  auto next = std::ranges::begin(tasks);
  const auto end = std::ranges::end(tasks);
  for (std::size_t number = 0;;) {
    collect();
    const bool more = !failed && next != end;
    if (more && active.size() - unused.size() < in_flight) {
      try {
        start(task_type(std::ranges::iter_move(next)), number++);
        ++next;
      } catch (...) {
        if (!failed) failed = std::current_exception();
      }
    } else if (active.size() != unused.size()) {
      loop.turn();
    } else {
      break;
    }
  }
  loop.finish();
  if (failed) std::rethrow_exception(failed);
  if constexpr (has_values) {
    std::vector<value> out;
    out.reserve(values.size());
    for (auto& v : values) out.push_back(std::move(*v));
    return out;
  }
}

}  // namespace fm

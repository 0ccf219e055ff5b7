// Lines of letter boxes, and the record of what was sent; see letters.h.
#include "letters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mutator.h"

namespace fm::sim {

namespace {

// Of the virtual clock: nothing takes longer unless somebody is gone, and cycles without end go on meanwhile.
constexpr auto linger = std::chrono::milliseconds(5);
constexpr auto accept_within = std::chrono::milliseconds(5);

channel_options terms_of(const letter_options& o) {
  return {.window = std::uint64_t{o.part} * std::max(4u, o.window_parts / 2),
          .window_parts = o.window_parts,
          .part = o.part,
          .linger = linger};
}

}  // namespace

letter_box::letter_box(heap& from, heap& to, const std::string& name, const letter_options& options)
    : from_(from),
      options_(options),
      terms_(terms_of(options)),
      listener_(to, options.streams ? fmt::format("tcp://{}:1", name) : "sim://" + name, terms_) {}

letter_box::shared_line letter_box::stands() {
  const std::lock_guard one_at_a_time(connecting_);
  if (shut_) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (stands_) return stands_;
  }
  shared_line fresh = connect();
  const std::lock_guard lock(mutex_);
  stands_ = fresh;
  return fresh;
}

// An end whose connector gave up while it connected waits to be accepted, too, and is broken.
letter_box::shared_line letter_box::connect() {
  auto l = std::make_shared<line>();
  try {
    l->out = channel::connect(from_, listener_.url(), terms_);
    for (;;) {
      l->in = listener_.accept(accept_within);
      try {
        (void)l->in.readable();
        break;
      } catch (const error& e) {
        require_expected(e, nullptr, 0);
      }
    }
  } catch (const error& e) {
    if (!options_.breaks) throw;
    require_expected(e, nullptr, 0);
    return nullptr;
  }
  ++counts.lines;
  return l;
}

void letter_box::broke(const shared_line& l) {
  shared_line gone;
  const std::lock_guard lock(mutex_);
  if (stands_ == l) gone = std::move(stands_);  // `l` keeps it
}

bool letter_box::still_stands(const shared_line& l) {
  const std::lock_guard lock(mutex_);
  return stands_ == l;
}

std::uint64_t letter_box::sent(std::uint64_t sender, const shared_line& on, contents what) {
  const std::lock_guard lock(mutex_);
  records_.emplace(++last_, record{sender, on, std::move(what)});
  ++counts.sent;
  return last_;
}

void letter_box::accepted(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  records_.at(number).accepted = true;
  ++counts.accepted;
}

contents letter_box::came(std::uint64_t number, const shared_line& on) {
  const std::lock_guard lock(mutex_);
  const auto it = records_.find(number);
  if (it == records_.end()) wrong("a letter came that nobody has sent", number);
  record& r = it->second;
  if (std::exchange(r.came, true)) wrong("a letter came twice", number);
  if (r.on.lock() != on) wrong("a letter came on another line", number);
  std::uint64_t& last = on->came[r.sender];
  if (last >= number) wrong("a letter came out of order", number);
  last = number;
  ++counts.came;
  counts.came_objects += r.what.objects();
  return std::move(r.what);
}

void letter_box::require_all_came() {
  const std::lock_guard lock(mutex_);
  if (options_.may_lose_agents) return;  // it may have come, and its number be lost
  for (const auto& [number, r] : records_)
    if (r.accepted && !r.came) wrong("a letter was accepted and has not come", number);
}

void letter_box::require_expected(const error& e, const contents* what, std::uint64_t objects_max) const {
  switch (e.code()) {
    case errc::timed_out: return;
    case errc::disconnected:
    case errc::unreachable:
      if (options_.breaks) return;
      break;
    case errc::too_large:  // of a receive: as its sender says
      if (what == nullptr || what->changes || what->objects() > objects_max) return;
      break;
    // The slot of what was changed may be another object's by now.
    case errc::corrupt:
    case errc::bad_frame:
      if (options_.changes) return;
      break;
    default: break;
  }
  if (options_.may_lose_agents && is_loss(e.code())) return;
  throw disagreement(fmt::format("a channel gave an error that it had no reason for: {}", e.what()));
}

}  // namespace fm::sim

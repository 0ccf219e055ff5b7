// pool::read_many: the first attempts of many reads in flight at a time. Where an attempt does not find its object, the
// read goes on as any other, by itself.
//
// Invariant owned here: a section of each agent is open from before its requests are posted until they are done, so no
// frame that they read is used again meanwhile. Nothing else is waited for in it.
#include <algorithm>
#include <optional>

#include "base/pool_limits.h"
#include "pool_impl.h"

namespace fm {

using namespace pool_detail;

namespace {

/// One item of a round.
struct flight {
  agent_client* agent = nullptr;
  pool_read_item* item = nullptr;
  std::uint64_t word = 0;
  pool_read how = pool_read::failed;
  bool posted = false;
  target to;
  std::size_t staged_at = 0;
  probe attempt;
};

/// Looks up where the item goes; whether there is something to be posted for it.
bool aim(reader r, flight& f) {
  f.word = r.word_of(f.item->at.block());
  f.how =
      f.word == 0 ? pool_read::unknown : r.prepare(f.attempt, f.word, f.item->at.hint(), identity_of(f.item->at), f.to);
  return f.how == pool_read::ok && f.attempt.goes_at_once();
}

void fly(std::span<flight> round) {
  const detail::section_break outside;
  std::vector<std::optional<class sections::guard>> held(round.size());
  for (std::size_t i = 0; i < round.size(); ++i) {
    flight& f = round[i];
    if (!f.posted) continue;
    const bool first = std::none_of(round.begin(), round.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const flight& before) { return before.posted && before.agent == f.agent; });
    if (first) held[i].emplace(f.agent->sections());
    f.attempt.tenure = f.agent->tenure();
    f.attempt.post(f.agent->session());
  }
  for (flight& f : round) {
    if (!f.posted) continue;
    bool good = true;
    for (std::size_t i = 0; i < f.attempt.requests.count; ++i) {
      fabric::request& r = f.attempt.requests.requests[i];
      f.agent->session().wait(r);
      good = good && r.status == errc::ok;
    }
    f.how = good ? pool_read::ok : pool_read::failed;
  }
}

}  // namespace

void pool::read_many_into(std::span<pool_read_item> items) {
  std::vector<std::byte> staging;
  while (!items.empty()) {
    const std::span<pool_read_item> some = items.first(std::min(items.size(), pool_limits::read_many_round));
    items = items.subspan(some.size());
    std::vector<flight> round(some.size());
    const due until(clock::now() + impl_->options.access_within);  // of all that one round waits for
    std::size_t staged = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      flight& f = round[i];
      f.item = &some[i];
      f.agent = impl_->agent_of(f.item->at);
      f.item->code = f.agent == nullptr                                  ? impl_->foreign(f.item->at)
                     : f.item->to.size() > f.agent->layout().bytes_max() ? errc::layout_mismatch
                                                                         : errc::ok;
      if (f.item->code != errc::ok) continue;
      f.to = {f.item->to.data(), static_cast<std::uint32_t>(f.item->to.size())};
      if (f.agent->synchronous()) continue;  // there is nothing to wait for
      f.posted = aim(impl_->reader_of(*f.agent, until), f);
      f.staged_at = staged;
      if (f.posted) staged += f.attempt.staging_bytes();
    }
    staging.resize(std::max(staging.size(), staged));
    for (flight& f : round)
      if (f.posted) reader::fill(f.attempt, f.to, staging.data() + f.staged_at);
    fly(round);
    for (flight& f : round) {
      if (f.item->code != errc::ok) continue;
      reader r = impl_->reader_of(*f.agent, until);
      if (!f.posted) {
        f.item->code = r.read(f.item->at, f.to, nullptr);
        continue;
      }
      if (f.how == pool_read::ok) f.how = r.tenure_held(f.attempt.tenure) ? r.finish(f.attempt, f.to) : pool_read::torn;
      if (f.how == pool_read::ok)
        f.agent->sections().mine().direct.fetch_add(1, std::memory_order_relaxed);
      else
        f.item->code = r.settle(f.item->at, f.to, f.word, f.how, nullptr);
    }
  }
}

}  // namespace fm

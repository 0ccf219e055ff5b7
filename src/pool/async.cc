// pool::read_async: a first attempt that nobody waits for. Its last completion closes the section and tells whoever
// awaits it; the thread that takes the result judges it, and goes on as any other read if the object was not there.
//
// Invariants owned here
//   - A read in flight keeps itself alive, and a section of its agent open, until all its requests are done.
//   - A completion does nothing that waits: it runs on the session's thread.
#include <farmem/pool/operation.h>

#include <optional>

#include "pool_impl.h"

namespace fm {

using namespace pool_detail;

namespace {

struct async_read final : detail::pool_transfer {
  agent_client* agent = nullptr;
  errc refused = errc::ok;  ///< before anything was posted
  std::uint64_t word = 0;
  pool_read how = pool_read::failed;
  bool taken = false;
  errc outcome = errc::ok;  ///< once it is taken
  target to;
  std::vector<std::byte> staged;
  probe attempt;
  std::atomic<bool> failed{false};
  std::atomic<std::size_t> left{0};  ///< requests in flight
  std::optional<class sections::guard> section;
  std::shared_ptr<async_read> self;  ///< while requests are in flight

  static void completed(fabric::request& r) noexcept {
    auto& mine = *static_cast<async_read*>(r.context);
    if (r.status != errc::ok) mine.failed.store(true, std::memory_order_relaxed);
    if (mine.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const std::shared_ptr<async_read> keep = std::move(mine.self);
    if (mine.failed.load(std::memory_order_relaxed))
      mine.how = pool_read::failed;
    else if (!mine.agent->lease_holds() || mine.agent->tenure() != mine.attempt.tenure)
      mine.how = pool_read::torn;
    mine.section.reset();
    mine.happen();
  }
};

}  // namespace

std::shared_ptr<detail::pool_transfer> pool::start_read(const pool_address& p, std::size_t bytes) {
  auto read = std::make_shared<async_read>();
  async_read& r = *read;
  r.at = p;
  r.agent = impl_->agent_of(p);
  r.refused = r.agent == nullptr                      ? impl_->foreign(p)
              : bytes > r.agent->layout().bytes_max() ? errc::layout_mismatch
                                                      : errc::ok;
  const auto over = [&] {
    r.happen();
    return read;
  };
  if (r.refused != errc::ok) return over();
  r.bytes.resize(bytes);
  r.to = {r.bytes.data(), static_cast<std::uint32_t>(bytes)};
  reader reads = impl_->reader_of(*r.agent);
  if (r.agent->synchronous()) {  // there is nothing to wait for
    r.outcome = reads.read(r.at, r.to, nullptr);
    r.taken = true;
    return over();
  }
  r.word = reads.word_of(p.block());
  r.how = r.word == 0 ? pool_read::unknown : reads.prepare(r.attempt, r.word, p.hint(), identity_of(p), r.to);
  if (r.how != pool_read::ok) return over();
  if (!r.attempt.goes_at_once()) {
    r.how = pool_read::torn;  // so that it is made when the result is taken
    return over();
  }
  r.staged.resize(r.attempt.staging_bytes());
  reader::fill(r.attempt, r.to, r.staged.data());
  for (std::size_t i = 0; i < r.attempt.requests.count; ++i) {
    r.attempt.requests.requests[i].on_done = async_read::completed;
    r.attempt.requests.requests[i].context = &r;
  }
  const detail::section_break outside;
  r.left.store(r.attempt.requests.count, std::memory_order_relaxed);
  r.self = read;
  r.section.emplace(r.agent->sections());
  r.attempt.tenure = r.agent->tenure();
  r.attempt.post(r.agent->session());
  return read;
}

errc pool::finish_read(detail::pool_transfer& t) noexcept {
  auto& r = static_cast<async_read&>(t);
  if (r.refused != errc::ok) return r.refused;
  if (r.taken) return r.outcome;
  r.taken = true;
  reader reads = impl_->reader_of(*r.agent);
  if (r.how == pool_read::ok) r.how = reads.finish(r.attempt, r.to);
  if (r.how == pool_read::ok)
    r.agent->sections().mine().direct.fetch_add(1, std::memory_order_relaxed);
  else
    r.outcome = reads.settle(r.at, r.to, r.word, r.how, nullptr);
  return r.outcome;
}

}  // namespace fm

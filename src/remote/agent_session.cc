// Opening and closing a session with an agent, its introspection, and the wait-free part of reading.
// See agent_session_impl.h for the map of the files, the locks and the states of batches.
// Called by src/heap, src/cache and src/collector, on any thread.
#include "agent_session.h"

#include "base/base.h"
#include <algorithm>

#include "agent_session_impl.h"

namespace fm::remote {

std::unique_ptr<agent_session> agent_session::open(const std::string& url, const agent_session_options& options) {
  auto l = std::make_unique<internal::agent_session_impl>(options);
  l->start(url);
  return l;
}

namespace internal {

agent_session_impl::agent_session_impl(const agent_session_options& options) : options_(options) {
  send_list_.reserve(detail::limits::batches_sent_at_once * 3);
}

agent_session_impl::~agent_session_impl() { close(); }

void agent_session_impl::start(const std::string& url) {
  url_ = url;
  if (options_.heap_name.size() >= sizeof(open_heap_body::name))
    throw error(errc::invalid_argument, url + ": the heap's name \"" + options_.heap_name + "\" is too long");
  if (options_.batches_in_flight == 0) throw error(errc::invalid_argument, url + ": batches_in_flight is 0");
  try {
    session_owner_ = fabric::connect(url, options_.session, *this, options_.in_process);
  } catch (const error&) {
    // The session only knows that its owner gave up; what the agent said is here.
    if (refused_ != errc::ok) throw error(refused_, url + ": " + refusal_);
    throw;
  }
  session_.store(session_owner_.get(), std::memory_order_release);
  keeper_ = std::thread([this] { keep(); });
}

void agent_session_impl::end(ended how, errc why) noexcept {
  {
    const lock_type lock(mutex_);
    if (ended_.load(std::memory_order_relaxed) != ended::no) return;
    ended_.store(how);  // seq_cst: see lost()
    changed_.notify_all();
    wake_keeper();
  }
  // Whoever hears that a batch failed may look for why.
  if (how == ended::lost && options_.on_lost) options_.on_lost(options_.context, why);
  deliver();
}

void agent_session_impl::close_as(ended how) noexcept {
  std::call_once(closed_once_, [this, how] {
    if (!session_owner_) return;
    end(how, errc::heap_closed);
    const bool keeps = how == ended::closed && keeps_heap_.load(std::memory_order_relaxed);
    if (ended_.load() == how && !keeps && session_owner_->state() == fabric::session_state::up) {
      auto message = frame_empty(message_type::close_heap);
      fabric::request r;
      make_message(r, fabric::lane::control, &message, sizeof message);
      r.deadline = clock::now() + std::min<duration>(options_.session.operation_within, std::chrono::seconds(2));
      session_owner_->post(r);
      session_owner_->wait(r);
    }
    session_owner_->close();
    {
      const lock_type lock(mutex_);
      stopping_ = true;
      wake_keeper();
    }
    keeper_.join();
    deliver();
    for (const auto& f : flights_owned_)
      if (f->staging) session_owner_->take_back(f->staging.get(), f->staging_bytes, true);
  });
}

std::uint32_t agent_session_impl::usable_generation() const noexcept {
  const std::uint32_t g = resumed_.load(std::memory_order_acquire);
  const fabric::session* s = session_.load(std::memory_order_acquire);
  // The generation first: a session that is up after that has been up in this one. The other way round it could still
  // be opening, and a request that it does not admit yet would be taken for the break of a connection that stands.
  const bool up = g > broken_.load(std::memory_order_acquire) && ended_.load(std::memory_order_acquire) == ended::no &&
                  s->generation() == g && s->state() == fabric::session_state::up;
  return up ? g : 0;
}

bool agent_session_impl::prepare_read(fabric::request& r, const detail::home_address& from, void* to,
                                      std::size_t bytes) noexcept {
  if (from.generation == 0 || table_.generation(from.region) != from.generation) return false;
  if (from.offset >= region_bytes_) return false;
  r.kind = fabric::op_kind::read;
  r.on = fabric::lane::fetch;
  r.fence = false;
  r.sg_count = 1;
  // A size class may cover more than the object, and more than the region has.
  r.sg[0] = {.data = to, .bytes = std::min<std::size_t>(bytes, region_bytes_ - from.offset)};
  r.where = {.region = from.region, .generation = from.generation, .offset = from.offset};
  be_patient(r);
  return true;
}

void agent_session_impl::detach_all() noexcept {
  std::array<std::uint32_t, 64> regions;
  for (std::size_t n = regions.size(); n == regions.size();) {
    n = 0;
    {
      const lock_type lock(mutex_);
      FM_CHECK(ended_.load(std::memory_order_relaxed) != ended::no, "memory of a session that lives is in use");
      for (auto at = book_.all().begin(); n < regions.size() && at != book_.all().end(); ++at) regions[n++] = at->first;
      for (std::size_t i = 0; i < n; ++i) book_.forget(regions[i], book_.find(regions[i])->generation);
    }
    for (std::size_t i = 0; i < n; ++i) session().detach(regions[i]);
  }
}

std::uint32_t agent_session_impl::batches_in_flight() const noexcept {
  const lock_type lock(mutex_);
  return in_flight_;
}

agent_session_stats agent_session_impl::stats() const noexcept {
  agent_session_stats s;
  s.batches = count_.batches.load(std::memory_order_relaxed);
  s.batch_bytes = count_.batch_bytes.load(std::memory_order_relaxed);
  s.objects_written = count_.objects.load(std::memory_order_relaxed);
  s.fetches_by_slot = count_.fetches.load(std::memory_order_relaxed);
  s.reconnects = count_.reconnects.load(std::memory_order_relaxed);
  s.batches_resent = count_.resent.load(std::memory_order_relaxed);
  s.retired = count_.retired.load(std::memory_order_relaxed);
  if (session_owner_) s.bytes_bounced = session_owner_->bounced_bytes();
  const lock_type lock(mutex_);
  s.regions = book_.size();
  s.errands_most = errands_most_;
  for (const auto& f : flights_owned_) s.buffer_bytes += sizeof(flight) + f->staging_bytes;
  return s;
}

}  // namespace internal
}  // namespace fm::remote

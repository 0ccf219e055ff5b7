// Sending a graph, receiving one, and opening and closing channels; see core.h. Also the untyped members of fm::channel
// and fm::channel_listener. Owns the order of things: a graph that was begun is sent to its end or given up, and one
// that was received is judged exactly once.
#include "core.h"
#include "base/channel_limits.h"
#include "heap/heap_core.h"
#include <farmem/detail/barriers/section_break.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "session_transport.h"
#include "socket_transport.h"

namespace fm {
namespace detail {

namespace {

class sink final : public part_sink {
 public:
  sink(sender& to, time_point deadline) : to_(to), deadline_(deadline) {}
  std::span<char> next(std::size_t used) override {
    if (has_room_) to_.send_part(used, false, 0, deadline_);
    has_room_ = false;
    const std::span<char> room = to_.part_room(deadline_);
    has_room_ = true;
    return room;
  }
  [[nodiscard]] std::uint64_t lends_from() const noexcept override { return to_.lends_from(); }
  bool lend(std::size_t used, std::span<const char> bytes) noexcept override { return to_.lend(used, bytes); }

 private:
  sender& to_;
  const time_point deadline_;
  bool has_room_ = false;
};

class source final : public part_source {
 public:
  /// `copy`: where parts are copied to before they are shown, if they are.
  source(receiver& from, receiver::arrival first, time_point deadline, std::vector<std::byte>* copy)
      : from_(from), graph_(first.head.number), current_(first), deadline_(deadline), copy_(copy) {}
  part next() override {
    if (current_.rest != 0) {
      from_.more_of(current_, deadline_);
      return shown(0);
    }
    done();
    current_ = from_.next_part(graph_, deadline_);
    held_ = true;
    return shown(0);
  }
  std::uint64_t next_into(std::span<std::byte> to, bool& last) override {
    if (current_.rest == 0) return 0;
    const std::uint64_t n = from_.more_into(current_, to, deadline_);
    last = last_seen() && current_.rest == 0;
    return n;
  }
  [[nodiscard]] part shown(std::size_t skip) {
    std::span<const std::byte> bytes = current_.here.subspan(skip);
    if (copy_ != nullptr) {
      copy_->assign(bytes.begin(), bytes.end());
      bytes = *copy_;
      done();
    }
    return {bytes, last_seen() && current_.rest == 0, current_.head.b};
  }
  [[nodiscard]] bool last_seen() const noexcept { return (current_.head.flags & channel_wire::flag_last) != 0; }
  [[nodiscard]] const receiver::arrival& current() const noexcept { return current_; }
  [[nodiscard]] std::uint64_t graph() const noexcept { return graph_; }
  void done() {
    if (held_) from_.consumed(current_);
    held_ = false;
  }

 private:
  receiver& from_;
  const std::uint64_t graph_;
  receiver::arrival current_;
  const time_point deadline_;
  std::vector<std::byte>* const copy_;
  bool held_ = true;
};

}  // namespace

template <class Write>
void channel_core::send_graph(const graph_schema& schema, const send_options& o, std::uint16_t flags, Write&& write) {
  const section_break outside;
  section_break::require_left("a send on a channel");
  const time_point deadline = clock::now() + o.within;
  const std::lock_guard lock(sending_);
  if (o.acyclic) flags |= channel_wire::flag_acyclic;
  if (o.until == delivery::accepted) flags |= channel_wire::flag_wanted;
  sender& out = end_->sending();
  const std::uint64_t graph = out.begin_graph(schema, flags);
  std::uint64_t objects = 0;
  try {
    sink s(out, deadline);
    graph_writer w(schema, {o.objects_max, o.bytes_max}, o.acyclic, s);
    write(w);
    objects = w.objects();
    out.send_part(w.used(), true, objects, deadline);
  } catch (const error& e) {
    out.abort_graph(e.code(), e.what());
    throw;
  } catch (const std::bad_alloc&) {
    out.abort_graph(errc::out_of_memory, "the sender's memory");
    throw error(errc::out_of_memory, fmt::format("sending a graph with a '{}' as its root", schema.root));
  } catch (...) {
    out.abort_graph(errc::cancelled, "a function of the sender's program threw");
    throw;
  }
  end_->count_graph(true, objects);
  if (o.until == delivery::accepted) out.wait_verdict(graph, deadline);
}

void channel_core::send(slot_t root, const graph_schema& schema, const send_options& o) {
  if (root == 0) throw error(errc::null_handle, "a null handle is sent");
  const ptr<char[]> kept = ptr<char[]>::from_slot(root);
  send_graph(schema, o, 0, [&](graph_writer& w) { w.write(root); });
}

void channel_core::send_each(std::span<const slot_t> roots, const graph_schema& schema, const send_options& o) {
  std::vector<ptr<char[]>> kept;
  kept.reserve(roots.size());
  for (const slot_t s : roots) kept.push_back(ptr<char[]>::from_slot(s));
  send_graph(schema, o, channel_wire::flag_each, [&](graph_writer& w) { w.write_each(roots); });
}

const graph_evolution* channel_core::evolution_for(const graph_schema& schema, std::uint64_t hash,
                                                   time_point deadline) {
  if (hash == schema.hash) return nullptr;
  const auto key = std::pair(&schema, hash);
  auto known = compared_.find(key);
  if (known == compared_.end()) {
    const std::string theirs = end_->receiving().ask_description(hash, deadline);
    compared c;
    try {
      c.how = evolve(schema, theirs);
    } catch (const error& e) {
      c.why_not = fmt::format("channel with {}: {}", end_->name(), e.what());
      if (theirs.empty()) throw error(e.code(), c.why_not);  // it may still come
    }
    if (compared_.size() >= channel_limits::compared_max) compared_.clear();
    known = compared_.emplace(key, std::move(c)).first;
  }
  if (!known->second.how) throw error(errc::layout_mismatch, known->second.why_not);
  return &*known->second.how;
}

template <class Read>
auto channel_core::recv_graph(const graph_schema& schema, const recv_options& o, bool each, Read&& read) {
  const section_break outside;
  section_break::require_left("a receive from a channel");
  const time_point deadline = clock::now() + o.within;
  const std::lock_guard lock(receiving_);
  receiver& in = end_->receiving();
  // Objects are read one by one, and where another core has just written that means to wait for every line; a copy
  // streams.
  const bool many = end_->in_shared_memory() && (schema.types.size() > 1 || schema.types.front().has_refs());
  source parts(in, in.first_part(deadline), deadline, many ? &part_ : nullptr);
  const auto refuse = [&](errc code, const char* text) {
    parts.done();
    in.judge(parts.graph(), code, text, parts.last_seen());
    if (code == errc::bad_frame) in.found_bad(text);
  };
  try {
    const channel_wire::head& h = parts.current().head;
    std::uint64_t hash = 0;
    std::memcpy(&hash, parts.current().here.data(), 8);
    const graph_evolution* const evolution = evolution_for(schema, hash, deadline);
    if (((h.flags & channel_wire::flag_each) != 0) != each)
      throw error(errc::layout_mismatch,
                  fmt::format("channel with {}: {} '{}' where {} wanted", end_->name(),
                              each ? "one root, a" : "many roots, each a", schema.root, each ? "many are" : "one is"));
    graph_reader reader(cache_, schema, {options_.objects_max, options_.bytes_max},
                        (h.flags & channel_wire::flag_acyclic) != 0, parts, evolution);
    auto out = read(reader, parts.shown(8));
    parts.done();
    end_->count_graph(false, reader.objects());
    in.judge(parts.graph(), errc::ok, {}, true);
    return out;
  } catch (const sender_gave_up& e) {
    parts.done();
    in.judge(parts.graph(), errc::ok, {}, true);  // it knows
    throw error(e.code, e.text);
  } catch (const error& e) {
    refuse(e.code(), e.what());
    throw;
  } catch (const std::bad_alloc&) {
    refuse(errc::out_of_memory, "the receiver's memory");
    throw error(errc::out_of_memory, fmt::format("receiving a graph with a '{}' as its root", schema.root));
  } catch (...) {
    refuse(errc::cancelled, "a function of the receiver's program threw");
    throw;
  }
}

ptr<char[]> channel_core::recv(const graph_schema& schema, const recv_options& o) {
  return recv_graph(schema, o, false, [](graph_reader& r, const part_source::part& first) { return r.read(first); });
}

std::vector<ptr<char[]>> channel_core::recv_each(const graph_schema& schema, const recv_options& o) {
  return recv_graph(schema, o, true,
                    [](graph_reader& r, const part_source::part& first) { return r.read_each(first); });
}

bool channel_core::next_is(const graph_schema& schema, duration within) {
  const section_break outside;
  const std::lock_guard lock(receiving_);
  const std::optional<std::uint64_t> hash = end_->receiving().peek(clock::now() + within);
  if (!hash) return false;
  try {
    // The graph is here, and its sender answers at once or not at all.
    evolution_for(schema, *hash, clock::now() + std::max<duration>(within, channel_limits::word_within));
    return true;
  } catch (const error& e) {
    if (e.code() != errc::layout_mismatch) throw;
    return false;
  }
}

bool channel_core::readable(duration within) {
  const section_break outside;
  const std::lock_guard lock(receiving_);
  return end_->receiving().peek(clock::now() + within).has_value();
}

void channel_core::flush(duration within) {
  const section_break outside;
  const time_point deadline = clock::now() + within;
  if (!send_worker_.drain(deadline))
    throw error(errc::timed_out,
                fmt::format("channel with {}: sends that were begun by send_async are not over", end_->name()));
  end_->sending().wait_verdict(end_->sending().last_graph(), deadline);
}

std::shared_ptr<transfer> channel_core::send_async(slot_t root, const graph_schema& schema, const send_options& o) {
  if (root == 0) throw error(errc::null_handle, "a null handle is sent");
  const time_point deadline = clock::now() + o.within;
  const section_break outside;
  ptr<char[]> kept;
  if (!mutated(mutation::queue_unrooted)) kept = ptr<char[]>::from_slot(root);
  return send_worker_.begin(deadline, [this, root, kept = std::move(kept), &schema, o, deadline](transfer&) {
    send_options left = o;
    left.within = deadline - clock::now();
    send(root, schema, left);
  });
}

std::shared_ptr<transfer> channel_core::recv_async(const graph_schema& schema, const recv_options& o) {
  const time_point deadline = clock::now() + o.within;
  const section_break outside;
  return receive_worker_.begin(
      deadline, [this, &schema, deadline](transfer& t) { t.root = recv(schema, {.within = deadline - clock::now()}); });
}

void channel_core::close() noexcept {
  const section_break outside;
  const time_point deadline = clock::now() + options_.linger;
  (void)send_worker_.drain(deadline);
  {
    const std::unique_lock no_send(sending_, std::try_to_lock);
    end_->close(std::max(duration{}, duration(deadline - clock::now())), !no_send.owns_lock());
  }
  send_worker_.stop();
  receive_worker_.stop();
}

// ---- the untyped part of fm::channel ----

namespace {

/// Ends a channel. Of one that a parent has opened, threads and connections are not in this child.
void drop(std::unique_ptr<channel_core>& core) noexcept {
  if (core && core->is_parents()) (void)core.release();
  const section_break outside;  // it waits for its peer and for its threads
  core.reset();
}

}  // namespace

channel_base::channel_base() noexcept = default;
channel_base::channel_base(std::unique_ptr<channel_core> core) noexcept : core_(std::move(core)) {}
channel_base::channel_base(channel_base&& o) noexcept = default;
channel_base& channel_base::operator=(channel_base&& o) noexcept {
  if (this != &o) {
    drop(core_);
    core_ = std::move(o.core_);
  }
  return *this;
}
channel_base::~channel_base() { drop(core_); }

channel_core& channel_base::core() const {
  if (!core_) throw error(errc::null_handle, "the channel is not connected");
  if (core_->is_parents())
    throw error(errc::disconnected, "a channel of the parent is used in a child after fork, which can open its own");
  return *core_;
}

void channel_base::send(slot_t root, const graph_schema& schema, const send_options& o) {
  core().send(root, schema, o);
}
void channel_base::send_each(std::span<const slot_t> roots, const graph_schema& schema, const send_options& o) {
  core().send_each(roots, schema, o);
}
ptr<char[]> channel_base::recv(const graph_schema& schema, const recv_options& o) { return core().recv(schema, o); }
std::vector<ptr<char[]>> channel_base::recv_each(const graph_schema& schema, const recv_options& o) {
  return core().recv_each(schema, o);
}
std::shared_ptr<transfer> channel_base::send_async(slot_t root, const graph_schema& schema, const send_options& o) {
  return core().send_async(root, schema, o);
}
std::shared_ptr<transfer> channel_base::recv_async(const graph_schema& schema, const recv_options& o) {
  return core().recv_async(schema, o);
}
bool channel_base::next_is(const graph_schema& schema, duration within) { return core().next_is(schema, within); }
bool channel_base::readable(duration within) { return core().readable(within); }
void channel_base::flush(duration within) { core().flush(within); }
void channel_base::close() noexcept {
  if (core_ && !core_->is_parents()) core_->close();
}
channel_stats channel_base::stats() const { return core().end().stats(); }
std::string channel_base::peer() const { return core().end().name(); }

}  // namespace detail

namespace {

/// Whether a URL names a process of this machine, by its text.
bool stays_here(std::string_view url) {
  if (url.starts_with("local:")) return true;
  const result<fabric::address> a = fabric::parse_url(url);
  return a && fabric::stays_on_host(*a);
}

/// The limits that hold where the program has set none.
channel_options with_limits(channel_options o, bool same_machine) {
  using namespace detail::channel_limits;
  if (o.objects_max == 0) o.objects_max = same_machine ? objects_max : strangers_objects_max;
  if (o.bytes_max == 0) o.bytes_max = same_machine ? bytes_max : strangers_bytes_max;
  return o;
}

}  // namespace

channel channel::connect(heap& h, std::string_view url, const channel_options& options) {
  const detail::section_break outside;
  std::shared_ptr<detail::channel_listener_core> local;
  if (url.starts_with("local:")) local = detail::channel_listener_core::find(url);
  auto end = std::make_shared<detail::endpoint>(detail::channel_terms::of(options), std::string(url));
  auto transport = std::make_unique<detail::session_transport>(*end, local ? "local:" : url, options);
  detail::session_transport& way = *transport;
  end->set_transport(std::move(transport));
  way.connect(local.get());
  return channel(detail::channel_base(std::make_unique<detail::channel_core>(
      h.core().cache(), with_limits(options, stays_here(url)), std::move(local), std::move(end))));
}

channel channel::adopt(heap& h, int fd, const channel_options& options) {
  const detail::section_break outside;
  os::descriptor socket(fd);
  detail::channel_terms terms = detail::channel_terms::of(options);
  auto transport =
      std::make_unique<detail::socket_transport>(std::move(socket), terms, clock::now() + options.connect_within);
  detail::socket_transport& way = *transport;
  auto end = std::make_shared<detail::endpoint>(terms, way.name());
  end->set_transport(std::move(transport));
  way.start(*end);
  return channel(detail::channel_base(
      std::make_unique<detail::channel_core>(h.core().cache(), with_limits(options, false), nullptr, std::move(end))));
}

// ---- the listener ----

struct channel_listener::state {
  detail::object_cache& cache;
  channel_options options;
  std::shared_ptr<detail::channel_listener_core> core;
  ~state() { core->shut(); }
};

channel_listener::channel_listener(heap& h, std::string_view url, const channel_options& options)
    : state_(new state{h.core().cache(), options, detail::channel_listener_core::open(url, options)}) {}
channel_listener::channel_listener(channel_listener&&) noexcept = default;
channel_listener& channel_listener::operator=(channel_listener&& o) noexcept {
  const detail::section_break outside;  // the listener that was here waits for its threads
  state_ = std::move(o.state_);
  return *this;
}
channel_listener::~channel_listener() {
  const detail::section_break outside;
  state_.reset();
}

const std::string& channel_listener::url() const noexcept { return state_->core->url(); }

channel channel_listener::accept(duration within) {
  if (state_->core->is_parents())
    throw error(errc::cancelled, fmt::format("{}: a child after fork accepts nothing of its parent's", url()));
  const detail::section_break outside;
  bool shut = false;
  std::shared_ptr<detail::endpoint> end = state_->core->accept(clock::now() + within, shut);
  if (!end)
    throw error(shut ? errc::cancelled : errc::timed_out,
                fmt::format("{}: {}", url(), shut ? "the listener is closed" : "nobody has connected"));
  return channel(detail::channel_base(std::make_unique<detail::channel_core>(
      state_->cache, with_limits(state_->options, stays_here(url())), state_->core, std::move(end))));
}

void channel_listener::close() noexcept {
  const detail::section_break outside;
  state_->core->shut();
}

}  // namespace fm

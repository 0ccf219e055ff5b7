// Building a half, and the shuffle; see half.h.
#include "half.h"

#include <fmt/format.h>

#include "../support/machine.h"

namespace fm::example {

namespace {

constexpr std::uint64_t chunk_values = 4096;
constexpr auto shuffle_within = std::chrono::minutes(10);  // the other half may be slower

double seconds_since(fm::time_point begin) { return std::chrono::duration<double>(fm::clock::now() - begin).count(); }

[[noreturn]] void throw_nonsense(const std::string& what) {
  throw fm::error(fm::errc::bad_frame, "the other half: " + what);
}

}  // namespace

half::half(fm::heap& h, const edge_source& edges, unsigned mine, fm::channel& other)
    : heap_(h), other_(other), own_(h), stand_ins_(h), wanted_(h) {
  // Only until the names are exchanged: then the next collection frees it.
  const fm::hash_map<std::uint64_t, fm::ref<vertex>> by_id(h);
  const auto vertex_of = [&](std::uint64_t id) {
    return by_id.get_or_insert(id, [&] {
      const fm::ptr<vertex> v = h.make<vertex>({.id = id});
      (half_of(id) == mine ? own_ : stand_ins_).push_back(v);
      return v;
    });
  };
  edges.for_each([&](const edge& e) {
    if (half_of(e.from) == mine) {
      const fm::ptr<vertex> from = vertex_of(e.from), to = vertex_of(e.to);
      vertex_list out = from->out.root();
      if (!out) {
        out = vertex_list(h);
        from.write()->out = out;
      }
      out.push_back(to);
      ++edges_;
    } else if (half_of(e.to) == mine) {
      vertex_of(e.to);
    }
    return !stop_requested.load(std::memory_order_relaxed);
  });
  if (stop_requested) throw fm::error(fm::errc::cancelled, "interrupted");

  const fm::ptr<shuffle> theirs = exchange(make_shuffle(stand_ins_, true, 0, &vertex::rank));
  total_ = vertices() + theirs->vertices;
  read(theirs, [&](std::span<const std::uint64_t> ids, std::span<const double>) {
    for (const std::uint64_t id : ids) {
      const fm::ptr<vertex> v = by_id.find(id);
      if (!v || half_of(id) != mine) throw_nonsense(fmt::format("vertex {} is not in this half", id));
      wanted_.push_back(v);
    }
  });
  const double rank = 1 / double(total_);
  for_each_vertex(own_, [&](const fm::ptr<vertex>& v) { v.write()->rank = rank; });
}

fm::ptr<shuffle> half::make_shuffle(const vertex_list& of, bool with_ids, double nowhere, double vertex::*value) const {
  const auto s =
      heap_.make<shuffle>({.iteration = iteration_, .vertices = own_.size(), .nowhere = nowhere, .values = of.size()});
  std::vector<std::uint64_t> ids;
  std::vector<double> values;
  fm::ptr<shuffle_chunk> last;
  const auto end_chunk = [&] {
    const auto c = heap_.make<shuffle_chunk>();
    c.write()->values = heap_.array(std::span(values));
    if (with_ids) c.write()->ids = heap_.array(std::span(ids));
    if (last)
      last.write()->next = c;
    else
      s.write()->chunks = c;
    last = c;
    ids.clear();
    values.clear();
  };
  for_each_vertex(of, [&](const fm::ptr<vertex>& v) {
    {
      const fm::read_pin at = v.read();
      ids.push_back(at->id);
      values.push_back(at.get()->*value);
    }
    if (values.size() == chunk_values) end_chunk();
  });
  if (!values.empty()) end_chunk();
  return s;
}

fm::ptr<shuffle> half::exchange(const fm::ptr<shuffle>& mine) {
  const fm::time_point begin = fm::clock::now();
  auto sent = other_.send_async(mine, {.acyclic = true, .within = shuffle_within});
  fm::ptr<shuffle> theirs = other_.recv<shuffle>({.within = shuffle_within});
  sent.wait();
  waited_seconds_ += seconds_since(begin);
  if (theirs->iteration != iteration_) throw_nonsense(fmt::format("it is not in iteration {}", iteration_));
  return theirs;
}

void half::read(const fm::ptr<shuffle>& s,
                const std::function<void(std::span<const std::uint64_t>, std::span<const double>)>& f) {
  std::uint64_t values = 0;
  for (fm::ptr<shuffle_chunk> c = s->chunks.root(); c; c = c->next.root()) {
    const fm::ptr<std::uint64_t[]> ids = c->ids.root();
    const fm::ptr<double[]> numbers = c->values.root();
    if (!numbers) throw_nonsense("a chunk without values");
    const fm::read_pin v = numbers.read();
    if (ids) {
      const fm::read_pin i = ids.read();
      if (i->size() != v->size()) throw_nonsense("a chunk with another number of names");
      f(std::span(i->data(), i->size()), std::span(v->data(), v->size()));
    } else {
      f({}, std::span(v->data(), v->size()));
    }
    values += v->size();
  }
  if (values != s->values) throw_nonsense(fmt::format("{} values instead of {}", values, std::uint64_t{s->values}));
}

void half::iterate() {
  ++iteration_;
  double nowhere = 0;
  for_each_vertex(own_, [&](const fm::ptr<vertex>& v) {
    const double rank = v->rank;
    const vertex_list out = v->out.root();
    if (!out) {
      nowhere += rank;
      return;
    }
    const double share = rank / double(out.size());
    operations_ += out.size();
    for_each_vertex(out, [&](const fm::ptr<vertex>& to) { to.write()->sum += share; });
  });
  const fm::ptr<shuffle> theirs = exchange(make_shuffle(stand_ins_, false, nowhere, &vertex::sum));
  if (theirs->values != wanted_.size()) throw_nonsense("another number of values than vertices");
  std::uint64_t at = 0;
  read(theirs, [&](std::span<const std::uint64_t>, std::span<const double> values) {
    if (values.size() > wanted_.size() - at) throw_nonsense("more values than vertices");
    for (const double value : values) {
      const fm::ptr<vertex> v = wanted_[at++];
      v.write()->sum += value;
    }
  });
  nowhere += theirs->nowhere;
  const double base = (1 - damping + damping * nowhere) / double(total_);
  for_each_vertex(own_, [&](const fm::ptr<vertex>& v) {
    const fm::write_pin w = v.write();
    w->rank = base + damping * w->sum;
    w->sum = 0;
  });
  for_each_vertex(stand_ins_, [&](const fm::ptr<vertex>& v) { v.write()->sum = 0; });
  operations_ += 2 * own_.size() + 2 * stand_ins_.size() + wanted_.size();
}

void half::send_ranks() { other_.send(make_shuffle(own_, true, 0, &vertex::rank), {.within = shuffle_within}); }

void half::receive_ranks(const std::function<void(std::uint64_t, double)>& f) {
  read(other_.recv<shuffle>({.within = shuffle_within}),
       [&](std::span<const std::uint64_t> ids, std::span<const double> ranks) {
         for (std::size_t i = 0; i < ids.size(); ++i) f(ids[i], ranks[i]);
       });
}

void half::for_each_rank(const std::function<void(std::uint64_t, double)>& f) const {
  for_each_vertex(own_, [&](const fm::ptr<vertex>& v) { f(v->id, v->rank); });
}

}  // namespace fm::example

// Both ends of a channel that the benchmarks measure beside serializer_link: one graph of a shape in the sender's heap, the receiver as a
// worker, and a plain socket for its answers, which are not part of what is measured.
#pragma once

#include <span>

#include "../peers/serializers.h"
#include "managed.h"
#include "stream.h"

namespace fm::bench {

/// Of both ends.
constexpr std::uint64_t channel_cache_bytes = 512ull << 20;

/// Regions that are as large as they can be: an object is at most half of one.
inline fm::heap_options channel_heap() {
  return {.cache = channel_cache_bytes, .agents = {"local:"}, .local_memory = 2ull << 30, .local_region = 32ull << 20};
}

struct far_point {
  double x = 0, y = 0;
};
struct far_pair {
  std::int32_t number = 0;
  std::array<char, 5> text{};
};
inline double value_in(float v, const fm::scope&) { return v; }
inline double value_in(const far_point& p, const fm::scope&) { return p.x + p.y; }
inline double value_in(const far_pair& p, const fm::scope&) { return p.number + p.text[4]; }
inline double value_in(const fm::ref<far_point>& r, const fm::scope& s) { return value_in(*r.get(s), s); }

// A function of its own, as the peers' are: with a call after the loop, the compiler keeps the sum in memory throughout.
template <class T>
[[gnu::noinline]] double sum_of(std::span<const T> values, const fm::scope& s) {
  return sum_each(values.size(), [&](std::size_t i) { return value_in(values[i], s); });
}
template <class T>
double sum_of(const fm::ptr<T[]>& array) {
  const fm::scope s;
  const auto& a = *array.get(s);
  return sum_of(std::span<const T>(a.data(), a.size()), s);
}

/// One graph of a shape, in the sender's heap.
struct far_shape {
  shape kind = shape::floats;
  fm::ptr<float[]> floats;
  fm::ptr<far_point[]> points;
  fm::ptr<fm::ref<far_point>[]> point_objects;
  fm::ptr<far_pair[]> pairs;

  far_shape(fm::heap& h, shape s, std::size_t n) : kind(s) {
    switch (s) {
      case shape::floats: fill(floats = h.array<float>(n), [](std::size_t i) { return float_at(i); }); break;
      case shape::points:
        fill(points = h.array<far_point>(n), [](std::size_t i) { return far_point{point_at(i).x, point_at(i).y}; });
        break;
      case shape::point_objects:
        point_objects = h.array<fm::ref<far_point>>(n);
        for (std::size_t i = 0; i < n; ++i) {
          const auto p = h.make<far_point>(point_at(i).x, point_at(i).y);
          auto to = point_objects.write();
          (*to)[i] = p;
        }
        break;
      case shape::pairs:
        fill(pairs = h.array<far_pair>(n), [](std::size_t i) {
          const shape_pair p = pair_at(i);
          return far_pair{p.number, {p.text[0], p.text[1], p.text[2], p.text[3], p.text[4]}};
        });
        break;
    }
  }
  void send(fm::channel& to) const {
    const fm::send_options o{.until = fm::delivery::sent};
    switch (kind) {
      case shape::floats: to.send(floats, o); break;
      case shape::points: to.send(points, o); break;
      case shape::point_objects: to.send(point_objects, o); break;
      case shape::pairs: to.send(pairs, o); break;
    }
  }
  static double receive(fm::channel& from, shape kind) {
    const fm::recv_options o{.within = std::chrono::seconds(600)};
    switch (kind) {
      case shape::floats: return sum_of(from.recv<float[]>(o));
      case shape::points: return sum_of(from.recv<far_point[]>(o));
      case shape::point_objects: return sum_of(from.recv<fm::ref<far_point>[]>(o));
      case shape::pairs: return sum_of(from.recv<far_pair[]>(o));
    }
    return 0;
  }

 private:
  template <class T, class F>
  static void fill(const fm::ptr<T[]>& array, F&& of) {
    auto to = array.write();
    for (std::size_t i = 0; i < to->size(); ++i) (*to)[i] = of(i);
  }
};

/// The receiver as a worker: `channel_receiver shm|tcp`; list it in become_worker_if_asked. The first word over the socket is the shape.
int channel_receiver_main(const std::vector<std::string>& args);

/// The sender's end, as serializer_link is for the peers.
class channel_link {
 public:
  channel_link(fm::heap& h, const worker& receiver, bool tcp, shape kind)
      : answers_(stream::connect(tcp ? socket_kind::tcp : socket_kind::unix_domain,
                                 std::uint16_t(receiver.ready().at("answers")))) {
    const auto number = std::uint32_t(kind);
    if (!answers_.send(&number, sizeof number)) throw fm::error(fm::errc::disconnected, "the receiver");
    const std::string port = std::to_string(int(receiver.ready().at("port")));
    channel_ = fm::channel::connect(h, tcp ? "tcp://127.0.0.1:" + port : "shm:///tmp/farmem-bench-channel-" + port);
  }
  void send(const far_shape& s) { s.send(channel_); }
  double answer() {
    double sum = 0;
    if (!answers_.receive(&sum, sizeof sum)) throw fm::error(fm::errc::disconnected, "the receiver");
    return sum;
  }
  [[nodiscard]] fm::channel_stats stats() const { return channel_.stats(); }

 private:
  stream answers_;
  fm::channel channel_;
};

}  // namespace fm::bench

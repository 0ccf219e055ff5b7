// Cap'n Proto: built in its segments, read in place with bounds checked at every access. See serializers.h.
#include <capnp/message.h>
#include <capnp/serialize.h>

#include "serializers.h"
#include "shapes.capnp.h"

namespace fm::bench {
namespace {

class capnproto_serializer final : public serializer {
 public:
  std::string_view encode(const shape_data& from, std::string& out) override {
    capnp::MallocMessageBuilder m(1 << 17);
    switch (from.kind) {
      case shape::floats: {
        auto v = m.initRoot<peer_capnp::Floats>().initV(unsigned(from.floats.size()));
        for (unsigned i = 0; i < v.size(); ++i) v.set(i, from.floats[i]);
        break;
      }
      case shape::points: {
        auto v = m.initRoot<peer_capnp::Points>().initV(unsigned(from.points.size()));
        for (unsigned i = 0; i < v.size(); ++i) set(v[i], from.points[i]);
        break;
      }
      case shape::point_objects: {
        auto v = m.initRoot<peer_capnp::PointObjects>().initV(unsigned(from.point_objects.size()));
        for (unsigned i = 0; i < v.size(); ++i) set(v[i].initTo(), *from.point_objects[i]);
        break;
      }
      case shape::pairs: {
        auto v = m.initRoot<peer_capnp::Pairs>().initV(unsigned(from.pairs.size()));
        for (unsigned i = 0; i < v.size(); ++i) {
          auto to = v[i];
          to.setNumber(from.pairs[i].number);
          to.setText(kj::arrayPtr(reinterpret_cast<const kj::byte*>(from.pairs[i].text), sizeof from.pairs[i].text));
        }
        break;
      }
    }
    out.resize(capnp::computeSerializedSizeInWords(m) * sizeof(capnp::word));
    kj::ArrayOutputStream to(kj::arrayPtr(reinterpret_cast<kj::byte*>(out.data()), out.size()));
    capnp::writeMessage(to, m);
    return out;
  }
  double decode(shape kind, const char* data, std::size_t bytes) override {
    capnp::ReaderOptions any_size;
    any_size.traversalLimitInWords = std::uint64_t{1} << 32;
    capnp::FlatArrayMessageReader m(
        kj::arrayPtr(reinterpret_cast<const capnp::word*>(data), bytes / sizeof(capnp::word)), any_size);
    switch (kind) {
      case shape::floats: {
        const auto v = m.getRoot<peer_capnp::Floats>().getV();
        return sum_each(v.size(), [&](std::size_t i) -> double { return v[unsigned(i)]; });
      }
      case shape::points: {
        const auto v = m.getRoot<peer_capnp::Points>().getV();
        return sum_each(v.size(), [&](std::size_t i) { return value_of(v[unsigned(i)]); });
      }
      case shape::point_objects: {
        const auto v = m.getRoot<peer_capnp::PointObjects>().getV();
        return sum_each(v.size(), [&](std::size_t i) { return value_of(v[unsigned(i)].getTo()); });
      }
      case shape::pairs: {
        const auto v = m.getRoot<peer_capnp::Pairs>().getV();
        return sum_each(v.size(), [&](std::size_t i) -> double {
          return v[unsigned(i)].getNumber() + v[unsigned(i)].getText()[4];
        });
      }
    }
    return 0;
  }
  void take(const char* data, std::size_t bytes, std::vector<float>& to) override {
    capnp::FlatArrayMessageReader m(
        kj::arrayPtr(reinterpret_cast<const capnp::word*>(data), bytes / sizeof(capnp::word)));
    const auto v = m.getRoot<peer_capnp::Floats>().getV();
    to.resize(v.size());
    for (unsigned i = 0; i < v.size(); ++i) to[i] = v[i];
  }

 private:
  static void set(peer_capnp::Point::Builder to, const shape_point& p) {
    to.setX(p.x);
    to.setY(p.y);
  }
  static double value_of(peer_capnp::Point::Reader p) { return p.getX() + p.getY(); }
};

}  // namespace

std::unique_ptr<serializer> make_capnproto() { return std::make_unique<capnproto_serializer>(); }

}  // namespace fm::bench

// Boost.Serialization with its binary archives, without headers and tracking of what is not shared; see serializers.h.
#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>
#include <boost/iostreams/device/array.hpp>
#include <boost/iostreams/device/back_inserter.hpp>
#include <boost/iostreams/stream_buffer.hpp>
#include <boost/serialization/array.hpp>
#include <boost/serialization/is_bitwise_serializable.hpp>
#include <boost/serialization/unique_ptr.hpp>
#include <boost/serialization/vector.hpp>

#include "serializers.h"

// Points and pairs are copied as bytes where they lie in arrays: the fastest that it offers.
BOOST_IS_BITWISE_SERIALIZABLE(fm::bench::shape_pair)
BOOST_CLASS_IMPLEMENTATION(fm::bench::shape_pair, boost::serialization::object_serializable)
BOOST_CLASS_IMPLEMENTATION(fm::bench::shape_point, boost::serialization::object_serializable)

namespace boost::serialization {
template <class Archive>
void serialize(Archive& a, fm::bench::shape_point& p, unsigned) {
  a& p.x& p.y;
}
template <class Archive>
void serialize(Archive& a, fm::bench::shape_pair& p, unsigned) {
  a& p.number& p.text;
}
}  // namespace boost::serialization

namespace fm::bench {
namespace {

constexpr unsigned plain = boost::archive::no_header | boost::archive::no_tracking;

class boost_serializer final : public serializer {
 public:
  std::string_view encode(const shape_data& from, std::string& out) override {
    out.clear();
    boost::iostreams::stream_buffer<boost::iostreams::back_insert_device<std::string>> buffer(out);
    {
      boost::archive::binary_oarchive archive(buffer, plain);
      switch (from.kind) {
        case shape::floats: archive << from.floats; break;
        case shape::points: archive << from.points; break;
        case shape::point_objects: archive << from.point_objects; break;
        case shape::pairs: archive << from.pairs; break;
      }
    }
    buffer.close();
    return out;
  }
  double decode(shape kind, const char* data, std::size_t bytes) override {
    boost::iostreams::stream_buffer<boost::iostreams::array_source> buffer(data, bytes);
    boost::archive::binary_iarchive archive(buffer, plain);
    shape_data d;
    double sum = 0;
    switch (kind) {
      case shape::floats:
        archive >> d.floats;
        sum = sum_each(d.floats.size(), [&](std::size_t i) -> double { return d.floats[i]; });
        break;
      case shape::points:
        archive >> d.points;
        sum = sum_each(d.points.size(), [&](std::size_t i) { return value_of(d.points[i]); });
        break;
      case shape::point_objects:
        archive >> d.point_objects;
        sum = sum_each(d.point_objects.size(), [&](std::size_t i) { return value_of(*d.point_objects[i]); });
        break;
      case shape::pairs:
        archive >> d.pairs;
        sum = sum_each(d.pairs.size(), [&](std::size_t i) { return value_of(d.pairs[i]); });
        break;
    }
    return sum;
  }
  void take(const char* data, std::size_t bytes, std::vector<float>& to) override {
    boost::iostreams::stream_buffer<boost::iostreams::array_source> buffer(data, bytes);
    boost::archive::binary_iarchive archive(buffer, plain);
    archive >> to;
  }
};

}  // namespace

std::unique_ptr<serializer> make_boost() { return std::make_unique<boost_serializer>(); }

}  // namespace fm::bench

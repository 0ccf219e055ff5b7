// The shapes, and the list of serializers; see serializers.h.
#include "serializers.h"

#include "base/base.h"

namespace fm::bench {

shape shape_of(std::string_view name) {
  for (const shape s : {shape::floats, shape::points, shape::point_objects, shape::pairs})
    if (name == name_of(s)) return s;
  throw error(errc::invalid_argument, "no shape is called '" + std::string(name) + "'");
}

const char* name_of(shape s) noexcept {
  switch (s) {
    case shape::floats: return "floats";
    case shape::points: return "points";
    case shape::point_objects: return "point objects";
    case shape::pairs: return "pairs";
  }
  return "";
}

shape_data make_shape(shape kind, std::size_t elements) {
  shape_data d;
  d.kind = kind;
  for (std::size_t i = 0; i < elements; ++i) switch (kind) {
      case shape::floats: d.floats.push_back(float_at(i)); break;
      case shape::points: d.points.push_back(point_at(i)); break;
      case shape::point_objects: d.point_objects.push_back(std::make_unique<shape_point>(point_at(i))); break;
      case shape::pairs: d.pairs.push_back(pair_at(i)); break;
    }
  return d;
}

double sum_of_shape(shape kind, std::size_t elements) noexcept {
  double sum = 0;
  for (std::size_t i = 0; i < elements; ++i) switch (kind) {
      case shape::floats: sum += float_at(i); break;
      case shape::points:
      case shape::point_objects: sum += value_of(point_at(i)); break;
      case shape::pairs: sum += value_of(pair_at(i)); break;
    }
  return sum;
}

const std::vector<std::string>& serializer_names() {
  static const std::vector<std::string> names{"boost", "cereal", "protobuf", "flatbuffers", "capnproto"};
  return names;
}

std::unique_ptr<serializer> make_serializer(const std::string& name) {
  if (name == "boost") return make_boost();
  if (name == "cereal") return make_cereal();
  if (name == "protobuf") return make_protobuf();
  if (name == "flatbuffers") return make_flatbuffers();
  if (name == "capnproto") return make_capnproto();
  throw error(errc::invalid_argument, "no serializer is called '" + name + "'");
}

}  // namespace fm::bench

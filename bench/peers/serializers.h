// The peers of channels: five serializers, each in the form in which it is fastest for a shape. A serializer turns a shape into bytes
// and, at the other end, bytes into what a program reads; reading every element once is part of it, because formats
// that are read in place do their work then.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fm::bench {

struct shape_point {
  double x = 0, y = 0;
};
struct shape_pair {
  std::int32_t number = 0;
  char text[5] = {};
};

/// What is sent: numbers, points in one array, points that are objects of their own behind references, pairs.
enum class shape { floats, points, point_objects, pairs };
shape shape_of(std::string_view name);  ///< throws fm::error (invalid_argument)
const char* name_of(shape s) noexcept;

/// The elements of a shape, as a program without a managed heap has them. Only the member of its kind is filled.
struct shape_data {
  shape kind = shape::floats;
  std::vector<float> floats;
  std::vector<shape_point> points;
  std::vector<std::unique_ptr<shape_point>> point_objects;
  std::vector<shape_pair> pairs;
};
shape_data make_shape(shape kind, std::size_t elements);
inline float float_at(std::size_t i) noexcept { return float(i % 1024); }
inline shape_point point_at(std::size_t i) noexcept { return {double(i % 512), 1}; }
inline shape_pair pair_at(std::size_t i) noexcept {
  return {std::int32_t(i % 128), {'a', 'b', 'c', 'd', char('a' + i % 16)}};
}
/// What the elements add up to, by which a receiver shows that it has read all of them.
double sum_of_shape(shape kind, std::size_t elements) noexcept;
inline double value_of(const shape_point& p) noexcept { return p.x + p.y; }
inline double value_of(const shape_pair& p) noexcept { return p.number + p.text[4]; }

/// The sum of value(i) for all i below n. In eight sums that do not wait for each other: one addition after the other takes longer
/// than it takes to bring a float from process to process, and would be all that is measured. All sums here are exact.
template <class Value>
double sum_each(std::size_t n, const Value& value) {
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size())
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += value(i + k);
  for (; i < n; ++i) sums[0] += value(i);
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

class serializer {
 public:
  virtual ~serializer() = default;
  /// The bytes, which stay until the next call: in `room`, or where the serializer has made them.
  virtual std::string_view encode(const shape_data& from, std::string& room) = 0;
  /// Reads them, as a receiver that does not trust them would, and every element once; the sum. `data` is aligned to 8.
  virtual double decode(shape kind, const char* data, std::size_t bytes) = 0;
  /// The same of floats that the receiver keeps: they replace what is in `to`.
  virtual void take(const char* data, std::size_t bytes, std::vector<float>& to) = 0;
};

/// boost, cereal, protobuf, flatbuffers, capnproto.
const std::vector<std::string>& serializer_names();
/// Throws fm::error (invalid_argument) for a name that is none of them.
std::unique_ptr<serializer> make_serializer(const std::string& name);

std::unique_ptr<serializer> make_boost();
std::unique_ptr<serializer> make_cereal();
std::unique_ptr<serializer> make_protobuf();
std::unique_ptr<serializer> make_flatbuffers();
std::unique_ptr<serializer> make_capnproto();

}  // namespace fm::bench

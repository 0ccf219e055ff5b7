// cereal with its binary archives; see serializers.h.
#include <cereal/archives/binary.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/vector.hpp>
#include <istream>
#include <streambuf>

#include "serializers.h"

namespace fm::bench {

template <class Archive>
void serialize(Archive& a, shape_point& p) {
  a(p.x, p.y);
}
template <class Archive>
void serialize(Archive& a, shape_pair& p) {
  a(p.number, cereal::binary_data(p.text, sizeof p.text));
}

namespace {

class into_string final : public std::streambuf {
 public:
  explicit into_string(std::string& out) : out_(out) {}

 private:
  std::streamsize xsputn(const char* from, std::streamsize n) override {
    out_.append(from, std::size_t(n));
    return n;
  }
  int_type overflow(int_type c) override {
    out_.push_back(char(c));
    return c;
  }
  std::string& out_;
};

class from_bytes final : public std::streambuf {
 public:
  from_bytes(const char* data, std::size_t bytes) {
    char* const begin = const_cast<char*>(data);  // streambuf's interface; nothing writes
    setg(begin, begin, begin + bytes);
  }
};

class cereal_serializer final : public serializer {
 public:
  std::string_view encode(const shape_data& from, std::string& out) override {
    out.clear();
    into_string buffer(out);
    std::ostream stream(&buffer);
    cereal::BinaryOutputArchive archive(stream);
    switch (from.kind) {
      case shape::floats: archive(from.floats); break;
      case shape::points: archive(from.points); break;
      case shape::point_objects: archive(from.point_objects); break;
      case shape::pairs: archive(from.pairs); break;
    }
    return out;
  }
  double decode(shape kind, const char* data, std::size_t bytes) override {
    from_bytes buffer(data, bytes);
    std::istream stream(&buffer);
    cereal::BinaryInputArchive archive(stream);
    shape_data d;
    double sum = 0;
    switch (kind) {
      case shape::floats:
        archive(d.floats);
        sum = sum_each(d.floats.size(), [&](std::size_t i) -> double { return d.floats[i]; });
        break;
      case shape::points:
        archive(d.points);
        sum = sum_each(d.points.size(), [&](std::size_t i) { return value_of(d.points[i]); });
        break;
      case shape::point_objects:
        archive(d.point_objects);
        sum = sum_each(d.point_objects.size(), [&](std::size_t i) { return value_of(*d.point_objects[i]); });
        break;
      case shape::pairs:
        archive(d.pairs);
        sum = sum_each(d.pairs.size(), [&](std::size_t i) { return value_of(d.pairs[i]); });
        break;
    }
    return sum;
  }
  void take(const char* data, std::size_t bytes, std::vector<float>& to) override {
    from_bytes buffer(data, bytes);
    std::istream stream(&buffer);
    cereal::BinaryInputArchive archive(stream);
    archive(to);
  }
};

}  // namespace

std::unique_ptr<serializer> make_cereal() { return std::make_unique<cereal_serializer>(); }

}  // namespace fm::bench

// The peers of channels give back what was put into them, by themselves and over both kinds of socket.
#include <catch2/catch.hpp>
#include <cstring>

#include "../peers/serializer_link.h"

using namespace fm::bench;

TEST_CASE("every serializer gives back every shape") {
  for (const std::string& name : serializer_names()) {
    const auto there = make_serializer(name), here = make_serializer(name);
    for (const shape kind : {shape::floats, shape::points, shape::point_objects, shape::pairs})
      for (const std::size_t elements : {std::size_t{1}, std::size_t{16}, std::size_t{5000}}) {
        INFO(name << " " << name_of(kind) << " " << elements);
        std::string room;
        const std::string_view bytes = there->encode(make_shape(kind, elements), room);
        std::vector<std::uint64_t> aligned(bytes.size() / 8 + 1);
        std::memcpy(aligned.data(), bytes.data(), bytes.size());
        const char* const data = reinterpret_cast<const char*>(aligned.data());
        CHECK(here->decode(kind, data, bytes.size()) == sum_of_shape(kind, elements));
        if (kind != shape::floats) continue;
        std::vector<float> taken{1, 2, 3};
        here->take(data, bytes.size(), taken);
        CHECK(taken == make_shape(kind, elements).floats);
      }
  }
  CHECK_THROWS(make_serializer("none"));
  CHECK_THROWS(shape_of("none"));
}

TEST_CASE("formats that are read in place have points behind references, not in the array") {
  constexpr std::size_t n = 5000;
  for (const std::string name : {"capnproto", "flatbuffers"}) {
    INFO(name);
    const auto s = make_serializer(name);
    std::string room;
    const std::size_t in_array = s->encode(make_shape(shape::points, n), room).size();
    const std::size_t behind = s->encode(make_shape(shape::point_objects, n), room).size();
    CHECK(behind >= in_array + n * sizeof(std::uint32_t));
  }
}

TEST_CASE("a serializer's receiver answers what it read") {
  for (const std::string kind : {"tcp", "unix"}) {
    const worker receiver("serializer_receiver", {kind}, -1);
    for (const std::string& name : serializer_names()) {
      INFO(kind << " " << name);
      serializer_link link(receiver, kind == "tcp" ? socket_kind::tcp : socket_kind::unix_domain, name);
      for (const shape s : {shape::floats, shape::points, shape::point_objects, shape::pairs}) {
        link.send(make_shape(s, 3000));
        CHECK(link.answer() == sum_of_shape(s, 3000));
      }
    }
  }
}

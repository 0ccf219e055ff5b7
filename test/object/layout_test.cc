// Names and layouts: the same from every compiler and in every process, because that is how types are agreed on.
#include "mock_ref.h"
#include <array>
#include <catch2/catch.hpp>
#include <farmem/detail/types/describe.h>
#include <string>

namespace layout_test {

using fm::detail::layout_builder;
using fm::detail::name_of;
using fm::detail::type_kind;

enum class colour : unsigned char { red, green };
template <auto V>
struct by_value {};
template <class... T>
struct by_type {};
struct incomplete;
namespace {
struct hidden {};
}  // namespace

struct golden {
  std::array<std::pair<unsigned long, fm::ref<incomplete>>, 2> pairs;
  colour tint;
  fm::ref<by_type<int, fm::ref<float[]>>> next;
};

TEST_CASE("a type's name is spelled with its scopes and without the compiler's habits") {
  CHECK(name_of<int>() == "int");
  CHECK(name_of<unsigned long>() == "unsigned long");
  CHECK(name_of<long long>() == "long long");
  CHECK(name_of<float[]>() == "float[]");
  CHECK(name_of<incomplete>() == "layout_test::incomplete");
  CHECK(name_of<hidden>() == "layout_test::(anonymous namespace)::hidden");
  CHECK(name_of<by_type<by_type<int>, fm::ref<float[]>>>() ==
        "layout_test::by_type<layout_test::by_type<int>, fm::ref<float[]>>");
  CHECK(name_of<by_value<4ul>>() == "layout_test::by_value<4ul>");
  CHECK(fm::detail::name_in_tag("N2fm6detail8name_tagINSt3__15arrayIiLm3EEEEE") == "std::array<int, 3ul>");
  struct local {};
  CHECK_THAT(name_of<local>(), Catch::EndsWith("::local"));
}

TEST_CASE("types of the same name in two functions have two names") {
  const auto a = [] {
    struct local {};
    return name_of<local>();
  };
  const auto b = [] {
    struct local {};
    return name_of<local>();
  };
  CHECK(a() != b());
}

TEST_CASE("the layout hash is the same in every build, so that processes can agree on it") {
  const auto& d = fm::detail::descriptor_of<golden>();
  CHECK(d.layout ==
        "48 bytes {0: 16 bytes {0: u64, 8: ref<layout_test::incomplete>}[2], 32: u8, "
        "40: ref<layout_test::by_type<int, fm::ref<float[]>>>}");
  CHECK(d.ref_offsets == std::vector<std::uint32_t>{8, 24, 40});
  CHECK(d.layout_hash == 0x30b3a283db658af3u);
}

TEST_CASE("anything that two processes must agree on changes the hash") {
  const auto hash = [](type_kind kind, const char* name, std::size_t bytes, auto&& fields) {
    layout_builder b(kind, name, bytes);
    b.open(0, bytes);
    fields(b);
    b.close();
    return std::move(b).finish().layout_hash;
  };
  const auto plain = [](layout_builder& b) { b.value(0, 4, "i32"), b.ref(8, "x"); };
  const std::uint64_t base = hash(type_kind::object, "t", 16, plain);
  CHECK(hash(type_kind::object, "t", 16, plain) == base);
  CHECK(hash(type_kind::array, "t", 16, plain) != base);
  CHECK(hash(type_kind::object, "u", 16, plain) != base);
  CHECK(hash(type_kind::object, "t", 24, plain) != base);
  CHECK(hash(type_kind::object, "t", 16, [](auto& b) { b.value(0, 4, "u32"), b.ref(8, "x"); }) != base);
  CHECK(hash(type_kind::object, "t", 16, [](auto& b) { b.value(4, 4, "i32"), b.ref(8, "x"); }) != base);
  CHECK(hash(type_kind::object, "t", 16, [](auto& b) { b.value(0, 4, "i32"), b.ref(8, "y"); }) != base);
  CHECK(hash(type_kind::object, "t", 16, [](auto& b) { b.value(0, 4, "i32"), b.value(8, 8, "u64"); }) != base);
}

TEST_CASE("a field that overlaps another or leaves its struct is refused") {
  const auto refused = [](auto&& fields) {
    layout_builder b(type_kind::object, "overlapping", 16);
    b.open(0, 16);
    try {
      fields(b);
    } catch (const fm::error& e) {
      return e.code() == fm::errc::invalid_argument && std::string(e.what()).find("overlapping") != std::string::npos;
    }
    return false;
  };
  CHECK_FALSE(refused([](auto& b) { b.value(0, 8, "i64"), b.value(8, 8, "i64"); }));
  CHECK(refused([](auto& b) { b.value(0, 8, "i64"), b.value(4, 4, "i32"); }));
  CHECK(refused([](auto& b) { b.value(12, 8, "i64"); }));
  CHECK(refused([](auto& b) { b.value(std::size_t(0) - 8, 8, "i64"); }));
  CHECK(refused([](auto& b) { b.value(0, 24, "i64"); }));
}

}  // namespace layout_test

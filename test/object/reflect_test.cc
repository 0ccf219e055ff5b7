// What reflection sees in a managed type: fields, offsets, references, and which types are managed at all.
#include "mock_ref.h"
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <farmem/detail/types/describe.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

namespace reflect_test {

using fm::detail::array_descriptor_of;
using fm::detail::descriptor_of;
using fm::detail::type_descriptor;
using fm::detail::type_kind;
using offsets = std::vector<std::uint32_t>;

enum class colour : std::uint8_t { red, green };
struct never_defined;

struct node {
  int value = 3;
  fm::ref<node> next;
};
struct empty {};
struct inner {
  double weight = 0.5;
  fm::ref<never_defined> hidden;
};
struct wide {
  bool flag = true;
  char letter = 'x';
  colour tint = colour::green;
  float ratio = 1;
  inner in;
  std::array<fm::ref<node>, 3> refs;
  std::array<int, 5> numbers{};
  empty nothing;
  std::pair<int, float> both;
  std::array<inner, 2> inners;
  std::pair<char, fm::ref<node>> tagged;
  std::atomic<std::uint32_t> hits{7};
  const short fixed = 2;
  fm::ref<node> last;
};
struct flat {
  std::uint16_t a;
  std::int64_t b;
};

class stack {
 public:
  static auto fm_fields(auto& self) { return std::tie(self.depth_, self.top_, self.limits_); }

 private:
  std::uint32_t depth_ = 0;
  fm::ref<node> top_;
  std::array<std::uint16_t, 3> limits_{};
};
class needs_an_argument {
 public:
  explicit needs_an_argument(int n) : n_(n) {}
  static auto fm_fields(auto& self) { return std::tie(self.n_, self.to_); }

 private:
  int n_;
  fm::ref<needs_an_argument> to_;
};
struct base_fields {
  int a;
};
struct derived : base_fields {
  fm::ref<node> b;
  static auto fm_fields(auto& self) { return std::tie(self.a, self.b); }
};
struct foreign {  // stands for a type of another library
  foreign() {}
  int x = 0;
  fm::ref<node> y;
};
struct foreign_bytes {
  char text[12];
  union {
    int i;
    float f;
  } either;
};
struct holds_both {
  fm::ref<node> n;
  stack s;
  foreign f;
  foreign_bytes b;
  std::chrono::nanoseconds age;
};
struct first_twice {
  int a;
  int b;
  static auto fm_fields(auto& self) { return std::tie(self.a, self.a); }
};
struct swapped {
  fm::ref<node> a;
  fm::ref<node> b;
  static auto fm_fields(auto& self) { return std::tie(self.b, self.a); }
};
struct aligned_char {  // the over-alignment hides in the padding; the offsets must still be the real ones
  char a;
  alignas(4) char b;
  fm::ref<node> c;
};
struct many {
  int a0, a1, a2, a3, a4, a5, a6, a7, a8, a9;
  fm::ref<many> r0, r1, r2, r3, r4, r5, r6, r7, r8, r9;
  std::array<int, 4> b0, b1, b2, b3, b4, b5, b6, b7, b8, b9;
};

}  // namespace reflect_test

template <>
struct fm::managed_traits<reflect_test::foreign> {
  static auto fields(auto& self) { return std::tie(self.x, self.y); }
};
template <>
struct fm::managed_traits<reflect_test::foreign_bytes> : fm::managed_bytes {};

namespace reflect_test {

static_assert(sizeof(fm::ref<node>) == 8 && std::is_standard_layout_v<fm::ref<node>>);
static_assert(!std::is_copy_constructible_v<fm::ref<node>> && !std::is_move_constructible_v<node>);

TEST_CASE("a struct that refers to itself is described by its fields") {
  const type_descriptor& d = descriptor_of<node>();
  CHECK(d.kind == type_kind::object);
  CHECK(d.name == "reflect_test::node");
  CHECK(d.bytes == sizeof(node));
  CHECK(d.ref_offsets == offsets{offsetof(node, next)});
  CHECK(d.layout == "16 bytes {0: i32, 8: ref<reflect_test::node>}");
  CHECK(fm::detail::find_type(d.id) == &d);
  CHECK(&descriptor_of<node>() == &d);
  CHECK(&descriptor_of<const node>() == &d);
}

TEST_CASE("references are found in nested structs, arrays, arrays of structs and pairs") {
  const type_descriptor& d = descriptor_of<wide>();
  const auto refs = std::uint32_t(offsetof(wide, refs));
  const auto inners = std::uint32_t(offsetof(wide, inners));
  CHECK(d.ref_offsets == offsets{std::uint32_t(offsetof(wide, in) + offsetof(inner, hidden)), refs, refs + 8, refs + 16,
                                 inners + 8, inners + 24, std::uint32_t(offsetof(wide, tagged) + 8),
                                 std::uint32_t(offsetof(wide, last))});
  CHECK(d.bytes == sizeof(wide));
  CHECK(d.layout ==
        "144 bytes {0: bool, 1: char, 2: u8, 4: f32, 8: 16 bytes {0: f64, 8: ref<reflect_test::never_defined>}, "
        "24: ref<reflect_test::node>[3], 48: i32[5], 68: 1 bytes {}, 72: 8 bytes {0: i32, 4: f32}, "
        "80: 16 bytes {0: f64, 8: ref<reflect_test::never_defined>}[2], "
        "112: 16 bytes {0: char, 8: ref<reflect_test::node>}, 128: u32, 132: i16, 136: ref<reflect_test::node>}");
}

TEST_CASE("a struct without references has none") {
  CHECK(descriptor_of<flat>().ref_offsets.empty());
  CHECK(descriptor_of<flat>().layout == "16 bytes {0: u16, 8: i64}");
  CHECK(descriptor_of<empty>().bytes == 1);
  CHECK(descriptor_of<empty>().payload_bytes() == 8);
}

TEST_CASE("a class names its private fields in one static function") {
  const type_descriptor& d = descriptor_of<stack>();
  CHECK(d.layout == "24 bytes {0: u32, 8: ref<reflect_test::node>, 16: u16[3]}");
  CHECK(d.ref_offsets == offsets{8});
  CHECK(descriptor_of<needs_an_argument>().ref_offsets == offsets{8});
  CHECK(descriptor_of<derived>().ref_offsets == offsets{8});
}

TEST_CASE("a type of another library is described through managed_traits") {
  const type_descriptor& d = descriptor_of<holds_both>();
  CHECK(d.ref_offsets == offsets{0, 16, 40});
  CHECK(d.layout ==
        "72 bytes {0: ref<reflect_test::node>, 8: 24 bytes {0: u32, 8: ref<reflect_test::node>, 16: u16[3]}, "
        "32: 16 bytes {0: i32, 8: ref<reflect_test::node>}, 48: reflect_test::foreign_bytes as 16 bytes, "
        "64: std::chrono::duration<long, std::ratio<1l, 1000000000l>> as 8 bytes}");
}

TEST_CASE("fields named twice or out of order are refused at first use, with the type's name") {
  const auto refused = [](auto&& use) {
    try {
      use();
    } catch (const fm::error& e) {
      return e.code() == fm::errc::invalid_argument ? std::string(e.what()) : std::string("another code");
    }
    return std::string("accepted");
  };
  CHECK_THAT(refused([] { descriptor_of<first_twice>(); }), Catch::Contains("first_twice"));
  CHECK_THAT(refused([] { descriptor_of<swapped>(); }), Catch::Contains("order of declaration"));
}

TEST_CASE("offsets are those of the compiler, not of a guess") {
  const type_descriptor& d = descriptor_of<aligned_char>();
  CHECK(d.layout == "16 bytes {0: char, 4: char, 8: ref<reflect_test::node>}");
}

TEST_CASE("a struct with thirty fields is described whole") {
  const type_descriptor& d = descriptor_of<many>();
  REQUIRE(d.ref_offsets.size() == 10);
  CHECK(d.ref_offsets.front() == offsetof(many, r0));
  CHECK(d.ref_offsets.back() == offsetof(many, r9));
}

TEST_CASE("arrays are described by their element") {
  const type_descriptor& refs = array_descriptor_of<fm::ref<node>>();
  CHECK(refs.kind == type_kind::array);
  CHECK(refs.name == "fm::ref<reflect_test::node>[]");
  CHECK(refs.bytes == 8);
  CHECK(refs.ref_offsets == offsets{0});
  CHECK(refs.layout == "ref<reflect_test::node>");
  CHECK(refs.payload_bytes(3) == 32);

  CHECK(array_descriptor_of<char>().payload_bytes(5) == 16);
  CHECK(array_descriptor_of<std::byte>().layout == "u8");
  CHECK(array_descriptor_of<node>().ref_offsets == offsets{8});
  CHECK(array_descriptor_of<std::array<fm::ref<node>, 2>>().ref_offsets == offsets{0, 8});
  CHECK(&array_descriptor_of<node>() != &descriptor_of<node>());
  CHECK(array_descriptor_of<node>().name == "reflect_test::node[]");
}

TEST_CASE("a value by itself is a managed object") {
  CHECK(descriptor_of<int>().layout == "i32");
  CHECK(descriptor_of<fm::ref<node>>().ref_offsets == offsets{0});
  CHECK(descriptor_of<std::pair<int, float>>().layout == "8 bytes {0: i32, 4: f32}");
  CHECK(descriptor_of<std::array<int, 0>>().layout == "nothing");
  CHECK(descriptor_of<unsigned long>().layout == "u64");
  CHECK(descriptor_of<colour>().layout == "u8");
}

TEST_CASE("threads that use a type for the first time together get one descriptor") {
  struct fresh {
    fm::ref<fresh> r;
    int n;
  };
  std::array<const type_descriptor*, 8> seen{};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (auto& s : seen)
    threads.emplace_back([&] {
      while (!go.load(std::memory_order_acquire)) fm::detail::cpu_relax();
      s = &descriptor_of<fresh>();
    });
  go.store(true, std::memory_order_release);
  for (auto& t : threads) t.join();
  for (const auto* s : seen) CHECK(s == seen[0]);
  CHECK(seen[0]->ref_offsets == offsets{0});
}

struct holds_pointer {
  int* p;
};
struct holds_reference {
  int& r;
};
struct holds_root {
  fm::ptr<node> p;
};
struct holds_weak {
  fm::weak<node> p;
};
struct holds_string {
  fm::ref<node> r;
  std::string s;
};
struct holds_vector {
  std::vector<int> v;
};
struct holds_nested_pointer {
  int n;
  std::array<std::pair<int, holds_pointer>, 2> deep;
};
struct holds_c_array {
  int before;
  char name[16];
};
struct holds_c_array_of_refs {
  fm::ref<node> r[3];
};
struct holds_c_array_of_structs {
  inner r[2];
};
struct holds_c_array_of_one {
  int r[1];
};
struct holds_matrix {
  int r[2][2];
  int n;
};
struct holds_mutex {
  std::mutex m;
};
struct has_base : base_fields {
  int b;
};
struct has_empty_base : empty {
  fm::ref<node> b;
};
struct has_destructor {
  int n;
  ~has_destructor() { n = 0; }
};
struct has_virtual {
  virtual void f() {}
  int n;
};
struct alignas(16) over_aligned {
  int n;
};
struct has_bit_fields {
  int a : 3;
  int b : 5;
};
struct has_alignas {
  int a;
  alignas(8) int b;
};
struct [[gnu::packed]] is_packed {
  char a;
  int b;
};
class names_nothing {
  [[maybe_unused]] int n_ = 0;

 public:
  names_nothing() {}
};
class forgets_a_ref {
  int n_ = 0;
  fm::ref<node> a_, b_;

 public:
  static auto fm_fields(auto& self) { return std::tie(self.n_, self.a_); }
};
union either {
  int a;
  float b;
};
union known {
  int a;
  float b;
};
union alignas(16) wide_union {
  int a;
};
}  // namespace reflect_test

template <>
struct fm::managed_traits<reflect_test::known> : fm::managed_bytes {};
template <>
struct fm::managed_traits<reflect_test::wide_union> : fm::managed_bytes {};

namespace reflect_test {

TEST_CASE("types that break a rule are not managed") {
  using fm::managed;
  STATIC_REQUIRE(managed<node>);
  STATIC_REQUIRE(managed<wide>);
  STATIC_REQUIRE(managed<holds_both>);
  STATIC_REQUIRE(managed<std::byte>);
  STATIC_REQUIRE(managed<std::array<std::byte, 64>>);
  STATIC_REQUIRE_FALSE(managed<void>);
  STATIC_REQUIRE_FALSE(managed<int&>);
  STATIC_REQUIRE_FALSE(managed<const int>);
  STATIC_REQUIRE_FALSE(managed<int()>);
  STATIC_REQUIRE_FALSE(managed<int[3]>);
  STATIC_REQUIRE_FALSE(managed<int[]>);
  STATIC_REQUIRE_FALSE(managed<long double>);
  STATIC_REQUIRE_FALSE(managed<holds_pointer>);
  STATIC_REQUIRE_FALSE(managed<holds_reference>);
  STATIC_REQUIRE_FALSE(managed<holds_root>);
  STATIC_REQUIRE(fm::managed_plain<holds_weak>);
  STATIC_REQUIRE(fm::detail::contains_weak<std::array<std::pair<int, holds_weak>, 2>>());
  STATIC_REQUIRE_FALSE(fm::detail::contains_weak<node>());
  STATIC_REQUIRE_FALSE(managed<holds_string>);
  STATIC_REQUIRE_FALSE(managed<holds_vector>);
  STATIC_REQUIRE_FALSE(managed<holds_nested_pointer>);
  STATIC_REQUIRE_FALSE(managed<holds_c_array>);
  STATIC_REQUIRE_FALSE(managed<holds_c_array_of_refs>);
  STATIC_REQUIRE_FALSE(managed<holds_c_array_of_structs>);
  STATIC_REQUIRE_FALSE(managed<holds_c_array_of_one>);
  STATIC_REQUIRE_FALSE(managed<holds_matrix>);
  STATIC_REQUIRE_FALSE(managed<holds_mutex>);
  STATIC_REQUIRE_FALSE(managed<has_base>);
  STATIC_REQUIRE_FALSE(managed<has_empty_base>);
  STATIC_REQUIRE_FALSE(managed<has_destructor>);
  STATIC_REQUIRE_FALSE(managed<has_virtual>);
  STATIC_REQUIRE_FALSE(managed<over_aligned>);
  STATIC_REQUIRE_FALSE(managed<has_bit_fields>);
  STATIC_REQUIRE_FALSE(managed<has_alignas>);
  STATIC_REQUIRE_FALSE(managed<is_packed>);
  STATIC_REQUIRE_FALSE(managed<names_nothing>);
  STATIC_REQUIRE_FALSE(managed<forgets_a_ref>);
  STATIC_REQUIRE_FALSE(managed<either>);
  STATIC_REQUIRE(managed<known>);
  STATIC_REQUIRE_FALSE(managed<wide_union>);
  STATIC_REQUIRE_FALSE(managed<std::atomic<inner*>>);
  STATIC_REQUIRE_FALSE(managed<std::atomic<flat>>);
}

TEST_CASE("standard types outside the heap are told apart, for their messages") {
  using fm::detail::judgement_of;
  using fm::detail::verdict;
  STATIC_REQUIRE(judgement_of<std::string>.what == verdict::std_string);
  STATIC_REQUIRE(judgement_of<std::string_view>.what == verdict::string_view);
  STATIC_REQUIRE(judgement_of<std::span<int>>.what == verdict::span);
  STATIC_REQUIRE(judgement_of<std::vector<int>>.what == verdict::container);
  STATIC_REQUIRE(judgement_of<std::deque<int>>.what == verdict::container);
  STATIC_REQUIRE(judgement_of<std::map<int, int>>.what == verdict::container);
  STATIC_REQUIRE(judgement_of<std::unordered_map<int, int>>.what == verdict::container);
  STATIC_REQUIRE(judgement_of<std::unique_ptr<int>>.what == verdict::smart_pointer);
  STATIC_REQUIRE(judgement_of<std::shared_ptr<int>>.what == verdict::smart_pointer);
  STATIC_REQUIRE(judgement_of<std::weak_ptr<int>>.what == verdict::smart_pointer);
  STATIC_REQUIRE(judgement_of<std::function<void()>>.what == verdict::function);
  STATIC_REQUIRE(judgement_of<std::optional<int>>.what == verdict::sum_type);
  STATIC_REQUIRE(judgement_of<std::variant<int, float>>.what == verdict::sum_type);
  STATIC_REQUIRE(judgement_of<std::tuple<int, float>>.what == verdict::tuple);
  STATIC_REQUIRE(judgement_of<int node::*>.what == verdict::member_pointer);
  STATIC_REQUIRE(judgement_of<void (*)()>.what == verdict::function_pointer);
  STATIC_REQUIRE(judgement_of<holds_string>.field == 1);
}

TEST_CASE("has_refs and managed_plain tell who needs the collector") {
  STATIC_REQUIRE(fm::has_refs<node>);
  STATIC_REQUIRE(fm::has_refs<std::array<node, 2>>);
  STATIC_REQUIRE(fm::has_refs<fm::ref<never_defined>>);
  STATIC_REQUIRE(fm::has_refs<std::pair<int, stack>>);
  STATIC_REQUIRE_FALSE(fm::has_refs<std::array<fm::ref<node>, 0>>);
  STATIC_REQUIRE_FALSE(fm::has_refs<flat>);
  STATIC_REQUIRE(fm::managed_plain<flat>);
  STATIC_REQUIRE_FALSE(fm::managed_plain<node>);
  STATIC_REQUIRE_FALSE(fm::managed_plain<holds_string>);
}

}  // namespace reflect_test

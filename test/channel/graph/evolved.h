// A type of two versions of a program: the test is of the newer one, and a child process (evolved_child.cc) of the older.
#pragma once

#include <farmem/farmem.h>

namespace channel_test {

struct remark {
  std::uint64_t id = 0;
};

#ifdef CHANNEL_OLDER_VERSION

struct point {
  std::uint32_t y = 0, x = 0;
};
struct instant {
  std::uint32_t day = 0, hour = 0;
  constexpr auto operator<=>(const instant&) const = default;
};
struct account {
  std::int64_t balance = 0;
  point where;
  fm::ref<fm::string> owner;
  fm::ref<account> next;
  fm::ref<fm::vector<point>> points;
  fm::ref<fm::hash_map<std::uint64_t, point>> by_number;
  fm::ref<fm::map<instant, point>> by_time;
  fm::ref<fm::one_of<remark, account>> about;
  fm::ref<point[]> array;
};

#else

struct point {
  std::uint32_t x = 0;
  float weight = 1.5F;  // new
  std::uint32_t y = 0;
};
struct instant {
  std::uint32_t day = 0, hour = 0, minute = 30;  // the last one is new
  constexpr auto operator<=>(const instant&) const = default;
};
struct account {
  fm::ref<account> next;
  std::uint16_t flags = 5;            // new
  fm::ref<fm::vector<point>> points;  // the order is another
  point where;
  fm::ref<fm::map<instant, point>> by_time;
  fm::ref<fm::map<fm::string, fm::ref<account>>> others;  // new
  fm::ref<fm::hash_map<std::uint64_t, point>> by_number;
  fm::ref<fm::string> owner;
  std::int64_t balance = 0;
  fm::ref<fm::hash_set<fm::string>> tags;                  // new
  fm::ref<fm::one_of<fm::string, account, remark>> about;  // the order is another, and one is new
  fm::ref<point[]> array;
};

#endif

}  // namespace channel_test

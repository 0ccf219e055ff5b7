// The older version of a program (evolved.h): connects to a URL. With "send" it sends accounts, which the newer version takes. With
// "receive" it wants one, and has to refuse it, because fields would be lost. Exits with 0 when all that was so and its heap is sound.
#define CHANNEL_OLDER_VERSION
#include <farmem/farmem.h>

#include <string_view>

#include "channel/graph/evolved.h"

using namespace fm::literals;
using namespace channel_test;

namespace {

fm::ptr<account> make(fm::heap& h, std::uint32_t n, const fm::ptr<account>& next) {
  const fm::vector<point> points(h);
  const fm::hash_map<std::uint64_t, point> by_number(h);
  const fm::map<instant, point> by_time(h);
  for (std::uint32_t i = 0; i < n; ++i) {
    points.push_back({.y = i, .x = 2 * i});
    by_number.insert_or_assign(i, {.y = i, .x = 3 * i});
    by_time.insert({.day = i / 24, .hour = i % 24}, {.y = i, .x = 4 * i});
  }
  const auto array = h.array<point>(3);
  {
    const fm::write_pin a = array.write();
    (*a)[2] = {.y = 8, .x = 9};
  }
  const fm::ptr<account> a = h.make<account>({.balance = -7,
                                              .where = {.y = 1, .x = n},
                                              .owner = h.str("owner " + std::to_string(n)),
                                              .next = next,
                                              .points = points,
                                              .by_number = by_number,
                                              .by_time = by_time,
                                              .array = array});
  if (next)
    a.write()->about = next;
  else
    a.write()->about = h.make<remark>({.id = 77});
  return a;
}

bool refused(fm::channel& c) {
  try {
    c.recv<account>();
    return false;
  } catch (const fm::error& e) {
    return e.code() == fm::errc::layout_mismatch &&
           std::string_view(e.what()).find("would be lost") != std::string::npos;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 100;
  try {
    fm::heap h({.cache = 16_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 64_KiB});
    {
      fm::channel c = fm::channel::connect(h, argv[2]);
      if (std::string_view(argv[1]) == "send") {
        for (int i = 0; i < 2; ++i) c.send(make(h, 3000, make(h, 5, {})));
      } else if (!refused(c)) {
        return 101;
      }
    }
    if (!h.collect("test").ok()) return 104;
    return h.evict_all() == fm::errc::ok && h.verify().ok() ? 0 : 106;
  } catch (const fm::error& e) {
    return static_cast<int>(e.code());
  }
}

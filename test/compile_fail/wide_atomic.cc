// expect: farmem: only a lock-free std::atomic of an arithmetic type is managed
#include <atomic>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct point {
  long x, y;
};
struct bad {
  std::atomic<point> p;
};
const auto& used = fm::detail::descriptor_of<bad>();

// Mistakes of a user's program, which was compiled with FARMEM_CHECKED and without assertions of its own: `mistakes NAME` makes
// one, and is to end with a message that names it. `mistakes none` does the same things right.
#include <array>
#include <cstdint>
#include <cstdio>
#include <farmem/farmem.h>
#include <string_view>
#include <thread>

using namespace fm::literals;

struct node {
  std::uint64_t value = 0;
  std::array<int, 4> items{1, 2, 3, 4};
  fm::ref<node> next;
};

int main(int count, char** arguments) {
  const std::string_view mistake = count == 2 ? arguments[1] : "";
  fm::heap h({.cache = 4_MiB});
  const auto p = h.make<node>();
  p.write()->next = p;
  const auto numbers = h.array<int>(4);
  std::uint64_t sum = 0;

  {
    const fm::scope s;
    if (mistake == "scope") std::thread([&] { sum += p.get(s)->value; }).join();
    sum += p.get(s)->next.get(s)->value;
  }
  auto pin = p.read();
  const auto moved = std::move(pin);
  sum += (mistake == "pin" ? pin : moved)->value;
  node on_the_stack;
  on_the_stack.next = p;  // as long as it only initialises an object, nothing is wrong
  const auto q = h.make<node>(std::move(on_the_stack));
  if (mistake == "reference") sum += on_the_stack.next->value;
  sum += q->next->value;
  node stale;
  {
    const auto rooted = h.make<node>();
    stale.next = rooted;
    if (mistake != "stale") h.make<node>(node{.next = rooted});
  }
  h.collect();
  if (mistake == "stale") h.make<node>(std::move(stale));
  const auto row = numbers.read();
  sum += static_cast<std::uint64_t>((*row)[mistake == "array" ? 4 : 3]);
  for (const int x : p.read(&node::items)) sum += static_cast<std::uint64_t>(x);
  std::printf("mistakes: the sum is %lu\n", static_cast<unsigned long>(sum));
  return sum == 10 ? 0 : 1;
}

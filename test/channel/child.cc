// The other process of a test: connects to a URL and sends a list of so many nodes, again and again; or, with "receive", takes
// graphs until the channel ends. Exits with the number of the error that ends it.
#include <farmem/farmem.h>

#include <cstdlib>
#include <string_view>

using namespace fm::literals;

namespace channel_test {

// By this name, because it goes to a type of this name.
struct node {
  std::uint64_t id = 0;
  fm::ref<node> next, other;
};

}  // namespace channel_test

int main(int argc, char** argv) {
  if (argc != 4) return 100;
  try {
    fm::heap h({.cache = 16_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 64_KiB});
    fm::channel c = fm::channel::connect(h, argv[2]);
    if (std::string_view(argv[1]) == "receive")
      for (;;) c.recv<channel_test::node>();
    const auto n = std::strtoull(argv[3], nullptr, 10);
    fm::ptr<channel_test::node> head;
    for (std::uint64_t i = 0; i < n; ++i) head = h.make<channel_test::node>({.id = i, .next = head});
    for (;;) c.send(head);
  } catch (const fm::error& e) {
    return static_cast<int>(e.code());
  }
}

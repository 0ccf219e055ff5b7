// A program with another layout of channel_test::node: connects to a URL, and with "send" sends one, with "receive" wants one. Either
// has to be refused with layout_mismatch and both layouts. Then an array goes the same way. Exits with 0 when all that was so and
// its heap verifies with nothing left.
#include <farmem/farmem.h>

#include <string>
#include <string_view>

using namespace fm::literals;

namespace channel_test {

struct node {
  float id = 0;
  fm::ref<node> next, other;
};

}  // namespace channel_test

namespace {

int refused(fm::heap& h, fm::channel& c, bool sends) {
  try {
    if (sends)
      c.send(h.make<channel_test::node>());
    else
      c.recv<channel_test::node>();
    return 101;
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::layout_mismatch) throw;
    const std::string text = e.what();
    const bool both =
        text.find("{0: f32, 8: ref<") != std::string::npos && text.find("{0: u64, 8: ref<") != std::string::npos;
    return both ? 0 : 102;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 100;
  const bool sends = std::string_view(argv[1]) == "send";
  try {
    fm::heap h({.cache = 16_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 64_KiB});
    {
      fm::channel c = fm::channel::connect(h, argv[2]);
      if (const int wrong = refused(h, c, sends); wrong != 0) return wrong;
      if (sends)
        c.send(h.array<double>(3));
      else if (c.recv<double[]>().read()->size() != 3)
        return 103;
    }
    if (!h.collect("test").ok()) return 104;
    for (const auto& t : h.stats(fm::detail_level::types).types)
      if (t.objects != 0) return 105;
    return h.evict_all() == fm::errc::ok && h.verify().ok() ? 0 : 106;
  } catch (const fm::error& e) {
    return static_cast<int>(e.code());
  }
}

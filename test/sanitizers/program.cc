// A user's program that is run under a sanitizer. Without an argument it makes no mistake and uses much of the library;
// with one it makes the mistake that this names. check.sh says which sanitizer has to report which.
#include <farmem/farmem.h>
#include <farmem/testing.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

using namespace fm::literals;

namespace {

struct node {
  std::uint64_t id = 0;
  fm::ref<node> next;
  fm::ref<fm::string> name;
};
constexpr std::uint64_t nodes = 10'000, keys = 1'000;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(3);
}

/// Two threads over a cache that is smaller than what they read.
void use(fm::heap& h, const fm::ptr<node>& list) {
  const fm::hash_map<std::uint64_t, std::uint64_t> by_hash(h);
  const fm::map<std::uint64_t, std::uint64_t> by_order(h);
  std::vector<std::thread> threads;
  for (std::uint64_t n = 0; n < 2; ++n)
    threads.emplace_back([&, n] {
      for (std::uint64_t i = 0; i < keys; ++i) by_hash.insert_or_assign(i, n), by_order.insert_or_assign(2 * i + n, i);
      std::uint64_t sum = 0;
      for (const node& at : fm::walk(list, &node::next)) sum += at.id;
      require(sum == nodes * (nodes - 1) / 2, "the sum of the list");
    });
  for (std::thread& t : threads) t.join();
  require(by_hash.size() == keys && by_order.size() == 2 * keys, "the sizes of the maps");
  require(h.collect().ok() && h.evict_all() == fm::errc::ok, "a collection, and everything is evicted");
  require(fm::string(list->name) == "name 9999", "the name of the list's head");
}

void use_paged(fm::fault_mode faults) {
  fm::paged far({.capacity = 8_MiB, .local = 1_MiB, .agents = {"local:"}, .faults = faults});
  auto* numbers = reinterpret_cast<std::uint64_t*>(far.data());
  constexpr std::uint64_t n = 500'000;
  for (std::uint64_t i = 0; i < n; ++i) numbers[i] = i;
  std::uint64_t sum = 0;
  std::thread([&] {
    for (std::uint64_t i = 0; i < n; ++i) sum += numbers[i];
  }).join();
  require(sum == n * (n - 1) / 2, "the sum of the range");
}

/// The pointer is used after its scope, when the object has left the cache.
void use_after_scope(fm::heap& h, const fm::ptr<node>& p) {
  const node* raw = nullptr;
  {
    const fm::scope in;
    raw = p.get(in);
  }
  require(h.evict_all() == fm::errc::ok, "everything is evicted");
  const volatile std::uint64_t* id = &raw->id;
  std::printf("%llu\n", static_cast<unsigned long long>(*id));
}

void overflow() {
  std::vector<int> v(4);
  volatile int* p = v.data();
  p[4] = 1;
}

void leak() {
  int* volatile p = new int[10];
  p[0] = 1;
  p = nullptr;
}

void shift_too_far() {
  volatile int bits = 40;
  std::printf("%d\n", 1 << bits);
}

/// Two threads come here before either goes on. It orders nothing between them that a sanitizer could see.
class meeting {
 public:
  void meet() {
    here_.fetch_add(1, std::memory_order_relaxed);
    while (here_.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
  }

 private:
  std::atomic<int> here_{0};
};
template <class F>
void twice_at_once(F&& f) {
  meeting both;
  std::thread other([&] { f(both); });
  f(both);
  other.join();
}

/// Two threads add to one variable of the program.
void race(const fm::ptr<node>& p) {
  std::uint64_t sum = 0;
  twice_at_once([&](meeting& both) {
    const std::uint64_t id = p->id;
    both.meet();
    sum += id;
  });
  std::printf("%llu\n", static_cast<unsigned long long>(sum));
}

/// Two threads change one object without a lock of the program.
void race_in_object(const fm::ptr<node>& p) {
  twice_at_once([&](meeting& both) {
    const auto pin = p.write();
    both.meet();
    pin->id += 1;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const auto is = [mistake = argc > 1 ? argv[1] : ""](const char* m) { return std::strcmp(m, mistake) == 0; };
  fm::testing::agent agent;
  fm::heap h({.cache = 1_MiB, .agents = {agent.url()}});
  fm::ptr<node> list;
  for (std::uint64_t i = 0; i < nodes; ++i)
    list = h.make<node>({.id = i, .next = list, .name = h.str("name " + std::to_string(i))});
  use(h, list);
  if (is("paged")) try {
      use_paged(fm::fault_mode::threads);
    } catch (const fm::error& e) {  // not everybody may use userfaultfd
      std::puts(e.what());
      if (e.code() != fm::errc::access_denied && e.code() != fm::errc::unsupported) return 1;
    }
  if (is("sigbus")) use_paged(fm::fault_mode::sigbus);
  if (is("scope")) use_after_scope(h, list);
  if (is("overflow")) overflow();
  if (is("leak")) leak();
  if (is("shift")) shift_too_far();
  if (is("race")) race(list);
  if (is("race in object")) race_in_object(list);
}

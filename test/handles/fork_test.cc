// Children after fork: each has heaps of its own, whatever its parent has or had, and nothing of its parent's. The parent goes on.
#include <farmem/farmem.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>

#include "support/error_code.h"
#include "support/served_store.h"

// ThreadSanitizer does not follow a fork of a process with threads.
#if !FM_TSAN

using namespace fm::literals;

using fm::test::code_of;

namespace {

struct forked_node {
  std::uint64_t value = 0;
  fm::ref<forked_node> next;
};

fm::heap_options small() { return {.cache = 2_MiB, .local_memory = 256_MiB, .local_region = 4_MiB, .segment = 64_KiB}; }

fm::ptr<forked_node> make_list(fm::heap& h, std::uint64_t n) {
  fm::ptr<forked_node> head;
  for (std::uint64_t i = 0; i < n; ++i) head = h.make<forked_node>({.value = i, .next = head});
  return head;
}

bool is_list(const fm::ptr<forked_node>& head, std::uint64_t n) {
  for (const forked_node& e : fm::walk(head, &forked_node::next))
    if (e.value != --n) return false;
  return n == 0;
}

/// Objects that are left after a collection; all ones when it failed.
std::uint64_t objects_left(fm::heap& h) {
  if (!h.collect("counting").ok()) return ~std::uint64_t{0};
  std::uint64_t n = 0;
  for (const auto& t : h.stats(fm::detail_level::types).types) n += t.objects;
  return n;
}

/// Makes, evicts, reads, collects and verifies, in four times what the cache holds. 0, or where it went wrong.
int use(fm::heap& h) {
  constexpr std::uint64_t n = 80'000;
  const std::uint64_t before = objects_left(h);
  const auto kept = make_list(h, n);
  if (!is_list(make_list(h, n), n)) return 1;
  if (h.evict_all() != fm::errc::ok) return 2;
  if (!is_list(kept, n)) return 3;
  if (objects_left(h) != before + n) return 5;
  // And on a thread that is not the one that forked.
  bool right = false;
  std::thread([&] { right = is_list(kept, n) && is_list(make_list(h, 1000), 1000); }).join();
  if (!right) return 6;
  return h.verify().ok() ? 0 : 7;
}

/// The exit of a child, or minus the signal that ended it.
int in_child(const std::function<int()>& body, bool quiet = false) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (quiet) ::close(STDERR_FILENO);
    ::signal(SIGABRT, SIG_DFL);
    ::signal(SIGSEGV, SIG_DFL);
    ::alarm(120);  // one that hangs ends all the same
    int code = 90;
    try {
      code = body();
    } catch (const fm::error& e) {
      if (!quiet) std::fprintf(stderr, "in a child: %s\n", e.what());
      code = 91;
    }
    ::_exit(code);
  }
  if (child < 0) return -1000;
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1001;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int own_heap() {
  fm::heap h(small());
  return use(h);
}

}  // namespace

TEST_CASE("a child whose parent had a heap opens its own") {
  {
    fm::heap h(small());
    REQUIRE(use(h) == 0);
  }
  REQUIRE(in_child(own_heap) == 0);
  REQUIRE(in_child([] {
            if (const int e = own_heap(); e != 0) return e;
            return own_heap();  // another one
          }) == 0);
  REQUIRE(own_heap() == 0);
}

// The AddressSanitizer of g++ 12 takes none of its own locks around fork (LLVM does since 2024): children stop for good, with
// all of their threads waiting for a lock of its allocator. So the cases in which the parent has threads run with the C
// library's allocator alone, as in debug-audit.
#if !FM_ASAN
namespace {

/// An agent in a thread of this process, reached over TCP.
class agent final : public fm::test::served_store {
 public:
  agent() : served_store({.memory_bytes = 256_MiB, .region_bytes = 1_MiB}) { serve(); }
  ~agent() override { stop(); }
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;
};

}  // namespace

TEST_CASE("a child whose parent has open heaps opens its own, and harms none of them") {
  fm::heap first(small());
  fm::heap second(small());
  constexpr std::uint64_t n = 100'000;
  const auto a = make_list(first, n), b = make_list(second, n);
  REQUIRE(in_child(own_heap) == 0);
  REQUIRE(is_list(a, n));
  REQUIRE(in_child([] {
            fm::heap mine(small());
            if (const int e = in_child(own_heap); e != 0) return 100 + e;  // a grandchild
            return use(mine);
          }) == 0);
  REQUIRE(is_list(a, n));
  REQUIRE(is_list(b, n));
  REQUIRE(use(first) == 0);
  REQUIRE(use(second) == 0);
}

TEST_CASE("children are forked while threads of the parent make, read, evict and collect") {
  fm::heap h(small());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> busy;
  for (int t = 0; t < 2; ++t)
    busy.emplace_back([&] {
      while (!stop.load()) wrong += !is_list(make_list(h, 20'000), 20'000);
    });
  busy.emplace_back([&] {
    while (!stop.load()) wrong += !h.collect("beside forks").ok();
  });
  std::vector<int> codes;
  for (int i = 0; i < 6; ++i) codes.push_back(in_child(own_heap));
  stop.store(true);
  for (auto& t : busy) t.join();
  REQUIRE(codes == std::vector<int>(6, 0));
  REQUIRE(wrong.load() == 0);
  const fm::verify_report found = h.verify();
  CAPTURE(found.messages);
  REQUIRE(found.ok());
}

TEST_CASE(
    "a child uses nothing of its parent's heap: before it has its own it is ended, and afterwards it gets errors") {
  auto h = std::make_unique<fm::heap>(small());
  const auto a = h->make<forked_node>({.value = 7});
  const fm::weak<forked_node> weak(a);
  REQUIRE(in_child([&] { return static_cast<int>(a->value); }, true) == -SIGABRT);
  REQUIRE(in_child([&] { return code_of([&] { (void)h->make<forked_node>(); }) == fm::errc::heap_closed ? 0 : 1; }) ==
          0);
  REQUIRE(in_child([&] {
            fm::heap mine(small());
            const auto other = mine.make<forked_node>({.value = 8});
            if (code_of([&] { (void)a->value; }) != fm::errc::null_handle) return 1;
            if (weak.lock()) return 2;
            if (code_of([&] { (void)h->make<forked_node>(); }) != fm::errc::heap_closed) return 3;
            if (code_of([&] { (void)h->stats(); }) != fm::errc::heap_closed) return 4;
            if (code_of([&] { (void)h->collect("no"); }) != fm::errc::heap_closed) return 5;
            if (code_of([&] { (void)h->verify(); }) != fm::errc::heap_closed) return 6;
            if (code_of([&] { (void)h->evict_all(); }) != fm::errc::heap_closed) return 7;
            h->close();
            h.reset();  // ends nothing of the parent's
            if (other->value != 8) return 8;
            return use(mine);
          }) == 0);
  REQUIRE(a->value == 7);
  REQUIRE(weak.lock()->value == 7);
  REQUIRE(h->verify().ok());
}

TEST_CASE("parent and child use an agent beside each other, and the parent's channels are not the child's") {
  agent a;
  fm::heap_options o = small();
  o.agents = {a.url()};
  fm::heap h(o);
  fm::channel_listener listener(h, "tcp://127.0.0.1:0");
  fm::channel tx = fm::channel::connect(h, listener.url());
  fm::channel rx = listener.accept();
  const auto list = make_list(h, 50'000);
  REQUIRE(in_child([&] {
            fm::heap mine(o);
            if (code_of([&] { tx.send(mine.make<forked_node>()); }) != fm::errc::disconnected) return 50;
            if (code_of([&] { (void)listener.accept(); }) != fm::errc::cancelled) return 51;
            { const fm::channel gone = std::move(rx); }
            { const fm::channel_listener gone = std::move(listener); }
            return use(mine);
          }) == 0);
  REQUIRE(is_list(list, 50'000));
  tx.send(h.make<forked_node>({.value = 3}), {.until = fm::delivery::sent});
  REQUIRE(rx.recv<forked_node>()->value == 3);
  REQUIRE(h.verify().ok());
}
#endif  // no AddressSanitizer
#endif  // no ThreadSanitizer

// Raw pointers that outlive their scope, or leave their object. Under the address sanitizer each is an error report of a
// child process that runs one of the hidden cases below; in other builds with assertions the memory has been filled with
// a pattern.
#include "heap/heap_core.h"
#include <farmem/farmem.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>

using namespace fm::literals;

extern char** environ;

namespace {

struct escaped_record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 12> words{};
};

fm::heap_options small() {
  return {.cache = 1_MiB,
          .local_memory = 64_MiB,
          .local_region = 1_MiB,
          .segment = 32_KiB,
          .elastic = false,
          .background_evictor = false};
}

// Reads through a pointer that the compiler knows nothing of.
std::uint64_t look_at(const escaped_record* r) {
  const volatile std::uint64_t* p = &r->id;
  return *p;
}

const escaped_record* pointer_out_of_a_scope(const fm::ptr<escaped_record>& p) {
  fm::scope s;
  return p.get(s);
}

}  // namespace

#if FM_ASAN

namespace {

struct outcome {
  bool failed = false;
  std::string output;
};

// Runs one case of this program in a process of its own.
outcome run_case(const char* name) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  char program[] = "/proc/self/exe";
  char* arguments[] = {program, const_cast<char*>(name), nullptr};
  ::pid_t child = 0;
  const int spawned = ::posix_spawn(&child, program, &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  REQUIRE(spawned == 0);
  outcome out;
  const auto until = fm::clock::now() + std::chrono::minutes(10);
  for (char buffer[4096];;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - fm::clock::now()).count();
    pollfd p{ends[0], POLLIN, 0};
    if (left <= 0 || ::poll(&p, 1, int(left)) <= 0) {
      ::kill(child, SIGKILL);
      break;
    }
    const ::ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    if (n <= 0) break;
    out.output.append(buffer, std::size_t(n));
  }
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  out.failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  return out;
}

void is_caught(const char* name) {
  const outcome o = run_case(name);
  INFO(o.output);
  REQUIRE(o.failed);
  REQUIRE(o.output.find("AddressSanitizer: use-after-poison") != std::string::npos);
}

}  // namespace

TEST_CASE("a pointer that outlives its scope is caught when the object has been evicted") {
  is_caught("escape: evicted");
}
TEST_CASE("a pointer that outlives its scope is caught when the object has been moved") { is_caught("escape: moved"); }
TEST_CASE("a pointer past the last frame of a segment is caught") { is_caught("escape: past the end"); }
TEST_CASE("a large object's pointer is caught when it has been evicted") { is_caught("escape: large"); }
TEST_CASE("a pointer that stays in its scope is not an error, whatever becomes of the object later") {
  const outcome o = run_case("escape: control");
  INFO(o.output);
  REQUIRE_FALSE(o.failed);
}

TEST_CASE("escape: evicted", "[.]") {
  fm::heap h(small());
  auto p = h.make<escaped_record>({.id = 5});
  const escaped_record* raw = pointer_out_of_a_scope(p);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(look_at(raw) == 5);
}

TEST_CASE("escape: moved", "[.]") {
  fm::heap h(small());
  auto p = h.make<escaped_record>({.id = 5});
  const escaped_record* raw = pointer_out_of_a_scope(p);
  // What the evictor does to an object that was used, without waiting for it to choose this one.
  using namespace fm::detail;
  object_cache& cache = h.core().cache();
  const auto no_step = cache.eviction().hold();
  std::atomic<word_t>& word = word_at(p.slot());
  word.fetch_or(word::cold_bit);
  const std::uint64_t stamp = epochs::stamp();
  REQUIRE(epochs::try_pass(stamp));
  {
    const section in_section;
    bump to(fill_kind::kept, nullptr);
    REQUIRE(cache.frames().relocate(word, word.load(), to, 0) == frame_space::relocated::moved);
    cache.leases().give_back(to);
  }
  REQUIRE(p->id == 5);
  REQUIRE(look_at(raw) == 5);
}

TEST_CASE("escape: past the end", "[.]") {
  fm::heap h(small());
  auto p = h.make<escaped_record>({.id = 5});
  fm::scope s;
  REQUIRE(look_at(p.get(s) + 2) != 1);
}

TEST_CASE("escape: large", "[.]") {
  fm::heap h(small());
  auto p = h.array<char>(100'000);  // four segments
  const char* raw = nullptr;
  {
    fm::scope s;
    raw = p.get(s)->data();
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(look_at(reinterpret_cast<const escaped_record*>(raw + 90'000)) == 0);
}

TEST_CASE("escape: control", "[.]") {
  fm::heap h(small());
  auto p = h.make<escaped_record>({.id = 5});
  for (int round = 0; round < 3; ++round) {
    {
      fm::scope s;
      REQUIRE(look_at(p.get(s)) == 5);
    }
    REQUIRE(h.evict_all() == fm::errc::ok);
  }
}

#elif !defined(NDEBUG) || defined(FARMEM_AUDIT)

TEST_CASE("memory that a scope's pointer was into is filled with a pattern when it is free again") {
  fm::heap h(small());
  auto p = h.make<escaped_record>({.id = 5});
  const escaped_record* raw = pointer_out_of_a_scope(p);
  REQUIRE(look_at(raw) == 5);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(look_at(raw) == 0xdbdbdbdbdbdbdbdb);
  REQUIRE(p->id == 5);
}

#endif

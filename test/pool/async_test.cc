// Reads of a pool that nobody waits for at once: awaited in tasks, waited for, dropped, beside compaction and broken
// connections.
#include <farmem/pool/operation.h>
#include <farmem/tasks/run.h>

#include <optional>
#include <random>
#include <thread>

#include "pool/fixture.h"

namespace {

using namespace pool_test;

using value = checked<8>;

fm::task<std::uint64_t> sum_of(pool& p, std::span<const pool_ptr<value>> ptrs) {
  std::uint64_t sum = 0;
  for (const auto& a : ptrs) {
    const value v = co_await p.read_async(a);
    sum += v.whole() ? v.id : 1'000'000'000;
  }
  co_return sum;
}

fm::task<errc> code_of_read(pool& p, pool_ptr<value> a) {
  try {
    (void)co_await p.read_async(a);
  } catch (const error& e) {
    co_return e.code();
  }
  co_return errc::ok;
}

}  // namespace

TEST_CASE("tasks await reads of a pool, and errors reach them") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const std::uint32_t versions = GENERATE(0u, ~0u);
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.versions_upto = versions;
  pool p(o), other(o);
  std::vector<pool_ptr<value>> all;
  for (std::uint64_t i = 0; i < 400; ++i) all.push_back(p.alloc(value::make(i, 0)));
  std::vector<fm::task<std::uint64_t>> tasks;
  for (std::size_t i = 0; i < 8; ++i) tasks.push_back(sum_of(other, std::span(all).subspan(i * 50, 50)));
  std::uint64_t sum = 0;
  for (const std::uint64_t s : fm::run_all(std::move(tasks))) sum += s;
  CHECK(sum == 400 * 399 / 2);
  CHECK(fm::run(sum_of(other, all)) == sum);
  const auto gone = all[3];
  p.free(gone);
  CHECK(fm::run(code_of_read(other, gone)) == errc::not_found);
  CHECK(fm::run(code_of_read(other, {})) == errc::access_denied);
  // Objects that compaction has moved are found, and the operation knows where.
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 8 != 0 && i != 3) p.free(all[i]);
  p.compact();
  for (std::size_t i = 0; i < all.size(); i += 8) {
    auto r = other.read_async(all[i]);
    CHECK(r.wait().id == i);
    value v;
    CHECK(other.direct_read(r.pointer(), v) == pool_read::ok);
  }
  const std::uint64_t word = 0;
  const pool_ptr<value> small(p.alloc_bytes(std::as_bytes(std::span(&word, 1))));
  CHECK(other.read_async(small).try_wait().error().code() == errc::layout_mismatch);
  check_sound(p);
}

TEST_CASE("reads under way end by themselves when they are dropped, and when connections break") {
  const std::string scheme = GENERATE("shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  std::vector<pool_ptr<value>> all;
  pool p(o);
  for (std::uint64_t i = 0; i < 300; ++i) all.push_back(p.alloc(value::make(i, 0)));
  {
    pool other(o);
    for (const auto& a : all) (void)other.read_async(a);
  }
  pool other(o);
  for (int round = 0; round < 5; ++round) {
    std::vector<pool_operation<value>> reads;
    for (const auto& a : all) reads.push_back(other.read_async(a));
    other.drop_connections();
    for (std::uint64_t i = 0; i < reads.size(); ++i) {
      const auto v = reads[i].try_wait();
      REQUIRE(v.has_value());
      CHECK((v->id == i && v->whole()));
      CHECK(reads[i].test());
      CHECK(reads[i].try_wait()->id == i);  // it keeps its result
    }
  }
  // Nothing of them holds frames back.
  for (const auto& a : all) p.free(a);
  p.compact();
  const time_point until = clock::now() + std::chrono::minutes(5);
  while (p.stats().agents[0].waiting_bytes != 0 && clock::now() < until) std::this_thread::yield();
  CHECK(p.stats().agents[0].waiting_bytes == 0);
  check_sound(p);
}

TEST_CASE("awaited reads see whole values beside writes and compaction") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.versions_upto = GENERATE(0u, ~0u);
  pool p(o), other(o);
  std::vector<pool_ptr<value>> stays, goes;
  for (std::uint64_t i = 0; i < 100; ++i) {
    stays.push_back(p.alloc(value::make(i, 0)));
    for (int k = 0; k < 4; ++k) goes.push_back(p.alloc(value::make(7, 0)));
  }
  const std::vector<pool_ptr<value>> ptrs = stays;  // writes renew those that they go by
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0}, failed{0};
  std::thread changing([&] {
    try {
      for (std::uint64_t version = 1; !stop.load(); ++version) {
        for (std::size_t i = 0; i < goes.size() * 3 / 4; ++i) p.free(goes[i]);
        for (std::uint64_t i = 0; i < stays.size(); i += 3) p.write(stays[i], value::make(i, version));
        p.compact();
        for (std::size_t i = 0; i < goes.size() * 3 / 4; ++i) goes[i] = p.alloc(value::make(7, 0));
        std::rotate(goes.begin(), goes.begin() + 37, goes.end());
        rounds.fetch_add(1);
      }
    } catch (const error&) {
      failed.fetch_add(1);
    }
  });
  for (int list = 0; list < 10 || (rounds.load() < 3 && failed.load() == 0); ++list) {
    std::vector<fm::task<std::uint64_t>> tasks;
    for (std::size_t i = 0; i < 10; ++i) tasks.push_back(sum_of(other, std::span(ptrs).subspan(i * 10, 10)));
    std::uint64_t sum = 0;
    for (const std::uint64_t s : fm::run_all(std::move(tasks))) sum += s;
    REQUIRE(sum == 100 * 99 / 2);
  }
  stop.store(true);
  changing.join();
  CHECK(failed.load() == 0);
  check_sound(p);
}

// A paged range is plain memory: whatever is written is read again, over every transport and in both fault modes, with local
// memory for a part of it.
#include "fixture.h"

#include <fcntl.h>

using namespace paged_test;

namespace {

/// Calls `body` for every transport and fault mode.
void everywhere(const std::function<void(world&)>& body) {
  for (const std::string& t : transports)
    for (const fault_mode m : modes()) {
      INFO(t << ", " << name_of(m));
      world w(t);
      w.o.faults = m;
      body(w);
    }
}

}  // namespace

TEST_CASE("a range is zero at first and keeps what is written to it") {
  everywhere([](world& w) {
    paged p(w.o);
    REQUIRE(p.size() == 4_MiB);
    mirror m(p);
    REQUIRE(m.all_right());  // zeroes
    for (int i = 0; i < 400; ++i) m.write(20000);
    REQUIRE(m.all_right());
    const paged_stats s = p.stats(true);
    INFO(s.text());
    CHECK(s.local_used_bytes <= s.local_bytes);
    CHECK(s.faults_remote > 0);
    CHECK(s.written_bytes > 0);
    CHECK(s.failed == 0);
    CHECK(p.verify() == "");
  });
}

TEST_CASE("random small writes are read again with very little local memory") {
  for (const bool elastic : {true, false})
    everywhere([&](world& w) {
      w.o.block = 4_KiB;
      w.o.local = 32_KiB;
      w.o.capacity = 1_MiB;
      w.o.elastic = elastic;
      paged p(w.o);
      mirror m(p, 7);
      bool right = true;
      for (int i = 0; i < 500; ++i) {
        m.write(64);
        right = right && m.read(5000);
      }
      CHECK(right);
      CHECK(m.all_right());
      CHECK(p.verify() == "");
    });
}

TEST_CASE("a sequential pass over a range larger than local memory is read ahead") {
  everywhere([](world& w) {
    w.o.read_ahead = 64_KiB;
    paged p(w.o);
    auto* const words = reinterpret_cast<std::uint64_t*>(p.data());
    const std::size_t n = p.size() / 8;
    for (std::size_t i = 0; i < n; ++i) words[i] = i * 3;
    bool right = true;
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t i = 0; i < n; ++i) right = right && words[i] == i * 3;
    CHECK(right);
    const paged_stats s = p.stats();
    INFO(s.text());
    CHECK(s.ahead_bytes > 0);
    CHECK(p.verify() == "");
  });
}

TEST_CASE("every block size from a page to two MiB works") {
  for (const fault_mode mode : modes())
    for (const std::uint64_t block : {4_KiB, 64_KiB, 2_MiB}) {
      INFO(block << ", " << name_of(mode));
      world w("local");
      w.o.faults = mode;
      w.o.block = block;
      w.o.read_ahead = 0;
      w.o.elastic = false;
      w.o.local_region = 4_MiB;
      w.o.local = 8 * block;
      w.o.capacity = 2 * w.o.local;
      paged p(w.o);
      mirror m(p, block);
      bool right = true;
      for (int i = 0; i < 60; ++i) {
        m.write(3000);
        right = right && m.read(3000);
      }
      CHECK(right);
      p.evict_all();
      CHECK(p.stats().local_used_bytes == 0);
      CHECK(m.all_right());
      CHECK(p.verify() == "");
    }
}

TEST_CASE("without tracking of writes, everything is written back") {
  everywhere([](world& w) {
    w.o.tracking = dirty_tracking::none;
    paged p(w.o);
    mirror m(p, 5);
    for (int i = 0; i < 200; ++i) m.write(10000);
    CHECK(m.all_right());
    p.evict_all();
    CHECK(m.all_right());
    CHECK(p.verify() == "");
    CHECK(p.stats().dropped_blocks == 0);
  });
}

// A fault thread may be making room for a page that read-ahead brings meanwhile: the one that waited for it goes on, and eviction, too.
TEST_CASE("verifying waits for fault threads that are still at work when the access has been served") {
  everywhere([](world& w) {
    w.o.tracking = dirty_tracking::none;
    w.o.local = 256_KiB;
    paged p(w.o);
    std::size_t sum = 0;
    for (int pass = 0; pass < 60; ++pass) {
      const std::size_t until = p.size() / 8 + p.size() / 8 * static_cast<std::size_t>(pass % 7);
      for (std::size_t at = 0; at < until; at += 4_KiB) sum += static_cast<std::size_t>(p.data()[at]);
      INFO(pass);
      REQUIRE(p.verify() == "");
    }
    CHECK(sum == 0);
  });
}

TEST_CASE("what is only read is not written back") {
  everywhere([](world& w) {
    w.o.read_ahead = 0;
    paged p(w.o);
    std::memset(p.data(), 7, p.size());
    p.evict_all();
    const std::uint64_t written = p.stats().written_bytes;
    bool right = true;
    for (std::size_t i = 0; i < p.size(); ++i) right = right && p.data()[i] == std::byte{7};
    CHECK(right);
    p.evict_all();
    CHECK(p.stats().written_bytes == written);
    CHECK(p.stats().dropped_blocks > 0);
  });
}

TEST_CASE("threads that use the same blocks agree about them") {
  everywhere([](world& w) {
    w.o.local = 256_KiB;
    paged p(w.o);
    constexpr std::size_t threads = 4, steps = 400;
    // Every thread has one word in every 256 bytes, so that they meet in all pages.
    std::vector<std::thread> all;
    std::vector<std::size_t> wrong(threads);
    for (std::size_t t = 0; t < threads; ++t)
      all.emplace_back([&, t] {
        const auto mine = [&](std::size_t i) { return reinterpret_cast<std::uint64_t*>(p.data() + i * 256 + t * 8); };
        const std::size_t words = p.size() / 256;
        std::vector<std::uint64_t> copy(words);
        std::mt19937_64 random(t + 1);
        for (std::size_t i = 0; i < steps; ++i) {
          const std::size_t at = random() % words;
          *mine(at) = copy[at] = random();
          const std::size_t look = random() % words;
          wrong[t] += *mine(look) != copy[look];
        }
        for (std::size_t i = 0; i < words; ++i) wrong[t] += *mine(i) != copy[i];
      });
    for (auto& t : all) t.join();
    CHECK(wrong == std::vector<std::size_t>(threads));
    CHECK(p.verify() == "");
  });
}

TEST_CASE("system calls may use a range with fault threads, and what is populated in any mode") {
  everywhere([](world& w) {
    paged p(w.o);
    std::memset(p.data(), 'x', p.size());
    p.evict_all();
    const int null = ::open("/dev/zero", O_RDWR);
    REQUIRE(null >= 0);
    if (w.o.faults == fault_mode::threads) {
      CHECK(::read(null, p.data(), 100'000) == 100'000);
    } else {
      CHECK(::read(null, p.data(), 100'000) == -1);
      CHECK(errno == EFAULT);
      p.populate(p.bytes().first(100'000), true);
      CHECK(::read(null, p.data(), 100'000) == 100'000);
    }
    ::close(null);
    CHECK(p.data()[99'999] == std::byte{0});
    CHECK(p.data()[100'000] == std::byte{'x'});
    CHECK_THROWS_AS(p.populate(p.bytes()), error);  // more than half of local memory
  });
}

TEST_CASE("prefetched pages are there without a fault") {
  everywhere([](world& w) {
    w.o.read_ahead = 0;
    paged p(w.o);
    std::memset(p.data(), 9, p.size());
    p.evict_all();
    p.prefetch(p.bytes().first(64_KiB));
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(10);
    while (p.stats().local_used_bytes < 64_KiB && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    // The last block is counted when it begins to be filled, so a touch of it may have to wait; a touch of the first not.
    const std::uint64_t before = p.stats().faults_remote;
    CHECK(p.data()[5] == std::byte{9});
    CHECK(p.stats().faults_remote == before);
  });
}

TEST_CASE("discarded pages are zero and take no memory, and their neighbours stay") {
  everywhere([](world& w) {
    w.o.read_ahead = 0;
    paged p(w.o);
    mirror m(p, 11);
    for (int i = 0; i < 300; ++i) m.write(20000);
    for (int i = 0; i < 50; ++i) {
      const std::size_t at = m.random()() % (p.size() - 100'000), n = m.random()() % 100'000;
      p.discard(p.bytes().subspan(at, n));
      const std::size_t first = (at + 4095) / 4096 * 4096, end = (at + n) / 4096 * 4096;
      if (first < end)
        std::fill(m.copy().begin() + std::ptrdiff_t(first), m.copy().begin() + std::ptrdiff_t(end), std::byte{0});
      m.write(20000);
    }
    CHECK(m.all_right());
    CHECK(p.verify() == "");
    p.discard(p.bytes());
    CHECK(p.stats().local_used_bytes == 0);
    CHECK(fm::test::await([&] { return p.stats().regions == 0; }));  // one may have been asked for before
    std::fill(m.copy().begin(), m.copy().end(), std::byte{0});
    CHECK(m.all_right());
    CHECK(p.verify() == "");
  });
}

TEST_CASE("the local memory changes while the range is used") {
  everywhere([](world& w) {
    paged p(w.o);
    std::atomic<bool> stop{false};
    bool right = true;
    std::thread user([&] {
      mirror m(p, 13);
      while (!stop.load()) {
        m.write(5000);
        right = right && m.read(5000);
      }
      right = right && m.all_right();
    });
    for (int i = 0; i < 20; ++i) {
      p.resize_local(i % 2 == 0 ? 128_KiB : 1_MiB);
      const paged_stats s = p.stats();
      if (i % 2 == 0) CHECK(s.local_used_bytes <= 128_KiB);
    }
    stop.store(true);
    user.join();
    CHECK(right);
    CHECK_THROWS_AS(p.resize_local(16_KiB), error);
    CHECK(p.verify() == "");
  });
}

TEST_CASE("blocks are spread over several agents") {
  for (const std::string& t : transports)
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      world w(t, 3);
      w.o.faults = mode;
      paged p(w.o);
      mirror m(p, 17);
      for (int i = 0; i < 300; ++i) m.write(20000);
      p.evict_all();
      CHECK(m.all_right());
      CHECK(p.verify() == "");
      CHECK(p.stats().regions >= 12);
    }
}

TEST_CASE("several ranges of a process do not mix") {
  for (const fault_mode mode : modes()) {
    world w("local");
    w.o.faults = mode;
    paged a(w.o), b(w.o);
    mirror ma(a, 1), mb(b, 2);
    for (int i = 0; i < 200; ++i) {
      ma.write(9000);
      mb.write(9000);
    }
    CHECK(ma.all_right());
    CHECK(mb.all_right());
    CHECK(a.contains(a.data()));
    CHECK_FALSE(a.contains(b.data()));
    paged c(std::move(a));
    CHECK(c.verify() == "");
  }
}

// The parts that decide, alone: queues, streams, the policy of queues, and elastic blocks as the statistics
// show them.

#include <numeric>

#include "fixture.h"
#include "paged/block_queue.h"
#include "paged/block_record.h"
#include "paged/homes/fetch_line.h"
#include "paged/queue_policy.h"
#include "paged/streams.h"
#include "support/await.h"

using namespace paged_test;
using namespace fm::detail;

TEST_CASE("queue policy: promotion by luck, proactive's share, inactive's target") {
  const queue_policy p{.promote_probability = 0.1, .proactive_share = 0.5, .inactive_share = 0.2};
  std::uint64_t state = 88172645463325252ull;
  int promoted = 0;
  for (int i = 0; i < 100'000; ++i) promoted += p.promotes(next_random(state));
  CHECK(promoted > 9'000);
  CHECK(promoted < 11'000);
  CHECK_FALSE(queue_policy{.promote_probability = 0}.promotes(0));
  CHECK(queue_policy{.promote_probability = 1}.promotes(~std::uint64_t{0}));
  CHECK_FALSE(p.proactive_is_over(50, 100));
  CHECK(p.proactive_is_over(51, 100));
  CHECK(p.inactive_target(100, 2) == 20);
  CHECK(p.inactive_target(5, 2) == 2);
}

TEST_CASE("whoever leaves a line, the first one that still waits in it is next") {
  fetch_line line;
  std::array<fetch_line::position, 4> at;
  CHECK(line.empty());
  for (auto& p : at) line.enter(p);
  line.leave(at[1]);
  CHECK(line.is_first(at[0]));
  line.leave(at[0]);
  CHECK(line.is_first(at[2]));
  line.enter(at[0]);
  line.leave(at[3]);
  line.leave(at[2]);
  CHECK(line.is_first(at[0]));
  line.leave(at[0]);
  CHECK(line.empty());
  line.enter(at[1]);
  CHECK(line.is_first(at[1]));
}

TEST_CASE("a queue is first in, first out, and knows entries that are old") {
  page_table table(1024, 4);
  block_queue q;
  const auto put = [&](std::uint64_t page) {
    page_word w = table.get(page);
    w.state(block_state::resident);
    w.queue(page_queue::active);
    w.tag(w.tag() + 1);
    table.set(page, w);
    q.push(block_entry::of(page, w), table);
  };
  for (std::uint64_t i = 0; i < 100; ++i) put(i);
  CHECK(q.pages() == 100);
  put(50);  // enters again: its first entry is old now
  std::array<block_entry, 16> some;
  std::vector<std::uint64_t> order;
  std::size_t old = 0;
  for (std::size_t n; (n = q.pop(some, table)) != 0;)
    for (std::size_t i = 0; i < n; ++i) {
      if (some[i].holds(table.get(some[i].first())))
        order.push_back(some[i].first());
      else
        ++old;
    }
  CHECK(old == 1);
  REQUIRE(order.size() == 100);
  CHECK(order.back() == 50);
  CHECK(std::is_sorted(order.begin(), order.end() - 1));
  CHECK(q.pages() == 0);
  // Blocks that come and go without being taken out do not make it grow: it drops what is old.
  for (int i = 0; i < 100'000; ++i) put(std::uint64_t(i) % 10);
  CHECK(q.pages() < 1000);
}

TEST_CASE("a page's word keeps its parts apart") {
  page_word w;
  w.order(9);
  w.hint(5);
  w.queue(page_queue::proactive);
  w.tag(4095);
  w.state(block_state::writing);
  w.dirty(true);
  w.ahead(true);
  CHECK(w.order() == 9);
  CHECK(w.hint() == 5);
  CHECK(w.queue() == page_queue::proactive);
  CHECK(w.tag() == 4095);
  CHECK(w.state() == block_state::writing);
  w.tag(4096);
  CHECK(w.tag() == 0);
  w.dirty(false);
  CHECK(w.ahead());
  CHECK_FALSE(w.dirty());
  CHECK_FALSE(w.home());
}

TEST_CASE("a stream is read ahead in windows that double, and only a stream") {
  stream_table s(64, 4);
  ahead_job job;
  CHECK_FALSE(s.awaits(103));
  CHECK_FALSE(s.advance(100, 1, false, job));
  CHECK_FALSE(s.advance(101, 1, false, job));
  REQUIRE(s.advance(102, 1, true, job));
  CHECK(job.first == 103);
  CHECK(job.pages == 8);
  CHECK(job.write);
  CHECK(s.awaits(103));
  REQUIRE(s.advance(103, 4, false, job));  // the trigger: the next window begins where this one ends
  CHECK(job.first == 111);
  CHECK_FALSE(s.advance(107, 1, false, job));  // has not come in time, but is under way
  CHECK(s.awaits(111));
  CHECK(job.pages == 16);
  REQUIRE(s.advance(111, 4, false, job));
  CHECK(job.first == 127);
  CHECK(job.pages == 32);
  REQUIRE(s.advance(127, 4, false, job));
  REQUIRE(s.advance(159, 4, false, job));
  CHECK(job.pages == 64);  // the most
  std::mt19937_64 random(1);
  int jobs = 0;
  for (int i = 0; i < 1000; ++i) jobs += s.advance(random() % (1u << 30), 1, false, job);
  CHECK(jobs == 0);
  stream_table none(0, 4);
  for (std::uint64_t i = 0; i < 10; ++i) CHECK_FALSE(none.advance(i, 1, false, job));
}

TEST_CASE("large blocks are sampled seldom, until some turn out to be in vain") {
  block_record record;
  std::mt19937_64 random(3);
  const auto sampled = [&](std::uint32_t order) {
    int n = 0;
    for (int i = 0; i < 3200; ++i) n += record.samples(order, random());
    return n;
  };
  const auto grown = [&](std::uint32_t order) {
    int n = 0;
    for (int i = 0; i < 3200; ++i) n += record.grows(order, random());
    return n;
  };
  CHECK(sampled(0) == 0);
  CHECK(sampled(1) == 3200);
  CHECK(sampled(4) > 50);
  CHECK(sampled(4) < 200);
  CHECK(sampled(9) < 200);
  CHECK(grown(4) == 3200);
  for (int i = 0; i < 3; ++i) record.turned_out(4, false);
  CHECK(sampled(4) == 3200);
  CHECK(grown(4) < 200);
  CHECK(sampled(3) < 1000);  // of other sizes nothing was learnt
  CHECK(grown(3) == 3200);
  for (int i = 0; i < 100; ++i) record.turned_out(4, false);  // doubt has an end
  for (int i = 0; i < 5; ++i) record.turned_out(4, true);
  CHECK(sampled(4) < 200);
  CHECK(grown(4) == 3200);
}

TEST_CASE("blocks grow in a sequential pass and stay small under random reads") {
  world w("local");
  w.o.faults = modes().back();
  w.o.block = 64_KiB;
  w.o.capacity = 16_MiB;
  w.o.local = 2_MiB;
  paged p(w.o);
  const auto pass = [&] {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < p.size(); i += 64) sum += std::to_integer<std::uint64_t>(p.data()[i]);
    return sum;
  };
  std::memset(p.data(), 1, p.size());
  const paged_stats filled = p.stats();
  CHECK(pass() == p.size() / 64);
  const paged_stats s = p.stats(true);
  INFO(s.text());
  std::uint64_t pages = 0, in_large = 0;
  for (std::size_t i = 0; i <= 4; ++i) {
    const std::uint64_t n = (s.filled_blocks[i] - filled.filled_blocks[i]) << i;
    pages += n;
    in_large += i >= 3 ? n : 0;
  }
  CHECK(pages >= (p.size() - 3_MiB) / 4096);
  CHECK(2 * in_large > pages);
  CHECK(s.resident_blocks[4] > 0);
  p.evict_all();

  // dcm, section 4.2: blocks of which little is used fall apart.
  std::mt19937_64 random(9);
  bool right = true;
  for (int i = 0; i < 40'000; ++i) right = right && p.data()[random() % p.size()] == std::byte{1};
  CHECK(right);
  const paged_stats before = p.stats();
  for (int i = 0; i < 5'000; ++i) right = right && p.data()[random() % p.size()] == std::byte{1};
  CHECK(right);
  const paged_stats after = p.stats();
  INFO(after.text());
  CHECK(after.reduced > 0);
  CHECK(after.filled_blocks[0] + after.filled_blocks[1] - before.filled_blocks[0] - before.filled_blocks[1] >
        2 * (after.filled_blocks[4] - before.filled_blocks[4]));
}

TEST_CASE("accuracy weighs samples by all pages of their kind") {
  paged_stats s;
  CHECK(s.prefetch_accuracy() == 1);
  s.beside_pages[1] = 100;  // all of them sampled, all in vain
  s.sampled_pages[1] = 100;
  s.beside_pages[4] = 15'000;  // one in a hundred sampled, all used
  s.sampled_pages[4] = s.sampled_used[4] = 150;
  CHECK(s.prefetch_accuracy() == Approx(15'000.0 / 15'100));
  s.ahead_pages = 640;  // in ten windows, of which one was used
  s.ahead_sampled = 10;
  s.ahead_used = 1;
  CHECK(s.prefetch_accuracy() == Approx((15'000.0 + 64) / (15'100 + 640)));
  s.beside_pages[9] = 1'000'000;  // of which nothing is known
  CHECK(s.prefetch_accuracy() == Approx((15'000.0 + 64) / (15'100 + 640)));
}

TEST_CASE("every page that is filled was asked for, came beside one that was, or was read ahead") {
  world w("local");
  w.o.faults = modes().back();
  w.o.block = 64_KiB;
  w.o.capacity = 4_MiB;
  w.o.local = 2_MiB;
  w.o.elastic = GENERATE(false, true);
  w.o.read_ahead = GENERATE(0_KiB, 256_KiB);
  INFO("elastic " << w.o.elastic << ", read ahead " << w.o.read_ahead);
  paged p(w.o);
  std::memset(p.data(), 1, p.size());
  for (std::size_t i = 0; i < p.size(); i += 512) CHECK(p.data()[i] == std::byte{1});
  const auto sum = [](const auto& of) { return std::accumulate(of.begin(), of.end(), std::uint64_t{0}); };
  const auto all_told = [&] {  // once nothing is read ahead any more
    const paged_stats s = p.stats();
    std::uint64_t filled = 0;
    for (std::size_t i = 0; i < s.filled_blocks.size(); ++i) filled += s.filled_blocks[i] << i;
    return filled == s.faults_remote + s.faults_new + sum(s.beside_pages) + s.ahead_pages;
  };
  CHECK(test::await(all_told));
  const paged_stats s = p.stats();
  INFO(s.text());
  if (w.o.read_ahead == 0) CHECK(s.ahead_pages == 0);
  if (!w.o.elastic) CHECK(s.beside_pages[4] == sum(s.beside_pages));
  if (w.o.elastic && w.o.read_ahead == 0) CHECK(sum(s.sampled_pages) != 0);  // blocks of two and four pages all are
  for (std::size_t i = 0; i < paged_stats::orders; ++i) CHECK(s.sampled_pages[i] <= s.beside_pages[i]);
}

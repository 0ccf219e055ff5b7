// Everything at once: an owner that writes, a reader that fetches and reads one-sidedly, the store's own thread that
// cleans, in a memory so small that regions go round all the time. An oracle knows the newest value of every slot.
#include <atomic>
#include <random>
#include <thread>

#include "fixture.h"

using namespace store_test;

TEST_CASE("no object is lost or older than written while regions are cleaned, retired and reused", "[store]") {
  store_options options = small(24);
  options.hooks.background = true;
  auto s = fm::agent::store::create(options);
  owner o(*s);
  o.open_ready();
  constexpr slot_t slots = 6000;  // of 24 regions, about 7 are live
  // The value that is surely indexed, and the one that may be: a reader must see one in between.
  std::vector<std::atomic<std::uint64_t>> indexed(slots + 1), sent(slots + 1);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0}, one_sided{0}, wrong{0};

  std::thread reader([&] {
    std::mt19937_64 random(7);
    while (!stop.load()) {
      const slot_t slot = 1 + random() % slots;
      const std::uint64_t least = indexed[slot].load();
      fabric::answer a;
      struct __attribute__((packed)) {
        message_head head{static_cast<std::uint16_t>(message_type::fetch_slot), 0, sizeof(fetch_slot_body)};
        fetch_slot_body body{};
      } m;
      m.body = {slot, 0, 4096};
      const errc e = s->message(*o.peer, {reinterpret_cast<const std::byte*>(&m), sizeof m}, a);
      answer_head head;
      std::memcpy(&head, a.payload.data(), sizeof head);
      if (e != errc::ok || head.code != 0) {
        ++wrong;
        continue;
      }
      fetch_slot_answer f;
      std::memcpy(&f, a.payload.data() + sizeof head, sizeof f);
      if (f.entry == 0) {
        if (least != 0) ++wrong;
        continue;
      }
      std::uint64_t copy[9];
      if (f.bytes != sizeof copy) {
        ++wrong;
        continue;
      }
      std::memcpy(copy, a.payload.data() + sizeof head + sizeof f, sizeof copy);
      if (copy[1] < least || copy[1] > sent[slot].load() || copy[1] != copy[8]) ++wrong;
      ++reads;
      // The same by the hint; the region may have gone meanwhile, but what is read must be this object.
      const home_address at = home_address::unpack(f.entry);
      if (const std::byte* p = s->memory(*o.peer, {at.region, at.generation, at.offset}, 72, fabric::access::read)) {
        std::memcpy(copy, p, sizeof copy);
        s->memory_done(*o.peer, at.region);
        if (detail::header::slot(copy[0]) != slot || copy[1] > sent[slot].load() || copy[1] != copy[8]) ++wrong;
        ++one_sided;
      }
    }
  });

  std::mt19937_64 random(11);
  region_answer r{};
  std::uint64_t at = 64_KiB, value = 0;
  std::vector<region_name> retiring;
  const time_point give_up = clock::now() + std::chrono::minutes(10);
  const auto agree_to_all = [&] {
    for (const region_name& n : o.peer->retirements()) REQUIRE(o.agree(n).ok());
  };
  for (int round = 0; round < 1500; ++round) {
    agree_to_all();
    batch_builder b;
    std::vector<std::pair<slot_t, std::uint64_t>> written;
    ++value;
    for (int i = 0; i < 100; ++i) {
      // Half of the writes go to a tenth of the slots, so that regions come to be of every density.
      const slot_t slot = 1 + (i % 2 ? random() % slots : random() % (slots / 10));
      if (b.offsets.count(slot) != 0) continue;
      b.object(type_line, slot, 8, value);
      written.emplace_back(slot, value);
    }
    if (at + b.bytes.size() > 64_KiB) {
      if (r.generation != 0) REQUIRE(o.seal(r).ok());
      reply next = o.send(message_type::open_region);
      while (!next.ok()) {
        REQUIRE((next.code == errc::agent_full || next.code == errc::quota_exceeded));
        REQUIRE(clock::now() < give_up);
        agree_to_all();
        std::this_thread::yield();
        next = o.send(message_type::open_region);
      }
      r = next.as<region_answer>();
      at = 0;
    }
    for (const auto& [slot, v] : written) sent[slot].store(v);
    REQUIRE(o.append(b, r, at).ok());
    for (const auto& [slot, v] : written) indexed[slot].store(v);
    at += b.bytes.size();
  }
  // The reader must have seen some of it, however few cores there are.
  while (reads.load() < 100 && clock::now() < give_up) std::this_thread::yield();
  stop = true;
  reader.join();
  CHECK(wrong.load() == 0);
  CHECK(reads.load() >= 100);
  CHECK(one_sided.load() > 0);
  o.audit();
  for (slot_t slot = 1; slot <= slots; ++slot) {
    if (indexed[slot].load() == 0) continue;
    if (o.value(slot) != indexed[slot].load())
      FAIL("slot " << slot << " has " << o.value(slot) << " instead of " << indexed[slot].load());
  }
  INFO(s->statistics());
  CHECK(s->statistics().find("\"bytes_cleaned\":0,") == std::string::npos);
}

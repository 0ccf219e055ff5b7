// crc32c against the published vectors, and its three parallel lanes against the definition, bit by bit.
#include "base/base.h"
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

using fm::detail::crc32c;
using fm::detail::crc32c_without_folding;

namespace {

// The definition of the checksum: reflected polynomial division, one bit at a time.
std::uint32_t by_definition(const std::vector<unsigned char>& data, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  for (const unsigned char byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}

std::vector<unsigned char> random_bytes(std::mt19937_64& random, std::size_t count) {
  std::vector<unsigned char> data(count);
  for (auto& byte : data) byte = static_cast<unsigned char>(random());
  return data;
}

}  // namespace

TEST_CASE("crc32c gives the values of RFC 3720 appendix B.4") {
  std::vector<unsigned char> data(32, 0x00);
  CHECK(crc32c(data.data(), data.size()) == 0x8a9136aau);
  data.assign(32, 0xff);
  CHECK(crc32c(data.data(), data.size()) == 0x62a8ab43u);
  std::iota(data.begin(), data.end(), static_cast<unsigned char>(0));
  CHECK(crc32c(data.data(), data.size()) == 0x46dd794eu);
  std::iota(data.rbegin(), data.rend(), static_cast<unsigned char>(0));
  CHECK(crc32c(data.data(), data.size()) == 0x113fdb5cu);
  constexpr std::string_view digits = "123456789";
  CHECK(crc32c(digits.data(), digits.size()) == 0xe3069283u);
}

TEST_CASE("crc32c of the iSCSI read command of RFC 3720 is the published one") {
  constexpr unsigned char command[48] = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                         0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
                                         0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
                                         0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  CHECK(crc32c(command, sizeof command) == 0xd9963a56u);
}

TEST_CASE("crc32c of nothing is its seed") {
  CHECK(crc32c(nullptr, 0) == 0);
  CHECK(crc32c(nullptr, 0, 0x12345678u) == 0x12345678u);
}

TEST_CASE(
    "crc32c follows its definition for every size around a word, a fold and the three lanes, and at any address") {
  std::mt19937_64 random(1);
  std::vector<std::size_t> sizes;
  for (std::size_t n = 0; n <= 70; ++n) sizes.push_back(n);
  for (const std::size_t lanes : {1024, 1280, 1536, 2048, 3072, 6144, 9216})
    for (std::size_t n = lanes - 9; n <= lanes + 9; ++n) sizes.push_back(n);
  for (const std::size_t size : sizes) {
    auto data = random_bytes(random, size);
    const auto seed = static_cast<std::uint32_t>(random());
    const std::uint32_t expected = by_definition(data, seed);
    CAPTURE(size, seed);
    REQUIRE(crc32c_without_folding(data.data(), size, seed) == expected);
    REQUIRE(crc32c(data.data(), size, seed) == expected);
    const std::size_t shift = size % 7 + 1;
    data.insert(data.begin(), shift, 0);
    REQUIRE(crc32c(data.data() + shift, size, seed) == expected);
  }
}

TEST_CASE("crc32c follows its definition for random sizes, seeds and alignments") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    const std::size_t size = random() % 20'000, offset = random() % 8;
    auto data = random_bytes(random, size + offset);
    const auto seed = static_cast<std::uint32_t>(random());
    const std::uint32_t ours = crc32c(data.data() + offset, size, seed);
    data.erase(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(offset));
    CAPTURE(round, size, offset, seed);
    REQUIRE(ours == by_definition(data, seed));
  }
}

TEST_CASE("crc32c of a whole is the crc32c of its parts continued") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    const auto data = random_bytes(random, 1 + random() % 16'384);
    const std::size_t cut = random() % data.size();
    const std::uint32_t head = crc32c(data.data(), cut);
    CAPTURE(round, data.size(), cut);
    REQUIRE(crc32c(data.data() + cut, data.size() - cut, head) == crc32c(data.data(), data.size()));
  }
}

TEST_CASE("crc32c changes when any single bit of a batch changes") {
  std::mt19937_64 random(4);
  auto data = random_bytes(random, 3 * 1024 + 17);
  const std::uint32_t intact = crc32c(data.data(), data.size());
  for (std::size_t bit = 0; bit < data.size() * 8; bit += 1 + random() % 13) {
    data[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    CAPTURE(bit);
    REQUIRE(crc32c(data.data(), data.size()) != intact);
    data[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
  }
  CHECK(crc32c(data.data(), data.size()) == intact);
}

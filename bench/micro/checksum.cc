// CRC32C by length: the checksum of batches and of pool objects.
#include "fixture.h"

#include "base/crc32c.h"

namespace fm::micro {
namespace {

void checksum_crc32c(benchmark::State& state) {
  const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(state.range(0)), 0x5a);
  for (auto _ : state) benchmark::DoNotOptimize(detail::crc32c(bytes.data(), bytes.size()));
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(checksum_crc32c)->Name("checksum/crc32c")->ArgName("bytes")->RangeMultiplier(8)->Range(8, 1 << 20);

}  // namespace
}  // namespace fm::micro

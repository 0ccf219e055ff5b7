// A user's program, built against an installed farmem: uses headers, the compiled library, and an error that travels
// from one to the other.
#include <cstdio>
#include <cstring>
#include <farmem/base.h>
#include <farmem/fabric.h>
#include <farmem/os.h>
#include <farmem/store.h>
#include <farmem/type.h>

int main() {
  const char digits[] = "123456789";
  if (fm::detail::crc32c(digits, 9) != 0xe3069283u) return 1;
  const auto s = fm::store::store::create({.memory_bytes = 1u << 20, .region_bytes = 1u << 16});
  if (s->statistics().empty()) return 4;
  fm::os::memory_file file("consumer", 4096);
  std::memcpy(file.base(), digits, sizeof digits);
  try {
    fm::os::memory_file::adopt(-1, 4096);
    return 2;
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::invalid_argument) return 3;
    std::printf("consumer: %s\n", e.what());
  }
  return 0;
}

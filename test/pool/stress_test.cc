// Nobody reads a wrong byte, over every transport and in every mode of a pool.
// FARMEM_STRESS_SECONDS says how long each combination takes, and makes it tell what happened; half a second by default.
// FARMEM_STRESS_OVER names the one transport to run over.
#include "pool/stress.h"

#include <cstdio>
#include <cstdlib>

#include "pool/fixture.h"

using namespace pool_test;

TEST_CASE("nobody ever reads a wrong byte while everything is written, freed and compacted") {
  const char* const seconds = std::getenv("FARMEM_STRESS_SECONDS");
  const duration run_for = seconds == nullptr ? duration(std::chrono::milliseconds(500))
                                              : duration(std::chrono::seconds(std::max(std::atoi(seconds), 1)));
  const std::string scheme = GENERATE("local", "shm", "tcp");
  if (const char* const over = std::getenv("FARMEM_STRESS_OVER"); over != nullptr && scheme != over) return;
  for (const stress_mode mode : stress_modes) {
    DYNAMIC_SECTION(name_of(mode) << " over " << scheme) {
      const place at(scheme);
      const stress_report r = stress(at.options(), mode, run_for);
      if (seconds != nullptr) std::printf("%s over %s: %s\n", name_of(mode), scheme.c_str(), r.text().c_str());
      INFO(r.text());
      CHECK(r.good());
    }
  }
}

// The program: Google Benchmark's own main, which closes the heaps at its end and says which fm::error ended it.
#include <cstdio>

#include "fixture.h"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  int status = 0;
  try {
    benchmark::RunSpecifiedBenchmarks();
  } catch (const fm::error& e) {
    std::fprintf(stderr, "bench_micro: %s\n", e.what());
    status = 1;
  }
  benchmark::Shutdown();
  fm::micro::close_heaps();
  return status;
}

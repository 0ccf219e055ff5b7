// The figures of the five papers that farmem follows, in the papers' own settings but smaller: one function a paper. A row's name begins
// with the paper and the figure or table. Its goal is what the paper states. docs/internals/papers.md lists the mechanisms.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../support/managed.h"

namespace fm::bench {

void corm_rows(program& p, const std::string& binary);
void dcm_rows(program& p, const std::string& binary);
void mako_rows(program& p, const std::string& binary);
void semeru_rows(program& p, const std::string& binary);
void naos_rows(program& p);

/// The worker `corm_client <url> <tenant> <file of pointers>`: `run <reads> <s> <operations> <seed> <by call>`.
int corm_client_main(const std::vector<std::string>& args);
/// The workers `dcm_paged <bytes> <local> <block> <elastic> <url>` and `dcm_plain <bytes>`.
int dcm_paged_main(const std::vector<std::string>& args);
int dcm_plain_main(const std::vector<std::string>& args);
/// The workers `naos_echo shm|tcp` and `naos_peer_echo <serializer>`, and `naos_taker shm|tcp <bytes of a part>`.
int naos_echo_main(const std::vector<std::string>& args);
int naos_peer_echo_main(const std::vector<std::string>& args);
int naos_taker_main(const std::vector<std::string>& args);

/// Times of single operations, and their median as the figure: the papers state medians.
template <class F>
turn medians(std::size_t count, F&& operation) {
  turn t;
  t.ns.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = now_ns();
    operation(i);
    t.ns.push_back(std::uint32_t(now_ns() - begin));
  }
  std::vector<std::uint32_t> sorted = t.ns;
  const auto middle = sorted.begin() + std::ptrdiff_t(count / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  t.value = double(*middle);
  return t;
}

}  // namespace fm::bench

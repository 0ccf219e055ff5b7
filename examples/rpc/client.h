// A client: keeps several orders on their way over one channel, some of them wrong on purpose, and compares every answer with what the
// plain parts say it has to be.
#pragma once

#include <array>
#include <farmem/farmem.h>
#include <string>
#include <vector>

#include "messages.h"
#include "parts.h"

namespace fm::example {

struct client_options {
  std::uint64_t requests = 0, in_flight = 1, seed = 1;
  std::uint64_t within_us = 0;  ///< of each request
};

struct client_totals {
  std::array<std::uint64_t, 5> outcomes{};  ///< by outcome
  std::uint64_t items = 0;                  ///< of all bills, compared
  std::uint64_t not_requests = 0;           ///< graphs of another type that were sent, and refused as they have to be
  std::uint64_t wrong = 0;                  ///< answers that are not what they have to be
  std::vector<std::string> messages;        ///< the first of them
  std::vector<std::uint32_t> latencies_us;  ///< from before the send to after the receive
  std::uint64_t bytes_out = 0, bytes_in = 0;

  void add(const client_totals& o);
};

/// Sends all requests and takes all answers; ends early when a signal came. Throws fm::error for what ends the channel.
client_totals run_client(fm::heap& h, const std::string& url, const plain_parts& parts, const client_options& o);

}  // namespace fm::example

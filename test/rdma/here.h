// The address that a lab machine's RDMA device has.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

/// To listen at, on any port.
inline std::string here() {
  const char* address = std::getenv("LAB_ADDRESS");
  REQUIRE(address != nullptr);
  return "verbs://" + std::string(address) + ":0";
}

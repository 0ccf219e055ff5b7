// A folder of a test's own, which goes away with everything in it.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <filesystem>
#include <string>

namespace fm::test {

class temporary_folder {
 public:
  temporary_folder() {
    char name[] = "/tmp/farmem-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string operator/(const char* name) const { return path_ + "/" + name; }
  /// Where the ith agent of a test listens: at a socket here, or at any port.
  [[nodiscard]] std::string url(const std::string& scheme, std::size_t i) const {
    return scheme == "shm" ? "shm://" + path_ + "/" + std::to_string(i) : "tcp://127.0.0.1:0";
  }

 private:
  std::string path_;
};

}  // namespace fm::test

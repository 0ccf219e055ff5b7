// farmem-agent in a lab machine, and a heap whose objects are there: a list that is longer than the cache.
#pragma once

#include <farmem/farmem.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "here.h"
#include "program/live_agent.h"

namespace lab {

constexpr std::uint64_t nodes = 20'000;  // more than the cache holds

struct node {
  std::uint64_t value = 0;
  fm::ref<node> next;
};

inline fm::heap_options far_away(const std::string& url) {
  return {.cache = 1 << 20,
          .agents = {url},
          .segment = 32 << 10,
          .collect = false,
          .access_within = std::chrono::minutes(10),
          .memory_within = std::chrono::minutes(10),
          .reconnect_within = std::chrono::seconds(90),  // three attempts: one may be begun while the cable is out
          .connect_within = std::chrono::seconds(30)};
}

inline fm::ptr<node> make_nodes(fm::heap& h, std::uint64_t n) {
  fm::ptr<node> head;
  for (std::uint64_t i = 0; i < n; ++i) head = h.make<node>({.value = i, .next = head});
  return head;
}

/// Walks the list; the error that it ended with, or ok.
inline fm::errc walk_nodes(const fm::ptr<node>& head, std::uint64_t n) {
  try {
    std::uint64_t expected = n;
    for (const node& e : fm::walk(head, &node::next))
      if (e.value != --expected) FAIL("node " << e.value << " instead of " << expected);
    return expected == 0 ? fm::errc::ok : fm::errc::corrupt;
  } catch (const fm::error& e) {
    return e.code();
  }
}

/// farmem-agent over verbs://.
class lab_agent {
 public:
  explicit lab_agent(const std::string& listen = here(), std::vector<std::string> more = {})
      : process_(arguments(listen, std::move(more)), directory_.path() + "/log") {
    const fm::time_point deadline = fm::clock::now() + std::chrono::minutes(10);
    while (url_.empty()) {
      std::ifstream in(directory_.path() + "/ready");
      std::getline(in, url_);
      if (fm::clock::now() > deadline) FAIL("the agent does not say that it is ready");
      std::this_thread::yield();
    }
  }
  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  [[nodiscard]] pid_t process() const { return process_.id(); }
  int end(int signal) { return process_.end(signal); }

  [[nodiscard]] bool said(const char* what) const {
    std::ifstream in(directory_.path() + "/log");
    return std::string(std::istreambuf_iterator<char>(in), {}).find(what) != std::string::npos;
  }

 private:
  [[nodiscard]] std::vector<std::string> arguments(const std::string& listen, std::vector<std::string> more) const {
    std::vector<std::string> all = {"/lab/farmem-agent",
                                    "--listen",
                                    listen,
                                    "--insecure",
                                    "--memory",
                                    "32MiB",
                                    "--ready-file",
                                    directory_.path() + "/ready",
                                    "--admin",
                                    directory_.path() + "/admin"};
    if (more.empty()) more = {"--region", "1MiB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  fm::test::temporary_folder directory_;
  agent_test::process process_;
  std::string url_;
};

}  // namespace lab

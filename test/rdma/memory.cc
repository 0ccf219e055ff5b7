// How memory is registered over verbs://, in a lab machine: without being locked, which soft-RoCE cannot do and says so, and
// in huge pages.
#include "os/os.h"
#include <farmem/farmem.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "lab_agent.h"

using namespace fm;
using namespace lab;

namespace {

/// A line of a file of /proc, in KiB.
std::uint64_t kib(const std::string& file, const std::string& key) {
  std::ifstream in("/proc/" + file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1));
  FAIL(file << " has no " << key);
  return 0;
}

}  // namespace

TEST_CASE("on-demand paging that the device cannot do is refused by its name, and memory is locked", "[memory]") {
  lab_agent agent(here(), {"--region", "1MiB", "--on-demand-paging"});
  CHECK(agent.said("rxe0 cannot do on-demand paging"));
  auto options = far_away(agent.url());
  options.on_demand_paging = true;
  heap h(options);
  const auto head = make_nodes(h, nodes);
  REQUIRE(h.evict_all() == errc::ok);
  CHECK(walk_nodes(head, nodes) == errc::ok);
  CHECK(h.stats().bytes_bounced == 0);  // it was registered
  CHECK(h.verify().ok());
}

TEST_CASE("regions are in huge pages, and shared ones where that is asked for and the kernel has been told",
          "[memory]") {
  const std::string transparent = "/sys/kernel/mm/transparent_hugepage/", setting = transparent + "shmem_enabled";
  std::ofstream(transparent + "enabled") << "madvise" << std::flush;
  const auto require_huge = [](const lab_agent& agent, const char* kind) {
    heap h(far_away(agent.url()));
    const auto head = make_nodes(h, nodes);
    REQUIRE(h.evict_all() == errc::ok);
    CHECK(walk_nodes(head, nodes) == errc::ok);
    CHECK(kib(std::to_string(agent.process()) + "/smaps_rollup", kind) >= 2048);
    CHECK_FALSE(agent.said("the kernel gives none"));
    CHECK(h.verify().ok());
  };
  require_huge(lab_agent(here(), {"--region", "2MiB"}), "AnonHugePages");
  const std::vector<std::string> shared{"--region", "2MiB", "--huge-pages", "--listen", "shm:///tmp/huge-pages.sock"};
  CHECK(lab_agent(here(), shared).said("the kernel gives none"));
  std::ofstream(setting) << "advise" << std::flush;
  REQUIRE(os::shared_huge_pages());
  require_huge(lab_agent(here(), shared), "ShmemPmdMapped");
  std::ofstream(setting) << "never" << std::flush;
}

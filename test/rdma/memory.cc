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

std::uint64_t meminfo_kib(const std::string& key) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1));
  FAIL("/proc/meminfo has no " << key);
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

TEST_CASE("regions are in huge pages where that is asked for and the kernel has been told", "[memory]") {
  const char* const setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  CHECK(lab_agent(here(), {"--region", "2MiB", "--huge-pages"}).said("the kernel gives none"));
  std::ofstream(setting) << "advise" << std::flush;
  REQUIRE(os::shared_huge_pages());
  const std::uint64_t before = meminfo_kib("ShmemHugePages");
  lab_agent agent(here(), {"--region", "2MiB", "--huge-pages"});
  heap h(far_away(agent.url()));
  const auto head = make_nodes(h, nodes);
  REQUIRE(h.evict_all() == errc::ok);
  CHECK(walk_nodes(head, nodes) == errc::ok);
  CHECK(meminfo_kib("ShmemHugePages") >= before + 2048);
  CHECK_FALSE(agent.said("the kernel gives none"));
  CHECK(h.verify().ok());
  std::ofstream(setting) << "never" << std::flush;
}

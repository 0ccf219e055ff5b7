// What it costs an owner that its agents refer to each other's objects: a cycle over a tree of which half of the references lead
// to another agent, with agents that tell each other, and with all of it going through the owner.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdio>
#include <filesystem>

#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;

/// A binary tree at home. A child is on its parent's agent or, as often, on one of the others.
fm::ptr<tree_node> make_tree(fm::heap& h, std::size_t agents, std::size_t count) {
  std::vector<std::vector<fm::ptr<tree_node>>> free(agents);
  for (std::size_t i = 0; i < count; ++i) {
    auto p = h.make<tree_node>({.value = i});
    free[fm::detail::tablet_info_of(p.slot()).agent.load()].push_back(std::move(p));
  }
  random_source random(7);
  const auto take = [&](std::size_t from) {
    while (free[from].empty()) from = (from + 1) % agents;
    fm::ptr<tree_node> p = std::move(free[from].back());
    free[from].pop_back();
    return p;
  };
  std::vector<std::pair<fm::ptr<tree_node>, std::size_t>> open;
  const fm::ptr<tree_node> root = take(0);
  open.emplace_back(root, 0);
  std::size_t left = count - 1;
  for (std::size_t at = 0; left != 0; ++at) {
    const auto [parent, home] = std::move(open[at]);
    for (int child = 0; child < 2 && left != 0; ++child, --left) {
      const std::size_t to = random.below(2) == 0 ? home : (home + 1 + random.below(agents - 1)) % agents;
      auto node = take(to);
      const auto w = parent.write();
      (child == 0 ? w->left : w->right) = node;
      open.emplace_back(std::move(node), to);
    }
  }
  open.clear();
  if (h.evict_all(std::chrono::minutes(2)) != fm::errc::ok)
    throw fm::error(fm::errc::timed_out, "eviction before tracing");
  return root;
}

/// Bytes that this process has sent and received over TCP connections that stand.
std::uint64_t tcp_bytes() {
  std::uint64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && size == sizeof info)
      sum += info.tcpi_bytes_acked + info.tcpi_bytes_received;
  }
  return sum;
}

double cpu_ms() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + double(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

struct measured {
  fm::cycle_report report;
  double cpu = 0;
  std::uint64_t bytes = 0;
};

measured collect(fm::heap& h) {
  measured m;
  const double before = cpu_ms();
  const std::uint64_t bytes = tcp_bytes();
  m.report = h.collect("bench");
  if (!m.report.ok()) throw fm::error(m.report.status, m.report.failure);
  m.cpu = cpu_ms() - before;
  m.bytes = tcp_bytes() - bytes;
  return m;
}

void cycles(program& p, const std::string& binary, const std::string& scheme, std::size_t agents, std::size_t count) {
  std::vector<std::unique_ptr<counted_agent>> all;
  std::vector<std::string> urls;
  for (std::size_t i = 0; i < agents; ++i) {
    all.push_back(std::make_unique<counted_agent>(p, binary, scheme == "shm" ? "shm://" : "tcp://127.0.0.1:0", "2GiB"));
    urls.push_back(all.back()->url());
  }
  const auto open = [&](bool talk) {
    return fm::heap({.cache = std::uint64_t{256} << 20, .agents = urls, .collect = false, .agents_talk = talk});
  };
  fm::heap talking = open(true), silent = open(false);
  const auto root = make_tree(talking, agents, count), other = make_tree(silent, agents, count);
  const std::vector<std::pair<std::string, std::string>> parameters{
      {"objects", std::to_string(count)}, {"agents", std::to_string(agents)}, {"over", scheme}};
  const auto compare = [&](const char* name, const char* unit, auto figure) {
    p.compare(
        {name, parameters, unit, {}, "through the owner"},
        [&] {
          return turn{figure(collect(talking)), {}, 0};
        },
        [&] {
          return turn{figure(collect(silent)), {}, 0};
        });
  };
  compare("cycle_ms", "ms", [](const measured& m) { return double(m.report.total_ns - m.report.evacuate_ns) / 1e6; });
  compare("owner_cpu_ms", "ms", [](const measured& m) { return m.cpu; });
  if (scheme == "tcp") compare("owner_bytes", "KiB", [](const measured& m) { return double(m.bytes) / 1024; });
  std::fprintf(stderr, "%s\n%s\n", collect(talking).report.text().c_str(), collect(silent).report.text().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  program p("remote_references", "Cycles over graphs that lie on several agents, which tell each other or the owner");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    for (const char* scheme : {"tcp", "shm"})
      for (const std::size_t agents : {2, 4}) cycles(p, binary, scheme, agents, p.sized<std::size_t>(1 << 19, 1 << 16));
  });
}

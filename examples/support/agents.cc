// Starting, awaiting and stopping agents; see agents.h.
#include "agents.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <filesystem>
#include <sstream>

#ifndef FARMEM_AGENT_BESIDE
#define FARMEM_AGENT_BESIDE "../farmem-agent"
#endif

namespace fm::example {

namespace {

using namespace std::chrono_literals;
constexpr auto end_within = 10s;

std::string find_program(const std::string& wanted) {
  std::vector<std::string> candidates;
  if (!wanted.empty()) {
    candidates = {wanted};
  } else {
    std::error_code ec;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ec).parent_path();
    if (!ec) {
      candidates.push_back((self / FARMEM_AGENT_BESIDE).string());
      candidates.push_back((self / "farmem-agent").string());
    }
    std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
    for (std::string part; std::getline(path, part, ':');) candidates.push_back(part + "/farmem-agent");
  }
  for (const std::string& c : candidates)
    if (::access(c.c_str(), X_OK) == 0) return c;
  throw error(errc::not_found,
              wanted.empty() ? "the program farmem-agent, beside this one or in PATH; name it with --agent" : wanted);
}

}  // namespace

agent_processes::agent_processes(const agent_options& options) {
  if (!options.at.empty()) {
    urls_ = options.at;
    return;
  }
  const std::string program = find_program(options.program);
  const char* base = std::getenv("TMPDIR");
  directory_ = fmt::format("{}/farmem-{}-XXXXXX", base != nullptr && *base != 0 ? base : "/tmp", options.owner);
  if (::mkdtemp(directory_.data()) == nullptr)
    throw error(errc::refused, fmt::format("a directory {}: {}", directory_, std::strerror(errno)));
  try {
    for (unsigned i = 0; i < options.count; ++i) {
      const std::string url = options.transport == "shm" ? fmt::format("shm://{}/agent-{}.sock", directory_, i)
                                                         : fmt::format("{}://{}:0", options.transport, options.address);
      start(program, url, options, i);
    }
  } catch (...) {
    stop();
    throw;
  }
}

agent_processes::~agent_processes() { stop(); }

void agent_processes::start(const std::string& program, const std::string& url, const agent_options& options,
                            unsigned number) {
  std::vector<std::string> words = {program,
                                    "--listen",
                                    url,
                                    "--memory",
                                    std::to_string(options.memory_bytes),
                                    "--admin",
                                    fmt::format("{}/admin-{}.sock", directory_, number),
                                    "--name",
                                    fmt::format("{}-{}", options.owner, number),
                                    "--log-level",
                                    "warning",
                                    "--ready-fd",
                                    "3"};
  if (options.transport == "verbs") words.emplace_back("--insecure");  // an address of RDMA is never a loopback one
  if (options.region_bytes != 0) {
    words.emplace_back("--region");
    words.push_back(std::to_string(options.region_bytes));
  }
  processes_.emplace_back(words);
  pids_.push_back(processes_.back().pid());
  urls_.push_back(processes_.back().line());
}

void agent_processes::stop() noexcept {
  for (const process& p : processes_) p.ask_to_end();
  const time_point deadline = clock::now() + end_within;
  for (process& p : processes_) p.wait(deadline);
  processes_.clear();
  pids_.clear();
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  directory_.clear();
}

}  // namespace fm::example

// farmem-agent: a thin main around the store and the fabric. Reads its settings, listens, tells where it listens, and
// waits for SIGTERM or SIGINT. Exit codes: 0 clean shutdown, 1 something in the world failed, 2 a mistake in the
// settings.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>

#include "admin.h"
#include "base/log.h"
#include "config.h"
#include "etcd.h"
#include "fabric/doctor.h"

#ifndef FARMEM_VERSION
#define FARMEM_VERSION "0.1.0"
#endif

namespace {

using namespace fm;

struct arguments {
  std::string file;
  std::vector<agent::flag_values> flags;
  bool check_config = false;
  bool status = false;
  std::string survive;  ///< instance and term; empty: not asked for
  std::string drain;    ///< for how long to wait; empty: not asked for
  bool stay = false;
  bool doctor = false;
  bool json = false;
  int ready_fd = -1;
  std::string ready_file;
};

/// Tells scripts that every address is served: one URL a line, with the ports really used.
void announce(const arguments& a, const std::vector<std::unique_ptr<fabric::listener>>& listeners) {
  std::string text;
  for (const auto& l : listeners) text += l->url() + '\n';
  if (a.ready_fd >= 0) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(a.ready_fd, text.data() + done, text.size() - done);
      if (n < 0 && errno != EINTR)
        throw error(errc::invalid_argument, fmt::format("--ready-fd {}: {}", a.ready_fd, std::strerror(errno)));
      if (n > 0) done += std::size_t(n);
    }
    ::close(a.ready_fd);
  }
  if (!a.ready_file.empty()) {
    const std::string partial =
        a.ready_file + ".partial";  // renamed when complete: whoever sees the file sees all of it
    std::ofstream out(partial, std::ios::trunc);
    out << text;
    out.close();
    if (!out || std::rename(partial.c_str(), a.ready_file.c_str()) != 0)
      throw error(errc::invalid_argument, fmt::format("--ready-file {}: {}", a.ready_file, std::strerror(errno)));
  }
}

/// "INSTANCE:TERM", the instance hexadecimal.
bool parse_survivor(std::string_view text, std::uint32_t& instance, std::uint64_t& term) {
  unsigned int i = 0;
  unsigned long t = 0;
  char rest = 0;
  if (std::sscanf(std::string(text).c_str(), "%x:%lu%c", &i, &t, &rest) != 2) return false;
  instance = i;
  term = t;
  return true;
}

std::string answer_admin(agent::store& store, std::string_view command) {
  if (command == "status") return store.statistics();
  if (constexpr std::string_view survive = "survive "; command.starts_with(survive)) {
    std::uint32_t instance = 0;
    std::uint64_t term = 0;
    if (!parse_survivor(command.substr(survive.size()), instance, term)) return {};
    return fmt::format(R"({{"said":"{}"}})", store.survive(instance, term));
  }
  if (command != "drain" && command != "stay" && command != "left") return {};
  if (command != "left") store.drain(command == "drain");
  return fmt::format(R"({{"heaps":{},"spaces":{},"pools":{}}})", store.heaps_left(), store.spaces_left(),
                     store.pools_left());
}

/// Waits until no heap, no paged range and no pool is left, for a second signal, or for `within`.
void drain_first(agent::store& store, duration within, const sigset_t& signals) {
  fm::log::info("SIGTERM: draining, for {} s at most",
                std::chrono::duration_cast<std::chrono::seconds>(within).count());
  store.drain(true);
  const time_point deadline = clock::now() + within;
  const timespec look{0, 100'000'000};
  while (store.heaps_left() + store.spaces_left() + store.pools_left() != 0 && clock::now() < deadline)
    if (sigtimedwait(&signals, nullptr, &look) > 0) break;
  const std::size_t heaps = store.heaps_left(), spaces = store.spaces_left(), pools = store.pools_left();
  if (heaps + spaces + pools != 0)
    fm::log::warn("{} heaps, {} paged ranges and {} pools are left: what they have here alone is lost", heaps, spaces,
                  pools);
}

/// Has the running agent drained, and waits for it; the exit code.
int drain_agent(const std::string& admin, duration within) {
  struct tenants {
    unsigned long heaps = 0, spaces = 0, pools = 0;
    [[nodiscard]] unsigned long all() const { return heaps + spaces + pools; }
  };
  const auto left = [&](const char* command) {
    const std::string json = agent::ask_agent(admin, command);
    tenants t;
    if (std::sscanf(json.c_str(), R"({"heaps":%lu,"spaces":%lu,"pools":%lu})", &t.heaps, &t.spaces, &t.pools) != 3)
      throw error(errc::refused, fmt::format("admin socket {}: {}", admin, json));
    return t;
  };
  const time_point deadline = clock::now() + within;
  tenants now = left("drain");
  while (now.all() != 0 && clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    now = left("left");
  }
  if (now.all() == 0) {
    fmt::print("the agent is drained: it takes no heaps, paged ranges or pools, and stores none\n");
    return 0;
  }
  now = left("stay");
  fmt::print(stderr,
             "farmem-agent: {} heaps still store objects here, {} paged ranges pages, and {} pools are here; the agent "
             "goes on\n",
             now.heaps, now.spaces, now.pools);
  return 1;
}

int serve(const agent::config& c, const arguments& a) {
  // Before any thread exists, so that all inherit it: the signals are for sigwait below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  agent::store_options options = c.store;
  if (!c.etcd.empty()) options.arbiter = agent::make_etcd_arbiter(c.etcd);
  const auto store = fm::agent::store::create(options);
  std::unique_ptr<agent::admin_server> admin;
  if (!c.admin.empty()) try {
      admin = std::make_unique<agent::admin_server>(
          c.admin, [&](std::string_view command) { return answer_admin(*store, command); });
    } catch (const error& e) {
      if (!c.admin_is_default) throw;
      fm::log::warn("{}; going on without an admin socket", e.what());
    }
  std::vector<std::unique_ptr<fabric::listener>> listeners;
  for (const std::string& url : c.listen) {
    listeners.push_back(fabric::listen(url, c.fabric, *store));
    fm::log::info("listening on {}", listeners.back()->url());
  }
  announce(a, listeners);
  fm::log::info("farmem-agent {} serves {} MiB in regions of {} KiB", FARMEM_VERSION, c.store.memory_bytes >> 20,
                c.store.region_bytes >> 10);

  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  if (signal == SIGTERM && c.drain_on_term > duration{}) drain_first(*store, c.drain_on_term, signals);
  fm::log::info("{}: shutting down", signal == SIGTERM ? "SIGTERM" : "SIGINT");
  admin.reset();
  listeners.clear();  // every peer is disconnected when this returns; the store may go
  return 0;
}

/// Declares the command line; what is given goes to `a`.
void declare(CLI::App& app, arguments& a, std::vector<agent::flag_values>& given) {
  app.set_version_flag("--version", std::string("farmem-agent ") + FARMEM_VERSION);
  app.add_option("--config", a.file, "TOML file with the settings below, with underscores for dashes")
      ->envname("FARMEM_AGENT_CONFIG")
      ->type_name("FILE");
  app.add_flag("--check-config", a.check_config, "read all settings, say whether they are right, and exit");
  app.add_flag("--status", a.status, "print what the running agent behind --admin has, and exit");
  app.add_option("--drain", a.drain,
                 "have heaps, paged ranges and pools with replicas leave the running agent behind --admin, wait so "
                 "long, and exit")
      ->type_name("TIME");
  app.add_option("--survive", a.survive,
                 "the running agent behind --admin goes on with a part of a pool whose other agent is gone for good; "
                 "--status says instance and term")
      ->type_name("INSTANCE:TERM");
  app.add_flag("--stay", a.stay, "the running agent behind --admin is not to be drained any more, and exit");
  app.add_flag("--doctor", a.doctor, "say what of this machine verbs:// needs and what is wrong with it, and exit");
  app.add_flag("--json", a.json, "with --status: print JSON");
  app.add_option("--ready-fd", a.ready_fd, "write the addresses served to this descriptor, one a line, and close it")
      ->type_name("FD");
  app.add_option("--ready-file", a.ready_file, "write the addresses served to this file, one a line")
      ->type_name("PATH");
  given.resize(agent::settings().size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const agent::setting& s = agent::settings()[i];
    given[i].name = s.name;
    if (*s.value == 0) {
      app.add_flag_callback(
             "--" + given[i].name, [&g = given[i]] { g.values = {"true"}; }, s.help)
          ->group("Settings");
      continue;
    }
    auto* option = app.add_option("--" + given[i].name, given[i].values, s.help);
    option->type_name(s.value)->group("Settings");
    option->expected(1)->take_all();
  }
  app.footer(
      "A setting is looked for on the command line, then in FARMEM_AGENT_NAME, then in the file.\n"
      "Sizes are like 4GiB or 512MiB, times like 15s or 500ms.\n\n"
      "  farmem-agent --listen tcp://127.0.0.1:7070 --memory 4GiB\n"
      "  farmem-agent --listen shm:///run/farmem/agent.sock --admin /run/farmem/admin.sock\n"
      "  farmem-agent --status --admin /run/farmem/admin.sock");
}

int run(int argc, char** argv) {
  CLI::App app("farmem-agent stores the regions of far-memory heaps on this machine.", "farmem-agent");
  arguments a;
  std::vector<agent::flag_values> given;
  declare(app, a, given);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (a.doctor) {
    const auto findings = fabric::doctor();
    fmt::print("{}", fabric::readable(findings));
    return fabric::is_healthy(findings) ? 0 : 1;
  }
  for (auto& g : given)
    if (!g.values.empty()) a.flags.push_back(std::move(g));

  spdlog::set_default_logger(spdlog::stderr_logger_mt("farmem-agent"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  const agent::config c = agent::load_config(a.flags, a.file, environ);
  spdlog::set_level(spdlog::level::from_str(c.log_level));
  if (a.status) {
    if (c.admin.empty()) throw error(errc::bad_config, "--status needs --admin PATH, the running agent's admin socket");
    const std::string json = agent::ask_agent(c.admin, "status");
    fmt::print("{}", a.json ? json + '\n' : agent::readable(json));
    return 0;
  }
  if (!a.survive.empty()) {
    std::uint32_t instance = 0;
    std::uint64_t term = 0;
    if (!parse_survivor(a.survive, instance, term))
      throw error(errc::bad_config, fmt::format("--survive: '{}' is not like 0123abcd:4", a.survive));
    if (c.admin.empty())
      throw error(errc::bad_config, "--survive needs --admin PATH, the running agent's admin socket");
    fmt::print("{}", agent::readable(agent::ask_agent(c.admin, "survive " + a.survive)));
    return 0;
  }
  if (!a.drain.empty() || a.stay) {
    if (c.admin.empty())
      throw error(errc::bad_config, "--drain and --stay need --admin PATH, the running agent's admin socket");
    if (!a.drain.empty()) try {
        return drain_agent(c.admin, std::chrono::milliseconds(agent::parse_milliseconds(a.drain)));
      } catch (const std::string& wrong) {
        throw error(errc::bad_config, fmt::format("--drain: {}", wrong));
      }
    agent::ask_agent(c.admin, "stay");
    return 0;
  }
  agent::check_config(c);
  if (a.check_config) {
    fmt::print("the settings are right\n");
    return 0;
  }
  return serve(c, a);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const fm::error& e) {
    fmt::print(stderr, "farmem-agent: {}\n", e.what());
    return e.code() == fm::errc::bad_config ? 2 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "farmem-agent: {}\n", e.what());
    return 1;
  }
}

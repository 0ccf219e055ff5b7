// The agent's settings, seen from outside: what it says about mistakes, and with which exit code.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

struct outcome {
  int code = -1;
  std::string text;
};

/// Runs the agent through a shell and returns its exit code and everything that it wrote.
outcome run(const std::string& arguments, const std::string& environment = "") {
  const std::string command =
      "env -u XDG_RUNTIME_DIR " + environment + " timeout 20 " FARMEM_AGENT " " + arguments + " 2>&1";
  FILE* p = ::popen(command.c_str(), "r");
  REQUIRE(p != nullptr);
  outcome o;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), p)) o.text.append(buffer.data(), n);
  const int status = ::pclose(p);
  if (WIFEXITED(status)) o.code = WEXITSTATUS(status);
  return o;
}

/// A file with the given text, removed at the end.
struct file {
  std::string path = "/tmp/farmem-agent-test-" + std::to_string(::getpid()) + ".toml";
  explicit file(const std::string& text) { std::ofstream(path) << text; }
  file(const file&) = delete;
  file& operator=(const file&) = delete;
  ~file() { ::unlink(path.c_str()); }
};

void check_wrong(const outcome& o, const std::string& names) {
  INFO(o.text);
  CHECK(o.code == 2);
  CHECK(o.text.find(names) != std::string::npos);
}

}  // namespace

TEST_CASE("right settings are called right", "[agent]") {
  const file f(
      "listen = [\"tcp://127.0.0.1:0\", \"shm:///tmp/x\"]\nmemory = \"512MiB\"\nregion = \"1MiB\"\nlease = "
      "\"5s\"\npools = 3\npool_clients = 5\ninsecure = false\npeers = false\n");
  const outcome o = run("--check-config --config " + f.path);
  INFO(o.text);
  CHECK(o.code == 0);
}

TEST_CASE("a mistake in the file names the line and the key", "[agent]") {
  const auto with = [](const std::string& line) {
    const file f("listen = [\"tcp://127.0.0.1:0\"]\n" + line + "\n");
    return run("--check-config --config " + f.path);
  };
  check_wrong(with("memroy = \"1GiB\""), ":2: unknown key 'memroy'; did you mean 'memory'?");
  check_wrong(with("memory = \"1Gib\""), ":2: memory: '1Gib' has the unknown unit 'Gib'");
  check_wrong(with("lease = 5"), ":2: lease: '5' has no unit");
  check_wrong(with("memory = [\"1GiB\"]"), ":2: memory: a string, a number or a boolean is needed");
  check_wrong(with("log_level = \"loud\""), ":2: log_level: 'loud' is no log level");
  check_wrong(with("memory = "), ":2: ");
  check_wrong(with("region = \"100KiB\""), "region of 102400 bytes");
  check_wrong(with("peers = \"perhaps\""), ":2: peers: 'perhaps' is neither true nor false");
  check_wrong(with("pools = 0"), ":2: pools: '0' is not a count from 1");
  check_wrong(with("pool_clients = \"many\""), ":2: pool_clients: 'many' is not a count from 1");
  check_wrong(with("pool_client = 3"), "did you mean 'pool_clients'?");
  check_wrong(run("--check-config --config /nonexistent/farmem.toml"), "/nonexistent/farmem.toml");
}

TEST_CASE("flags and variables are checked like the file, and named", "[agent]") {
  check_wrong(run("--check-config --listen tcp://127.0.0.1:0 --memory 4Gb"), "--memory: '4Gb'");
  check_wrong(run("--check-config --listen tcp://127.0.0.1:0", "FARMEM_AGENT_QUOTE=1GiB"),
              "FARMEM_AGENT_QUOTE: unknown setting");
  check_wrong(run("--check-config --listen local:"), "an agent listens on");
  check_wrong(run("--check-config --listen gopher://127.0.0.1"), "an agent listens on");
  check_wrong(run("--check-config --listen tcp://127.0.0.1"), "the port is missing");
  check_wrong(run("--memroy 4GiB"), "--memroy");
  check_wrong(run("--check-config"), "no address to listen on");
}

TEST_CASE("an address that will not be served is a mistake in the settings, before anything is served", "[agent]") {
  for (const char* const beyond : {"tcp://0.0.0.0:0", "tcp://[::]:0"}) {
    const std::string listen = std::string(" --listen tcp://127.0.0.1:0 --listen ") + beyond;
    check_wrong(run("--check-config" + listen), std::string("listen: ") + beyond + " is not a loopback address");
    check_wrong(run("--check-config" + listen), "give --insecure");
    check_wrong(run(listen), "give --insecure");
    CHECK(run("--check-config --insecure" + listen).code == 0);
  }
  CHECK(run("--check-config --listen tcp://localhost:0 --listen tcp://[::1]:0").code == 0);
  ::setenv("FARMEM_VERBS_LIBRARY", "/nowhere/libfarmem-verbs.so", 1);
  check_wrong(run("--check-config --listen verbs://127.0.0.1:0"), "listen: ");
  check_wrong(run("--check-config --listen verbs://127.0.0.1:0"), "libfarmem-verbs.so");
  ::unsetenv("FARMEM_VERBS_LIBRARY");
}

TEST_CASE("a flag is stronger than a variable, a variable than the file", "[agent]") {
  const file f("listen = [\"tcp://127.0.0.1:0\"]\nregion = \"100KiB\"\n");
  check_wrong(run("--check-config --config " + f.path), "region of 102400 bytes");
  CHECK(run("--check-config --config " + f.path, "FARMEM_AGENT_REGION=1MiB").code == 0);
  check_wrong(run("--check-config --region 3MiB --config " + f.path, "FARMEM_AGENT_REGION=1MiB"),
              "region of 3145728 bytes");
  CHECK(run("--check-config", "FARMEM_AGENT_CONFIG=" + f.path + " FARMEM_AGENT_REGION=1MiB").code == 0);
}

TEST_CASE("help, version and a status that nobody answers", "[agent]") {
  CHECK(run("--help").code == 0);
  CHECK(run("--version").text.rfind("farmem-agent ", 0) == 0);
  check_wrong(run("--status"), "--admin");
  const outcome o = run("--status --admin /nonexistent/admin.sock");
  CHECK(o.code == 1);
  CHECK(o.text.find("/nonexistent/admin.sock") != std::string::npos);
}

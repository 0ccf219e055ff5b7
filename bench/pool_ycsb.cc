// YCSB's mixes on a pool that several processes share, against Redis with as many clients: values of 1 KiB, reads and updates,
// uniform and Zipf 0.99. Every value says which key it is of, and is the same word throughout: a torn read makes the run fail.
#include <array>
#include <fstream>
#include <unistd.h>

#include "peers/redis.h"
#include "support/managed.h"
#include "support/zipf.h"

namespace {

using namespace fm::bench;

struct record {
  std::uint64_t key = 0;
  std::array<std::uint64_t, 127> words{};
};
static_assert(sizeof(record) == 1024);

struct operation {
  std::uint32_t key;
  bool write;
};

// `run <reads> <zipf s> <operations> <seed>`, on what read and write do.
template <class Read, class Write>
figures run_mix(std::uint64_t keys, const std::vector<std::string>& words, Read&& read, Write&& write) {
  const double reads = std::stod(words.at(1));
  random_source random(std::stoull(words.at(4)));
  const zipf_keys popular(keys, std::stod(words.at(2)));
  std::vector<operation> order(std::stoull(words.at(3)));
  for (operation& o : order) o = {std::uint32_t(popular(random)), random.unit() >= reads};
  const std::uint64_t begin = now_ns();
  for (const operation& o : order) {
    if (o.write)
      write(o.key, random.next());
    else
      read(o.key);
  }
  return {{"begin", double(begin)}, {"end", double(now_ns())}};
}

// The worker `pool_client <url> <tenant> <file of pointers>`.
int pool_client_main(const std::vector<std::string>& args) {
  fm::pool pool({.agents = {args.at(0)}, .name = "ycsb", .tenant = fm::pool_tenant::parse(args.at(1))});
  std::ifstream in(args.at(2), std::ios::binary | std::ios::ate);
  std::vector<fm::pool_ptr<record>> pointers(std::size_t(in.tellg()) / sizeof(fm::pool_ptr<record>));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(pointers.data()), std::streamsize(pointers.size() * sizeof pointers[0]));
  return serve_commands({{"keys", double(pointers.size())}}, [&](const std::vector<std::string>& words) {
    record w;
    return run_mix(
        pointers.size(), words,
        [&](std::uint32_t key) {
          const record r = pool.read(pointers[key]);
          bool right = r.key == key;
          for (const std::uint64_t v : r.words) right &= v == r.words[0];
          if (!right) throw fm::error(fm::errc::corrupt, "a torn or foreign value of key " + std::to_string(key));
        },
        [&](std::uint32_t key, std::uint64_t v) {
          w.key = key;
          w.words.fill(v);
          pool.write(pointers[key], w);
        });
  });
}

// The worker `redis_client <port> <keys>`.
int redis_client_main(const std::vector<std::string>& args) {
  redis server{redis::running{std::uint16_t(std::stoul(args.at(0)))}};
  const std::uint64_t keys = std::stoull(args.at(1));
  std::vector<std::string> names;
  for (std::uint64_t k = 0; k < keys; ++k) names.push_back(std::to_string(k));
  return serve_commands({{"keys", double(keys)}}, [&](const std::vector<std::string>& words) {
    std::string value(sizeof(record), 'v');
    return run_mix(
        keys, words,
        [&](std::uint32_t key) {
          if (server.get(names[key]) != sizeof(record)) throw fm::error(fm::errc::corrupt, "redis: another length");
        },
        [&](std::uint32_t key, std::uint64_t v) {
          value[0] = char('a' + v % 26);
          server.set(names[key], value);
        });
  });
}

// All clients at once; millions of operations a second, from the first begin to the last end.
turn together(std::vector<worker>& clients, const std::string& mix, std::size_t each, int& seed) {
  std::vector<figures> answers(clients.size());
  std::vector<std::string> commands;
  for (std::size_t i = 0; i < clients.size(); ++i)
    commands.push_back("run " + mix + " " + std::to_string(each) + " " + std::to_string(++seed));
  for (std::size_t i = 0; i < clients.size(); ++i) clients[i].post(commands[i]);
  double begin = 1e300, end = 0;
  for (worker& c : clients) {
    const figures f = c.answer("run");
    begin = std::min(begin, f.at("begin"));
    end = std::max(end, f.at("end"));
  }
  return {double(clients.size() * each) / (end - begin) * 1e3, {}, 0};
}

}  // namespace

int main(int argc, char** argv) {
  become_worker_if_asked(argc, argv, {{"pool_client", pool_client_main}, {"redis_client", redis_client_main}});
  program p("pool_ycsb", "YCSB's mixes on a shared pool, against Redis");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    const std::uint64_t keys = p.sized<std::uint64_t>(100'000, 2'000);
    const auto each = p.sized<std::size_t>(12'000, 500);
    std::optional<redis> server;
    try {
      server.emplace(p.agent_core());
      std::string value(sizeof(record), 'v');
      for (std::uint64_t k = 0; k < keys; ++k) server->set(std::to_string(k), value);
    } catch (const fm::error& e) {
      p.left_out({"ycsb", {}, "Mops/s", {}, "Redis"}, e.what());
      return;
    }
    for (const auto& [transport, url] : transports()) {
      const counted_agent agent(p, binary, url, "1GiB");
      fm::pool pool({.agents = {agent.url()}, .name = "ycsb", .tenant = fm::pool_tenant::random()});
      std::vector<fm::pool_ptr<record>> pointers;
      for (std::uint64_t k = 0; k < keys; ++k) {
        record r{k, {}};
        pointers.push_back(pool.alloc(r));
      }
      const std::string file = "/tmp/farmem-bench-pointers-" + std::to_string(getpid());
      std::ofstream(file, std::ios::binary)
          .write(reinterpret_cast<const char*>(pointers.data()), std::streamsize(keys * sizeof pointers[0]));
      int seed = 0;
      for (const std::size_t n : {1u, 2u, 4u, 8u}) {
        std::vector<worker> ours, theirs;
        for (std::size_t i = 0; i < n; ++i) {
          ours.emplace_back("pool_client", std::vector<std::string>{agent.url(), pool.tenant().text(), file}, -2);
          theirs.emplace_back("redis_client",
                              std::vector<std::string>{std::to_string(server->port()), std::to_string(keys)}, -2);
        }
        for (const auto& [name, s] : {std::pair{"uniform", "0"}, {"zipf 0.99", "0.99"}})
          for (const char* const reads : {"0.5", "0.95", "1"}) {
            const std::string mix = std::string(reads) + " " + s;
            p.compare(
                {"ycsb",
                 {{"transport", transport}, {"clients", std::to_string(n)}, {"keys", name}, {"reads", reads}},
                 "Mops/s",
                 {},
                 "Redis"},
                [&] { return together(ours, mix, each, seed); }, [&] { return together(theirs, mix, each, seed); }, 3);
          }
      }
      unlink(file.c_str());
    }
  });
}

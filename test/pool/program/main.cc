// A client of a pool in a process of its own, for tests that kill it: it does what its standard input says, a line at a time, and
// answers with a line.
//
//   farmem_pool_client URL TENANT LEASE_MS
//   alloc VALUE          -> the pointer, as two hexadecimal numbers
//   read WHO WHAT        -> the value, or the error's name
//   write WHO WHAT VALUE -> ok, or the error's name
//   reconnects           -> how often
//   work WHO WHAT        -> working; from then on it reads, allocates, writes and frees without end
#include <farmem/pool/pool.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

void work(fm::pool& pool, fm::pool_ptr<std::uint64_t> shared) {
  std::vector<fm::pool_ptr<std::uint64_t>> mine;
  for (std::uint64_t i = 0;; ++i) {
    try {
      (void)pool.read(shared);
      mine.push_back(pool.alloc(i));
      pool.write(mine[i * 7 % mine.size()], i);
      if (mine.size() > 500)
        while (mine.size() > 100) {
          const auto last = mine.back();
          mine.pop_back();
          pool.free(last);
        }
    } catch (const fm::error& e) {
      if (e.code() != fm::errc::disconnected) throw;  // this process was stopped for longer than its lease
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  // Answers alone go where the test reads them; the library's log goes with the errors.
  std::FILE* const out = ::fdopen(::dup(1), "w");
  if (out == nullptr || ::dup2(2, 1) != 1) return 2;
  try {
    fm::pool_options o;
    o.agents = {argv[1]};
    o.tenant = fm::pool_tenant::parse(argv[2]);
    o.name = "test";
    o.lease = std::chrono::milliseconds(std::stoi(argv[3]));
    o.compact_above = 0;
    o.access_within = o.reconnect_within = o.connect_within = std::chrono::seconds(30);
    fm::pool pool(o);
    char line[200];
    std::fprintf(out, "open\n");
    std::fflush(out);
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
      char verb[20] = "";
      std::uint64_t who = 0, what = 0, value = 0;
      std::sscanf(line, "%19s %" SCNx64 " %" SCNx64 " %" SCNu64, verb, &who, &what, &value);
      fm::pool_ptr<std::uint64_t> p(fm::pool_address{who, what});
      if (std::strcmp(verb, "alloc") == 0) {
        const auto made = pool.alloc(std::uint64_t{std::stoull(line + 6)});
        std::fprintf(out, "%" PRIx64 " %" PRIx64 "\n", made.address().who, made.address().what);
      } else if (std::strcmp(verb, "read") == 0) {
        const auto r = pool.try_read(p);
        if (r)
          std::fprintf(out, "%" PRIu64 "\n", *r);
        else
          std::fprintf(out, "%s\n", std::string(fm::to_string(r.error().code())).c_str());
      } else if (std::strcmp(verb, "write") == 0) {
        const auto r = pool.try_write_bytes(p.address(), std::as_bytes(std::span(&value, 1)));
        std::fprintf(out, "%s\n", r ? "ok" : std::string(fm::to_string(r.error().code())).c_str());
      } else if (std::strcmp(verb, "reconnects") == 0) {
        std::fprintf(out, "%" PRIu64 "\n", pool.stats().reconnects);
      } else if (std::strcmp(verb, "work") == 0) {
        std::fprintf(out, "working\n");
        std::fflush(out);
        work(pool, p);
      }
      std::fflush(out);
    }
  } catch (const fm::error& e) {
    std::fprintf(out, "%s\n", e.what());
    return 1;
  }
  return 0;
}

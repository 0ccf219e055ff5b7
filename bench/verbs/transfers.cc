// What a session over verbs:// makes of a device: latency of single reads, throughput of batches, beside perftest's figures
// for the same device (lab.sh runs both). Needs nothing but the library, because it runs where nothing else is.
//
//   transfers serve URL BYTES                 serves BYTES of memory until it is killed; prints the URL
//   transfers read|write|message|latency URL BYTES SIZE COUNT [SPIN_US]
//     read, write   COUNT transfers of SIZE bytes, 64 in flight, posted 16 at a time: MiB/s
//     message       the same with messages, each answered with nothing
//     latency       COUNT reads of SIZE bytes, one after the other: median and mean in us
#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include "os/os.h"
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

namespace {

using namespace fm;
using namespace fm::fabric;

constexpr std::uint32_t region = 1, generation = 1, in_flight = 64, at_once = 16;

class memory_server final : public service {
 public:
  explicit memory_server(std::uint64_t bytes) : memory_(bytes, 1 << 21) { std::memset(memory_.base(), 7, bytes); }
  errc connected(peer&) noexcept override { return errc::ok; }
  void disconnected(peer&) noexcept override {}
  errc message(peer&, std::span<const std::byte>, answer&) noexcept override { return errc::ok; }
  std::byte* memory(peer&, const remote& where, std::uint64_t bytes, fabric::access) noexcept override {
    if (where.region != region || where.generation != generation) return nullptr;
    if (bytes > memory_.bytes() || where.offset > memory_.bytes() - bytes) return nullptr;
    return memory_.base() + where.offset;
  }
  void memory_done(peer&, std::uint32_t) noexcept override {}

 private:
  os::reservation memory_;
};

class no_events final : public session_events {
  errc connected(session&, std::uint32_t) override { return errc::ok; }
  void disconnected(session&, std::uint32_t, errc) noexcept override {}
  void lost(session&, errc) noexcept override {}
  void notice(session&, std::span<const std::byte>) noexcept override {}
};

void check(const request& r) {
  if (r.status != errc::ok) throw error(r.status, "a transfer");
}

int serve(const std::string& url, std::uint64_t bytes) {
  memory_server server(bytes);
  listen_options o;
  o.insecure = true;
  const auto listening = listen(url, o, server);
  fmt::print("{}\n", listening->url());
  std::fflush(stdout);
  for (;;) ::pause();
}

void latency(session& s, std::byte* to, std::size_t size, std::size_t count) {
  std::vector<double> us;
  for (std::size_t i = 0; i < count + count / 10; ++i) {
    request r;
    r.sg[0] = {to, size};
    r.sg_count = 1;
    r.where = {region, generation, 0};  // always the same bytes, as perftest does
    const time_point begin = clock::now();
    s.post(r);
    s.wait(r);
    us.push_back(std::chrono::duration<double, std::micro>(clock::now() - begin).count());
    check(r);
  }
  us.erase(us.begin(), us.begin() + std::ptrdiff_t(count / 10));
  const double mean = std::accumulate(us.begin(), us.end(), 0.0) / double(us.size());
  std::nth_element(us.begin(), us.begin() + std::ptrdiff_t(us.size() / 2), us.end());
  fmt::print("{:.2f} {:.2f}\n", us[us.size() / 2], mean);
}

void throughput(session& s, op_kind kind, std::byte* local, std::size_t size, std::size_t count) {
  std::vector<request> all(in_flight);
  const auto arm = [&](std::size_t i) {
    request& r = all[i % in_flight];
    r.state.store(request::idle, std::memory_order_relaxed);
    r.kind = kind;
    r.on = kind == op_kind::read ? lane::fetch : lane::bulk;
    r.sg[0] = {local + i % in_flight * size, size};
    r.sg_count = 1;
    r.where = {region, generation, i % in_flight * size};
    return &r;
  };
  const time_point begin = clock::now();
  std::vector<request*> posting;
  for (std::size_t next = 0, done = 0; done < count;) {
    while (next < count && next - done + at_once <= in_flight) {
      posting.clear();
      for (std::size_t i = 0; i < at_once && next < count; ++i) posting.push_back(arm(next++));
      s.post(posting);
    }
    const std::size_t until = std::min(count, done + at_once);
    for (; done < until; ++done) {
      request& r = all[done % in_flight];
      s.wait(r);
      check(r);
    }
  }
  const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
  fmt::print("{:.1f}\n", double(count) * double(size) / double(1 << 20) / seconds);
}

int run(const std::vector<std::string>& a) {
  if (a.size() == 3 && a[0] == "serve") return serve(a[1], std::stoull(a[2]));
  if (a.size() < 5) {
    fmt::print(
        stderr,
        "usage: transfers serve URL BYTES | transfers read|write|message|latency URL BYTES SIZE COUNT [SPIN_US]\n");
    return 2;
  }
  const std::uint64_t bytes = std::stoull(a[2]), size = std::stoull(a[3]), count = std::stoull(a[4]);
  session_options o;
  o.fetch_lanes = 1;
  o.connect_within = o.operation_within = std::chrono::seconds(60);
  if (in_flight * size > bytes) throw error(errc::invalid_argument, "the memory has no room for what is in flight");
  if (a.size() > 5) o.spin_for = std::chrono::microseconds(std::stoull(a[5]));
  no_events events;
  const auto s = connect(a[1], o, events);
  if (const errc e = s->attach(region, generation, bytes, {}); e != errc::ok) throw error(e, "attaching the memory");
  const os::reservation local(in_flight * size, 1 << 21);
  s->lend(local.base(), local.bytes(), std::uint64_t{1} << 30);
  if (a[0] == "latency")
    latency(*s, local.base(), size, count);
  else
    throughput(*s,
               a[0] == "read"    ? op_kind::read
               : a[0] == "write" ? op_kind::write
                                 : op_kind::message,
               local.base(), size, count);
  if (s->bounced_bytes() != 0) fmt::print(stderr, "{} bytes were bounced\n", s->bounced_bytes());
  s->close();
  s->take_back(local.base(), local.bytes(), true);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    fmt::print(stderr, "transfers: {}\n", e.what());
    return 1;
  }
}

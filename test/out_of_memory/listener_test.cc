// A listener when memory runs out: whichever allocation fails costs one connection at most, and no memory of the service
// stays in use.
#include "fabric/raw_client.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "failing_new.h"

using namespace fm;
using namespace fm::fabric;
using fm::fabric::test::raw_client;
using fm::test::failing_new;
using fm::test::spared;

namespace {

/// Echoes messages and says in the first byte of the answer whether a notice follows. It counts what is in use.
class counting_service final : public service {
 public:
  errc connected(peer&) noexcept override {
    const std::lock_guard lock(mutex_);
    ++sessions_;
    return errc::ok;
  }
  void disconnected(peer&) noexcept override {
    const std::lock_guard lock(mutex_);
    --sessions_;
    changed_.notify_all();
  }
  errc message(peer& p, std::span<const std::byte> payload, answer& out) noexcept override try {
    out.payload.assign(payload.begin(), payload.end());
    out.payload[0] = std::byte(p.notify(payload.first(8)));
    return errc::ok;
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
  std::byte* memory(peer&, const remote&, std::uint64_t, fabric::access) noexcept override {
    const std::lock_guard lock(mutex_);
    ++in_use_;
    return region_.data();
  }
  void memory_done(peer&, std::uint32_t) noexcept override {
    const std::lock_guard lock(mutex_);
    --in_use_;
  }
  /// What is in use when all sessions have ended; -1 if they do not.
  int in_use_at_the_end() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [this] { return sessions_ == 0; }) ? in_use_ : -1;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int sessions_ = 0, in_use_ = 0;
  std::vector<std::byte> region_ = std::vector<std::byte>(wire::chunk_bytes);
};

constexpr std::uint32_t reads = 16, message_bytes = 100'000;

/// A message that does not fit into the server's buffer, and more reads than the socket takes; whether all were answered.
bool asks_and_hears(const std::string& url) {
  raw_client c(url);
  c.send(wire::make_header(wire::frame_type::hello, sizeof(wire::hello_body)));
  wire::hello_body hello{};
  hello.generation = 1;
  hello.message_bytes_max = 1u << 20;
  c.send(hello);
  wire::frame_header h{};
  wire::welcome_body welcome{};
  const auto hears = [&](auto& what) { return c.receive(std::as_writable_bytes(std::span(&what, 1))); };
  if (!hears(h) || !hears(welcome) || wire::status_of(h) != errc::ok) return false;

  c.send(wire::make_header(wire::frame_type::message, message_bytes));
  const std::vector<std::byte> message(message_bytes);
  c.send(std::span(message));
  auto read = wire::make_header(wire::frame_type::read);
  read.generation = 1;
  read.bytes = wire::chunk_bytes;
  for (std::uint32_t i = 0; i < reads; ++i) c.send(read);
  std::uint32_t answers = 0, notices = 0, notified = 1;
  for (std::vector<std::byte> payload; answers < 1 + reads || notices < notified;) {
    if (!hears(h)) return false;
    payload.resize(h.length);
    if (!c.receive(payload)) return false;
    if (h.type == std::uint8_t(wire::frame_type::notice)) ++notices;
    if (h.type != std::uint8_t(wire::frame_type::answer)) continue;
    if (++answers == 1) notified = std::uint32_t(payload.at(0));
  }
  return true;
}

}  // namespace

TEST_CASE("a listener outlives any allocation that fails, and a connection that ends so holds no memory") {
  const std::string url = GENERATE(as<std::string>(), "tcp://127.0.0.1:0", "shm:///tmp/farmem-out-of-memory-");
  const spared tests_own;
  counting_service served;
  const auto server = listen(url.starts_with("shm") ? url + std::to_string(::getpid()) : url, {}, served);
  REQUIRE(asks_and_hears(server->url()));
  std::uint64_t hit = 0;
  for (std::uint64_t n = 1;; ++n) {
    INFO("allocation " << n);
    failing_new::fail(n, 1);
    const bool heard = asks_and_hears(server->url());
    const bool failed = failing_new::failed() != 0;
    failing_new::stop();
    REQUIRE(served.in_use_at_the_end() == 0);
    if (!failed) {
      REQUIRE(heard);
      break;
    }
    ++hit;
  }
  CHECK(hit > 10);
  REQUIRE(asks_and_hears(server->url()));
}

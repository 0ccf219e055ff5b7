// The agent for tests of programs; see farmem/testing.h. A service that stands between a listener and the agent's store
// and meddles with what arrives.
//
// Invariant: the store outlives the listener that serves it. A request that waits because of stall() holds no lock, and
// goes on when the agent resumes, dies, or has waited for stalled_most.
#include <farmem/testing.h>

#include "agent/embedded/embedded.h"
#include "base/base.h"
#include "fabric/server/server.h"
#include "protocol/heap_messages.h"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

namespace fm::testing {

namespace {

constexpr duration stalled_most = std::chrono::minutes(10);   // a test that forgets it fails, and does not hang
constexpr duration stalled_within = std::chrono::minutes(1);  // guards against hanging: far beyond any request

}  // namespace

class agent::state final : public fabric::service {
 public:
  explicit state(const agent_options& options) : options_(options) { start("tcp://127.0.0.1:0"); }
  ~state() override { die(); }

  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  [[nodiscard]] std::uint64_t requests() const noexcept { return requests_.load(std::memory_order_relaxed); }

  void stall(bool on) {
    const std::lock_guard lock(mutex_);
    stalled_ = on;
    changed_.notify_all();
  }
  bool until_stalled() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, stalled_within, [&] { return waiting_ != 0; });
  }
  void disconnect() {
    const std::lock_guard lock(mutex_);
    for (fabric::peer* p : peers_) p->close(errc::disconnected, "a test breaks the connection");
  }
  void lose(std::uint32_t count) {
    const std::lock_guard lock(mutex_);
    to_lose_ += count;
  }
  void set_full(bool full) noexcept { full_.store(full, std::memory_order_relaxed); }

  void die() {
    const std::lock_guard life(life_mutex_);
    stall(false);
    listener_.reset();
    store_.reset();
  }
  void restart() {
    const std::lock_guard life(life_mutex_);
    if (!listener_) start(url_);
  }

 private:
  void start(const std::string& at) {
    store_ = fm::agent::start_embedded(
        {.use = fm::agent::embedded_for::tests, .memory_bytes = options_.memory, .region_bytes = options_.region});
    try {
      listener_ = fabric::listen(at, {}, *this);
    } catch (...) {
      store_.reset();
      throw;
    }
    url_ = listener_->url();
  }

  errc connected(fabric::peer& p) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      peers_.reserve(peers_.size() + 1);
      peers_.push_back(&p);
    } catch (const std::bad_alloc&) {
      return errc::out_of_memory;
    }
    const errc e = store_->connected(p);
    if (e != errc::ok) forget(p);
    return e;
  }
  void disconnected(fabric::peer& p) noexcept override {
    forget(p);
    store_->disconnected(p);
  }
  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    switch (arrived()) {
      case fate::lost: return lose_from(p);
      case fate::answer_lost: {
        (void)store_->message(p, payload, out);
        return lose_from(p);
      }
      case fate::served: break;
    }
    if (full_.load(std::memory_order_relaxed) && refuse_region(payload, out)) return errc::ok;
    return store_->message(p, payload, out);
  }
  std::byte* memory(fabric::peer& p, const fabric::remote& where, std::uint64_t bytes,
                    fabric::access how) noexcept override {
    if (arrived() != fate::served) (void)lose_from(p);  // its answer goes nowhere
    return store_->memory(p, where, bytes, how);
  }
  void memory_done(fabric::peer& p, std::uint32_t region) noexcept override { store_->memory_done(p, region); }
  errc stream(fabric::peer& p, std::uint16_t index, os::descriptor socket) noexcept override {
    return store_->stream(p, index, std::move(socket));
  }

  enum class fate : std::uint8_t { served, lost, answer_lost };
  fate arrived() noexcept {
    requests_.fetch_add(1, std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    if (stalled_) {
      ++waiting_;
      changed_.notify_all();
      changed_.wait_for(lock, stalled_most, [&] { return !stalled_; });
      --waiting_;
    }
    if (to_lose_ == 0) return fate::served;
    return --to_lose_ % 2 == 0 ? fate::answer_lost : fate::lost;
  }
  static errc lose_from(fabric::peer& p) noexcept {
    p.close(errc::disconnected, "a test loses a request");
    return errc::disconnected;
  }
  void forget(fabric::peer& p) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(peers_, &p);
  }
  static bool refuse_region(std::span<const std::byte> payload, fabric::answer& out) noexcept {
    protocol::message_head head{};
    if (payload.size() < sizeof head) return false;
    std::memcpy(&head, payload.data(), sizeof head);
    if (static_cast<protocol::message_type>(head.type) != protocol::message_type::open_region) return false;
    static constexpr std::string_view why = "a test has made the agent full";
    const protocol::answer_head answer{head.type, static_cast<std::uint16_t>(errc::agent_full), why.size()};
    try {
      out.payload.resize(sizeof answer + why.size());
    } catch (const std::bad_alloc&) {
      return false;
    }
    std::memcpy(out.payload.data(), &answer, sizeof answer);
    std::memcpy(out.payload.data() + sizeof answer, why.data(), why.size());
    return true;
  }

  const agent_options options_;
  std::mutex life_mutex_;  ///< one dies or is restarted at a time
  std::unique_ptr<fabric::service> store_;
  std::unique_ptr<fabric::listener> listener_;
  std::string url_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<bool> full_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<fabric::peer*> peers_;
  std::uint32_t to_lose_ = 0, waiting_ = 0;
  bool stalled_ = false;
};

agent::agent(const agent_options& options) : state_(std::make_unique<state>(options)) {}
agent::~agent() = default;
const std::string& agent::url() const noexcept { return state_->url(); }
void agent::stall() { state_->stall(true); }
void agent::resume() { state_->stall(false); }
bool agent::until_stalled() { return state_->until_stalled(); }
void agent::disconnect() { state_->disconnect(); }
void agent::lose(std::uint32_t count) { state_->lose(count); }
void agent::set_full(bool full) { state_->set_full(full); }
void agent::die() { state_->die(); }
void agent::restart() { state_->restart(); }
std::uint64_t agent::requests() const noexcept { return state_->requests(); }

}  // namespace fm::testing

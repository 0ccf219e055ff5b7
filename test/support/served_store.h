// An agent in the test's own process: a store behind a listener, as in `farmem-agent`. Tests derive from it and override what
// they meddle with; the rest goes to the store.
#pragma once

#include "agent/service/service.h"
#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_messages.h"
#include "remote/agent_session.h"
#include <memory>
#include <string>

namespace fm::test {

class served_store : public fabric::service {
 public:
  [[nodiscard]] const std::string& url() const { return listener_->url(); }
  [[nodiscard]] fm::agent::store& store() noexcept { return *store_; }

  errc connected(fabric::peer& p) noexcept override { return store_->connected(p); }
  void disconnected(fabric::peer& p) noexcept override { store_->disconnected(p); }
  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    return store_->message(p, payload, out);
  }
  std::byte* memory(fabric::peer& p, const fabric::remote& where, std::uint64_t bytes,
                    fabric::access how) noexcept override {
    return store_->memory(p, where, bytes, how);
  }
  void memory_done(fabric::peer& p, std::uint32_t region) noexcept override { store_->memory_done(p, region); }

 protected:
  explicit served_store(const fm::agent::store_options& options) : store_(fm::agent::store::create(options)) {}
  /// For the constructor of the most derived class: from here on its overrides are called.
  void serve(const std::string& at = "tcp://127.0.0.1:0") {
    fabric::listen_options options;
    options.insecure = at.starts_with("verbs:");  // RDMA has no loopback addresses
    listener_ = fabric::listen(at, options, *this);
  }
  /// Nobody answers any more, and nothing of this object is called; for its destructor, too.
  void stop() { listener_.reset(); }

  /// The type of a message, renew when it is shorter than a head.
  static protocol::message_type type_of(std::span<const std::byte> payload) noexcept {
    protocol::message_head head{};
    if (payload.size() < sizeof head) return protocol::message_type::renew;
    std::memcpy(&head, payload.data(), sizeof head);
    return static_cast<protocol::message_type>(head.type);
  }
  /// Loses a message, or the answer to one that was handled, with the connection.
  static errc lose(fabric::peer& p, const char* what) noexcept {
    p.close(errc::disconnected, what);
    return errc::disconnected;
  }

 private:
  std::unique_ptr<fm::agent::store> store_;
  std::unique_ptr<fabric::listener> listener_;
};

}  // namespace fm::test

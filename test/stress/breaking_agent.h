// An agent whose connection breaks in the middle of a batch when it is told to: before the index message is handled, so that
// the batch must be sent again, or before its answer is out, so that the handshake of the next connection acknowledges it.
//
// Breaking the owner's end cannot do the former: what its socket has taken is delivered all the same, and a batch is in the
// socket as soon as it is sent.
#pragma once

#include <atomic>

#include "support/served_store.h"

namespace stress {

class breaking_agent final : public fm::test::served_store {
 public:
  enum class loss : std::uint8_t { none, index_message, index_answer };

  breaking_agent(const fm::agent::store_options& options, const std::string& at) : served_store(options) { serve(at); }
  ~breaking_agent() override { stop(); }
  breaking_agent(const breaking_agent&) = delete;
  breaking_agent& operator=(const breaking_agent&) = delete;

  /// Of the next batch that comes.
  void lose_next(loss what) noexcept { next_.store(what); }

  std::atomic<std::uint64_t> lost_messages{0}, lost_answers{0};

  fm::errc message(fm::fabric::peer& p, std::span<const std::byte> payload, fm::fabric::answer& out) noexcept override {
    const loss now = type_of(payload) == fm::protocol::message_type::index ? next_.exchange(loss::none) : loss::none;
    if (now == loss::index_message) {
      lost_messages.fetch_add(1);
      return lose(p, "the test loses a batch");
    }
    const fm::errc e = served_store::message(p, payload, out);
    if (now == loss::none || e != fm::errc::ok) return e;
    lost_answers.fetch_add(1);
    return lose(p, "the test loses an acknowledgement");
  }

 private:
  std::atomic<loss> next_{loss::none};
};

}  // namespace stress

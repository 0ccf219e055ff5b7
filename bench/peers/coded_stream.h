// Messages of the programs that channels are compared with: a head and a serializer's bytes, both ways over one socket.
#pragma once

#include <farmem/base/error.h>
#include <memory>
#include <string>
#include <vector>

#include "../support/stream.h"
#include "serializers.h"

namespace fm::bench {

/// A message of the peers: this, and `bytes` of a serializer's after it.
struct message_head {
  std::uint64_t bytes = 0, what = 0, key = 0;
};

/// One end. Both ends use the serializer of that name.
class coded_stream {
 public:
  coded_stream(stream s, const std::string& serializer_name)
      : stream_(std::move(s)), serializer_(make_serializer(serializer_name)) {}
  /// Sends `value`, or none. Throws disconnected.
  void send(std::uint64_t what, std::uint64_t key, const shape_data* value) {
    const std::string_view bytes = value ? serializer_->encode(*value, bytes_) : std::string_view();
    const message_head h{bytes.size(), what, key};
    // One call for both, so that no small packet goes ahead.
    if (!stream_.send(std::string_view(reinterpret_cast<const char*>(&h), sizeof h), bytes))
      throw fm::error(fm::errc::disconnected, "the other process");
  }
  /// False when the other end is gone. What comes with a value replaces `value`.
  bool receive(message_head& h, std::vector<float>& value) {
    if (!stream_.receive(&h, sizeof h)) return false;
    if (h.bytes == 0) return true;
    if (buffer_.size() < h.bytes / 8 + 1) buffer_.resize(h.bytes / 8 + 1);
    if (!stream_.receive(buffer_.data(), h.bytes)) return false;
    serializer_->take(reinterpret_cast<const char*>(buffer_.data()), h.bytes, value);
    return true;
  }

 private:
  stream stream_;
  std::unique_ptr<serializer> serializer_;
  std::string bytes_;
  std::vector<std::uint64_t> buffer_;
};

}  // namespace fm::bench

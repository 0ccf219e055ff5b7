// A serializer over a plain socket: the bytes are made, sent, received whole, read and answered, as a program without
// channels would do it. The receiver is a worker process.
#pragma once

#include <string>

#include "../support/process.h"
#include "../support/stream.h"
#include "serializers.h"

namespace fm::bench {

/// The receiver as a worker: `serializer_receiver tcp|unix`; list it in become_worker_if_asked.
int serializer_receiver_main(const std::vector<std::string>& args);

class serializer_link {
 public:
  /// Connects to the worker; both ends use the serializer of that name.
  serializer_link(const worker& receiver, socket_kind kind, const std::string& serializer_name);
  /// Sends one; the receiver reads it and answers the sum that it read.
  void send(const shape_data& data);
  /// Waits for the next answer.
  double answer();
  [[nodiscard]] std::size_t wire_bytes() const noexcept { return wire_bytes_; }  ///< of the last one

 private:
  std::unique_ptr<serializer> serializer_;
  stream stream_;
  std::string bytes_;
  std::size_t wire_bytes_ = 0;
};

}  // namespace fm::bench

#include "serializer_link.h"

#include "base/base.h"
#include <algorithm>
#include <thread>
#include <unistd.h>

#include "../support/cpu.h"

namespace fm::bench {
namespace {

struct message_head {
  std::uint64_t bytes;
  std::uint64_t kind;
};

void serve(stream s) {
  std::uint32_t number = 0;
  if (!s.receive(&number, sizeof number)) return;
  const auto reader = make_serializer(serializer_names().at(number));
  std::vector<std::uint64_t> buffer;  // aligned as the formats that are read in place want it
  for (message_head h{}; s.receive(&h, sizeof h);) {
    if (buffer.size() < h.bytes / 8 + 1) buffer.resize(h.bytes / 8 + 1);
    if (!s.receive(buffer.data(), h.bytes)) return;
    const double sum = reader->decode(shape(h.kind), reinterpret_cast<const char*>(buffer.data()), h.bytes);
    if (!s.send(&sum, sizeof sum)) return;
  }
}

}  // namespace

int serializer_receiver_main(const std::vector<std::string>& args) {
  stream_acceptor acceptor(args.at(0) == "tcp" ? socket_kind::tcp : socket_kind::unix_domain);
  std::thread([&acceptor] {
    for (;;) std::thread([s = acceptor.accept()]() mutable { serve(std::move(s)); }).detach();
  }).detach();
  const int rc = serve_commands({{"port", double(acceptor.port())}}, [](const std::vector<std::string>&) {
    return figures{{"cpu_s", cpu_seconds(0)}};
  });
  _exit(rc);
}

serializer_link::serializer_link(const worker& receiver, socket_kind kind, const std::string& serializer_name)
    : serializer_(make_serializer(serializer_name)),
      stream_(stream::connect(kind, std::uint16_t(receiver.ready().at("port")))) {
  const auto& names = serializer_names();
  const auto number = std::uint32_t(std::find(names.begin(), names.end(), serializer_name) - names.begin());
  if (!stream_.send(&number, sizeof number)) throw error(errc::disconnected, "the serializer's receiver");
}

void serializer_link::send(const shape_data& data) {
  const std::string_view bytes = serializer_->encode(data, bytes_);
  wire_bytes_ = sizeof(message_head) + bytes.size();
  const message_head h{bytes.size(), std::uint64_t(data.kind)};
  // One call for both, so that no small packet goes ahead.
  if (!stream_.send(std::string_view(reinterpret_cast<const char*>(&h), sizeof h), bytes))
    throw error(errc::disconnected, "the serializer's receiver");
}

double serializer_link::answer() {
  double sum = 0;
  if (!stream_.receive(&sum, sizeof sum)) throw error(errc::disconnected, "the serializer's receiver");
  return sum;
}

}  // namespace fm::bench

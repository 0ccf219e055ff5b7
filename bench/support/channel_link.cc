// The receiver of channel_link: a channel and, for the answers, a plain socket; see channel_link.h.
#include "channel_link.h"

#include <thread>
#include <unistd.h>

namespace fm::bench {

int channel_receiver_main(const std::vector<std::string>& args) {
  const bool tcp = args.at(0) == "tcp";
  fm::heap h(channel_heap());
  fm::channel_listener listener(
      h, tcp ? std::string("tcp://127.0.0.1:0") : "shm:///tmp/farmem-bench-channel-" + std::to_string(getpid()));
  stream_acceptor answers(tcp ? socket_kind::tcp : socket_kind::unix_domain);
  std::thread([&] {
    for (;;) {
      stream back = answers.accept();
      std::uint32_t kind = 0;
      if (!back.receive(&kind, sizeof kind)) continue;
      std::thread([&listener, kind, b = std::move(back)]() mutable {
        try {
          fm::channel from = listener.accept();
          for (;;) {
            const double sum = far_shape::receive(from, shape(kind));
            if (!b.send(&sum, sizeof sum)) return;
          }
        } catch (const fm::error&) {  // the sender is done with it
        }
      }).detach();
    }
  }).detach();
  const std::string& url = listener.url();
  const double port = tcp ? std::stod(url.substr(url.rfind(':') + 1)) : getpid();
  const int rc = serve_commands({{"port", port}, {"answers", double(answers.port())}},
                                [](const std::vector<std::string>&) { return figures{}; });
  _exit(rc);
}

}  // namespace fm::bench

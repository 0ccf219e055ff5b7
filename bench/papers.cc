// What the papers measured and this machine can show: CoRM, dcm, Mako, Semeru and Naos, each figure in its own setting, scaled down. The
// goal of a row is the paper's figure; most are ratios, because the papers' machines have other processors and networks.
#include "papers/papers.h"

#include "peers/bare_read.h"
#include "peers/serializer_link.h"
#include "peers/tcp.h"
#include "support/channel_link.h"

int main(int argc, char** argv) {
  using namespace fm::bench;
  become_worker_if_asked(argc, argv,
                         {{"bare_memory", bare_memory_main},
                          {"channel_receiver", channel_receiver_main},
                          {"corm_client", corm_client_main},
                          {"dcm_paged", dcm_paged_main},
                          {"dcm_plain", dcm_plain_main},
                          {"naos_echo", naos_echo_main},
                          {"naos_peer_echo", naos_peer_echo_main},
                          {"naos_taker", naos_taker_main},
                          {"serializer_receiver", serializer_receiver_main},
                          {"tcp_server", tcp_server_main}});
  program p("papers", "Figures of the papers that farmem follows, scaled down, beside what the papers state");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    corm_rows(p, binary);
    dcm_rows(p, binary);
    mako_rows(p, binary);
    semeru_rows(p, binary);
    naos_rows(p);
  });
}

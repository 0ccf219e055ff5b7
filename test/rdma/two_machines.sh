# Two lab machines joined by a cable: an agent on the second one, and on the first one a heap from which it is parted.
if [ "$LAB_MACHINE" -eq 2 ]; then
  exec farmem-agent --listen "verbs://$LAB_ADDRESS:7070" --insecure --memory 64MiB --region 1MiB --admin /tmp/admin --log-level warning
fi
LAB_PEER_URL=verbs://10.7.0.2:7070 ./rdma_faults --use-colour no "[two]"

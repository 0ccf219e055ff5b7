# What runs over verbs:// in one lab machine. Every step runs, whatever became of the others; says at the end which failed.
failed=
step() {
  name=$1
  shift
  began=$(cut -d. -f1 /proc/uptime)
  echo "== $name"
  if "$@"; then outcome=passed; else
    outcome=FAILED
    failed="$failed '$name'"
  fi
  echo "== $name: $outcome, $(($(cut -d. -f1 /proc/uptime) - began)) s"
}
step "the kernel's own tools" rdma link show
step conformance ./rdma_conformance --use-colour no
step "the doctor" ./farmem-agent --doctor
step "a killed agent" ./rdma_faults --use-colour no "[one]"
step "killed agents and replicas" ./rdma_faults --use-colour no "[replicas]"
step "memory that is not locked, and huge pages" ./rdma_faults --use-colour no "[memory]"
step "a stressed heap and a cycle" ./rdma_heap --use-colour no
step "pools, channels and paged ranges" ./rdma_shared --use-colour no
step "a pool for a minute" env FARMEM_STRESS_SECONDS=10 ./rdma_shared --use-colour no "nobody reads a wrong byte*"
[ ! -x index ] || step index sh ./index.sh
step "a removed device" ./rdma_faults --use-colour no "[removal]"  # the last one: it is gone then
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }

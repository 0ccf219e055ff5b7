#!/usr/bin/env bash
# Runs the same operations and analyses on persons in containers of std:: and in farmem's, over little memory; --check
# compares the answers. Mistakes in the arguments are refused.
#
#   network.sh PATH-OF-NETWORK PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
network=$1 agent=$2

fail() { echo "$out"; echo "network.sh: $1"; exit 1; }
expect() { grep -Eq -- "$1" <<<"$out" || fail "no line like: $1"; }

for transport in shm tcp; do
  out=$("$network" --agent "$agent" --transport $transport --persons 4000 --operations 4000 --cache 1MiB --region 256KiB \
    --memory 32MiB --check) || fail "the run over $transport fails"
  expect "^std, all local .* analyses in [0-9.]+ s$"
  expect "^farmem .* analyses in [0-9.]+ s$"
  expect "^ +[1-9][0-9]* persons, [1-9][0-9]* groups, [1-9][0-9]* triangles, [1-9][0-9]* in the core$"
  expect "^check: both networks gave the same answers$"
  expect "^verify: 0 frames here, [1-9][0-9]* objects on the agents: no fault$"
done

status=0
out=$("$network" --persons 1 2>&1) || status=$?
[ "$status" -eq 2 ] || fail "one person: $status"

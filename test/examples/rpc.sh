#!/usr/bin/env bash
# Runs the service with a cache that holds a part of its catalogue, over each kind of channel; the clients compare every answer, and
# --check verifies both heaps. Then: mistakes in the arguments are refused.
#
#   rpc.sh PATH-OF-RPC PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
rpc=$1 agent=$2

fail() { echo "$out"; echo "rpc.sh: $1"; exit 1; }
expect() { grep -Eq -- "$1" <<<"$out" || fail "no line like: $1"; }

for channel in shm tcp; do
  out=$("$rpc" --agent "$agent" --parts 12000 --requests 200 --cache 2MiB --memory 64MiB --channel $channel --within-ms 60000 --check) ||
    fail "the run over $channel fails"
  expect "^check: 400 answers against the plain parts: no difference$"
  expect "^  bills  *3[0-9][0-9] "
  expect "^  unknown_part  *[1-9]"
  expect "^  bad_quantity  *[1-9]"
  expect "^  deadline_exceeded  *[1-9]"
  expect "^  layout_mismatch  *2$"
  expect "^  answered  *400   \(2 graphs refused, which were no requests\)$"
  expect "hit ratio .*\([1-9][0-9]* misses"
  expect "^clients' heap: verify: 0 frames here, [0-9]* objects on the agents: no fault$"
  expect "^verify: 0 frames here, [1-9][0-9]* objects on the agents: no fault$"
done

status=0
out=$("$rpc" --agent "$agent" --in-flight 0 2>&1) || status=$?
[ "$status" -eq 2 ] || fail "no request in flight: $status"
status=0
out=$("$rpc" --agent /absent/farmem-agent 2>&1) || status=$?
[ "$status" -eq 1 ] || fail "no agent: $status"
expect "not_found: /absent/farmem-agent"

#!/usr/bin/env bash
# Runs the cache over little memory for long enough that it makes many times what the agents have; --check compares values and
# fails when memory grows. Then: a run that is too short to tell is no success, and mistakes in the arguments are refused.
#
#   lru.sh PATH-OF-LRU PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
lru=$1 agent=$2

fail() { echo "$out"; echo "lru.sh: $1"; exit 1; }
expect() { grep -Eq -- "$1" <<<"$out" || fail "no line like: $1"; }

small=(--agent "$agent" --capacity 2000 --keys 20000 --memory 8MiB --region 256KiB --cache 1MiB --check)
out=$("$lru" "${small[@]}" --requests 400000 --report-every 1) || fail "the run fails"
expect "^check: [1-9][0-9]* values read: all right$"
expect "^check: list and map: the same entries$"
expect "^check: local memory at most .* agents at most .*"
expect "^verify: 0 frames here, [1-9][0-9]* objects on the agents: no fault$"
expect "^  values  *2000   cached, [1-9][0-9]* pushed out$"
expect "^  objects made .* ([3-9]|[1-9][0-9])\.[0-9] times the agents' memory\)$"
expect "^  collections  *[1-9]"

status=0
out=$("$lru" "${small[@]}" --requests 3000 --transport tcp) || status=$?
[ "$status" -eq 1 ] || fail "a run that is too short: $status"
expect "^check: TOO SHORT to tell whether memory grows"
expect "^verify: .*: no fault$"

status=0
out=$("$lru" --capacity 0 2>&1) || status=$?
[ "$status" -eq 2 ] || fail "a capacity of 0: $status"

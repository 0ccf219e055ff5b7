#!/usr/bin/env bash
# Runs both halves with caches that hold a part of them, over each kind of channel, and over a small file; --check compares with a
# plain run and verifies both heaps. Then: mistakes in the arguments are refused.
#
#   pagerank.sh PATH-OF-PAGERANK PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
pagerank=$1 agent=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "$out"; echo "pagerank.sh: $1"; exit 1; }
expect() { grep -Eq -- "$1" <<<"$out" || fail "no line like: $1"; }
run() {
  out=$("$pagerank" --agent "$agent" --memory 64MiB --check "$@") || fail "pagerank $* fails"
  expect "^check: [1-9][0-9]* ranks against the plain run: no difference"
  expect "^  sum of all ranks +1\.0000000"
  [ "$(grep -c "^verify: 0 frames here, [1-9][0-9]* objects on the agents: no fault$" <<<"$out")" = 2 ] || fail "not both heaps are verified"
}

run --rmat 14 --edges-per-vertex 8 --cache 2MiB --iterations 2
expect "hit ratio .*\([1-9][0-9]* misses"
run --rmat 13 --edges-per-vertex 6 --cache 2MiB --iterations 1 --channel tcp --transport tcp
printf '# comment\n5\t7\n7\t6\r\n\n6 5\n1000000000000\t5000\n5 7\n' >"$work/small.txt"
run --snap "$work/small.txt"
expect "^  vertex 5000 "

status=0
out=$("$pagerank" --agent "$agent" --snap "$work/absent" 2>&1) || status=$?
[ "$status" -eq 1 ] || fail "no file: $status"
expect "not_found: no file $work/absent"
status=0
out=$("$pagerank" --channel pigeon 2>&1) || status=$?
[ "$status" -eq 2 ] || fail "a pigeon: $status"

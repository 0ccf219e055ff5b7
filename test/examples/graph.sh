#!/usr/bin/env bash
# Runs each algorithm over a generated graph and over a small file, with a cache that holds a part of the graph; --check
# compares with a plain run. Then: bad lines and mistakes in the arguments are refused, with their place.
#
#   graph.sh PATH-OF-GRAPH PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
graph=$1 agent=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

expect() {  # PATTERN: a line of $out
  grep -Eq -- "$1" <<<"$out" || { echo "$out"; echo "graph.sh: no line like: $1"; exit 1; }
}
run() {
  out=$("$graph" --agent "$agent" --check "$@") || { echo "$out"; echo "graph.sh: graph $* fails"; exit 1; }
  expect "^check: [1-9][0-9]* .* against the plain run: no difference"
  expect "^verify: 0 frames here, [1-9][0-9]* objects on the agents: no fault$"
}

# With a cache that holds a part of the graph.
run --rmat 11 --edges-per-vertex 16 --cache 512KiB --algorithm pagerank --iterations 2
expect "hit ratio .*\([1-9][0-9]* misses"
run --rmat 11 --edges-per-vertex 16 --cache 512KiB --algorithm components
expect "hit ratio .*\([1-9][0-9]* misses"
run --rmat 10 --edges-per-vertex 16 --cache 512KiB --algorithm closure --sources 20
expect "hit ratio .*\([1-9][0-9]* misses"
expect "^  20 sources reach [1-9]"
run --rmat 10 --edges-per-vertex 8 --cache 512KiB --algorithm components --transport tcp
expect "hit ratio .*\([1-9][0-9]* misses"

# Two components, 5 -> 7 -> 6 -> 5 and 1000000000000 -> 5000; what reaches what can be counted by hand.
printf '# comment\n# FromNodeId\tToNodeId\n5\t7\n7\t6\r\n\n6 5\n1000000000000\t5000\n' >"$work/small.txt"
run --snap "$work/small.txt" --algorithm components
expect "^  2 components, the largest with 3 of 5 vertices$"
run --snap "$work/small.txt" --algorithm closure --sources 5
expect "^  5 sources reach 12 vertices in all$"
run --snap "$work/small.txt" --algorithm pagerank
expect "^  vertex 5000 "
expect "^  sum of all ranks +1\.0000000"

refused() {  # STATUS PATTERN ARGUMENTS...
  local status=0 wanted=$1 pattern=$2
  shift 2
  "$graph" --agent "$agent" "$@" >"$work/out" 2>"$work/err" || status=$?
  [ "$status" -eq "$wanted" ] && grep -Fq -- "$pattern" "$work/err" || { cat "$work/out" "$work/err"; echo "graph.sh: graph $*: $status"; exit 1; }
}
printf '1\t2\n3\tx4\n' >"$work/bad.txt"
refused 1 "invalid_argument: $work/bad.txt:2: two vertex numbers are wanted, not '3 x4'" --snap "$work/bad.txt"
printf '1\t2\n1\t2\t3\n' >"$work/bad.txt"
refused 1 "invalid_argument: $work/bad.txt:2: " --snap "$work/bad.txt"
printf '1\t99999999999999999999\n' >"$work/bad.txt"
refused 1 "invalid_argument: $work/bad.txt:1: " --snap "$work/bad.txt"
printf '# nothing\n' >"$work/bad.txt"
refused 1 "no edges" --snap "$work/bad.txt"
refused 1 "not_found: no file $work/absent" --snap "$work/absent"
refused 2 "--algorithm" --algorithm colouring
refused 2 "--snap" --snap "$work/small.txt" --rmat 10

#!/usr/bin/env bash
# Generates a tree of a few hundred files with a skewed vocabulary and indexes it over shm:// and tcp:// with a cache that
# holds a part of the index; --check compares with a plain scan. Then: mistakes in the arguments are refused.
#
#   index.sh PATH-OF-INDEX PATH-OF-FARMEM-AGENT
set -euo pipefail
index=$1 agent=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
awk -v tree="$tree" 'BEGIN {
  srand(7)
  for (f = 0; f < 100; ++f) {
    file = tree "/file" f ".h"
    for (l = 0; l < 40; ++l) {
      line = ""
      for (w = 0; w < 6; ++w) line = line " word" int(exp(rand() * 9)) "_Part" int(rand() * 3000)
      print line > file
    }
    close(file)
  }
}'
printf 'binary\0word1\n' >"$tree/binary"

for transport in shm tcp; do
  out=$("$index" "$tree" --agent "$agent" --transport "$transport" --cache 4MiB --check --no-interactive --query "word1 part2") || { echo "$out"; exit 1; }
  echo "$out"
  grep -q "^check: 200 random words .*: no difference$" <<<"$out"
  grep -q "^  files  *100 " <<<"$out"
  grep -q "^  word1 in [1-9][0-9]* files, part2 in" <<<"$out"
  grep -Eq "hit ratio .*\([1-9][0-9]* misses" <<<"$out"
done

status=0
"$index" "$tree/absent" --agent "$agent" 2>"$tree/err" || status=$?
[ "$status" -eq 1 ] && grep -q "not_found: no directory $tree/absent" "$tree/err"
status=0
"$index" "$tree" --transport pigeon 2>/dev/null || status=$?
[ "$status" -eq 2 ]

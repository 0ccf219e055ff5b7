#!/usr/bin/env bash
# Generates a tree of a few hundred files with a skewed vocabulary and indexes it over shm:// and tcp:// with a cache that
# holds a part of the index; --check compares with a plain scan. Some files are larger than the pieces that are read at once
# (256 KiB), with words that begin in one and end in another. Then: memory that cannot work is refused with the figure that can,
# and so are mistakes in the arguments.
#
#   index.sh PATH-OF-INDEX PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
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

# Headers of a million bytes, whose words are all different but for some that every line has.
for n in 1 2; do
  awk -v n="$n" 'BEGIN { for (i = 0; i < 22000; ++i) printf "#define REG%d_BLOCK%d_FIELD%x__SHIFT word%d 0x%x\n", n, i % 977, i, i % 9, i }' >"$tree/large$n.h"
done
# An identifier across the end of a piece, and runs that are longer than a piece: without and with underscores.
{ head -c 262140 /dev/zero | tr '\0' ' '; echo 'word1_Part2_tail'; } >"$tree/across.h"
{ head -c 300000 /dev/zero | tr '\0' 'a'; printf '_word1_'; head -c 300000 /dev/zero | tr '\0' 'b'; echo; } >"$tree/run.h"
{ for i in $(seq 60000); do printf 'word1_'; done; echo; } >"$tree/underscores.h"
# No text: its NUL is in the second piece.
{ head -c 300000 /dev/zero | tr '\0' '\n'; printf 'word1 \0 word2\n'; } >"$tree/late_binary"

for transport in shm tcp; do
  out=$("$index" "$tree" --agent "$agent" --transport "$transport" --cache 4MiB --check --no-interactive --query "word1 part2") || { echo "$out"; exit 1; }
  echo "$out"
  grep -q "^check: 200 random words .*: no difference$" <<<"$out"
  grep -q "^  files  *105 " <<<"$out"
  grep -q "^  word1 in [1-9][0-9]* files, part2 in" <<<"$out"
  grep -Eq "hit ratio .*\([1-9][0-9]* misses" <<<"$out"
done

# The figure works, and a mebibyte less is refused.
status=0
"$index" "$tree" --agent "$agent" --local 16MiB --no-interactive 2>"$tree/err" || status=$?
[ "$status" -eq 1 ] && grep -q "invalid_argument: local memory of 16.0 MiB is too little: give it --local [0-9]*MiB" "$tree/err"
least=$(sed -n 's/.*give it --local \([0-9]*\)MiB.*/\1/p' "$tree/err")
status=0
"$index" "$tree" --agent "$agent" --local "$((least - 1))MiB" --no-interactive 2>"$tree/err" || status=$?
[ "$status" -eq 1 ] && grep -q "give it --local ${least}MiB" "$tree/err"
out=$("$index" "$tree" --agent "$agent" --local "${least}MiB" --check --no-interactive) || { echo "$out"; exit 1; }
grep -q "^check: 200 random words .*: no difference$" <<<"$out"
# What the process has in the end is within what it was given.
private=$(sed -n 's/^  this process  *\([0-9]*\)\.[0-9]* MiB private.*/\1/p' <<<"$out")
echo "--local ${least}MiB: $private MiB private"
[ "$private" -lt "$least" ]

# An index that is kept is another process's: the same answers, and the plain scan agrees with it.
"$agent" --listen "shm://$tree/kept.sock" --memory 256MiB --ready-file "$tree/ready" --log-level warning &
keeper=$!
trap 'kill "$keeper" 2>/dev/null || true; wait; rm -rf "$tree"' EXIT
for _ in $(seq 200); do [ -e "$tree/ready" ] && break; sleep 0.05; done
mkdir "$tree/text" && mv "$tree"/*.h "$tree/text"
at=(--at "shm://$tree/kept.sock" --secret quiet --no-interactive --query "word1 part2")
"$index" "$tree/text" "${at[@]}" --keep tree >"$tree/built"
grep -q "^kept as tree in " "$tree/built"
for _ in 1 2; do
  out=$("$index" "$tree/text" "${at[@]}" --attach tree --cache 4MiB --check) || { echo "$out"; exit 1; }
  grep -E "^attached tree in " <<<"$out"
  grep -q "^check: 200 random words .*: no difference$" <<<"$out"
  [ "$(grep "^  word1 in" <<<"$out" | sed 's/ (.*//')" = "$(grep "^  word1 in" "$tree/built" | sed 's/ (.*//')" ]
done
status=0
"$index" "$tree/text" --at "shm://$tree/kept.sock" --attach tree --no-interactive 2>"$tree/err" || status=$?
[ "$status" -eq 1 ] && grep -q "access_denied" "$tree/err"
status=0
"$index" "$tree/text" --keep tree 2>"$tree/err" || status=$?
[ "$status" -eq 1 ] && grep -q "need agents that outlive this program" "$tree/err"

status=0
"$index" "$tree/absent" --agent "$agent" 2>"$tree/err" || status=$?
[ "$status" -eq 1 ] && grep -q "not_found: no directory $tree/absent" "$tree/err"
status=0
"$index" "$tree" --transport pigeon 2>/dev/null || status=$?
[ "$status" -eq 2 ]

#!/usr/bin/env bash
# Builds and asks a small database over less memory than it needs, over each transport; --check has SQLite and the range verify all
# of it, after it was at home. Then: mistakes in the arguments are refused.
#
#   sqlite.sh PATH-OF-SQLITE PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
sqlite=$1 agent=$2

fail() { echo "$out"; echo "sqlite.sh: $1"; exit 1; }
expect() { grep -Eq -- "$1" <<<"$out" || fail "no line like: $1"; }

for transport in shm tcp; do
  out=$("$sqlite" --agent "$agent" --transport "$transport" --rows 5000 --queries 1500 --memory 32MiB --region 1MiB --cache 1MiB \
    --check 2>&1) || fail "the run over $transport fails"
  expect "^SQLite 3\.[0-9.]*, its heap and its pages in .* of far memory$"
  expect "^  queries  *1500   \([1-9][0-9]* of a book, [1-9][0-9]* of an author; [1-9][0-9]* changes, [1-9][0-9]* rolled back\): all right$"
  expect "^sums over the whole table in .*: right$"
  expect "^faults    [1-9][0-9]*: [1-9][0-9]* remote, .*; 0 failed$"
  expect "^  remote at the end  *[1-9][0-9.]* MiB   in [1-9][0-9]* regions of the agents$"
  expect "^check: SQLite says of its database: ok$"
  expect "^check: 5000 of 5000 rows read: all right$"
  expect "^verify: .*: no fault$"
done

status=0
out=$("$sqlite" --rows 0 2>&1) || status=$?
[ "$status" -eq 2 ] || fail "a table of 0 rows: $status"

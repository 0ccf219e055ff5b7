#!/usr/bin/env bash
# Runs the same operations on pages in containers of std:: and in farmem's, over little memory; --check compares the answers.
# Mistakes in the arguments are refused.
#
#   search.sh PATH-OF-SEARCH PATH-OF-FARMEM-AGENT
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"' ERR
search=$1 agent=$2

fail() { echo "$out"; echo "search.sh: $1"; exit 1; }
expect() { grep -Eq -- "$1" <<<"$out" || fail "no line like: $1"; }

for transport in shm tcp; do
  out=$("$search" --agent "$agent" --transport $transport --pages 1500 --operations 2000 --cache 1MiB --region 256KiB \
    --memory 32MiB --check) || fail "the run over $transport fails"
  expect "^std, all local .* [1-9][0-9]* pages and [1-9][0-9]* words at the end$"
  expect "^farmem .* [1-9][0-9]* pages and [1-9][0-9]* words at the end$"
  expect "^check: both searches gave the same answers$"
  expect "^verify: 0 frames here, [1-9][0-9]* objects on the agents: no fault$"
done

status=0
out=$("$search" --pages 0 2>&1) || status=$?
[ "$status" -eq 2 ] || fail "no pages: $status"

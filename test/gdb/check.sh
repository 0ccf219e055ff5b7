#!/usr/bin/env bash
# check.sh PROGRAM LIBRARY SCRIPT: what gdb shows of PROGRAM: while it runs, in a core dump that has the cache, and in one that
# has not. The printers are those in PROGRAM or a shared LIBRARY, then those and SCRIPT, then SCRIPT alone. Exits with 77, and
# says so, without gdb.
set -uo pipefail
command -v gdb >/dev/null || { echo "gdb is not installed"; exit 77; }
program=$1 library=$2 script=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

printed=(-ex 'up' -ex 'print p' -ex 'print *inner.cell_' -ex 'print remote' -ex 'print v' -ex 'down' -ex 'print pin'
  -ex 'print any' -ex 'print m' -ex 'print s'
  -ex 'print t' -ex 'print t.far' -ex 'print t.far_jobs' -ex 'print t.far_tree')
inside=(-iex "add-auto-load-safe-path $program" -iex "add-auto-load-safe-path $library") sourced=(-ex "source $script")
# look ARGUMENT...: gdb's output, with the printers of `printers`.
look() { gdb -q -batch -nx "${printers[@]}" -ex 'set print pretty off' "$@" 2>&1; }
expect() {
  grep -qE -- "$2" <<<"$1" || { echo "gdb did not show $3: $2"; status=1; }
}
# expect_objects OUTPUT WHERE
expect_objects() {
  local before=$status
  status=0
  expect "$1" 'fm::ptr slot 0x[0-9a-f]+, resident = \{object = \{value = 41, name = "outer name"' "$2"
  expect "$1" 'next = fm::ref slot 0x[0-9a-f]+, resident, 1 pins = \{object = \{value = 42, name = "inner name"' "$2"
  expect "$1" 'numbers = fm::vector of 5000 elements, slot 0x[0-9a-f]+ = \{0, 3, 6, 9' "$2"
  expect "$1" 'back = fm::weak slot 0x[0-9a-f]+, resident, 1 pins = \{object = \{value = 42' "$2"
  expect "$1" 'fm::ptr slot 0x[0-9a-f]+, remote$' "$2"
  expect "$1" '= fm::vector of 5000 elements, slot 0x[0-9a-f]+ = \{0, 3, 6, 9, 12' "$2"
  expect "$1" 'fm::read_pin = \{object = \{value = 42' "$2"
  expect "$1" '= .*fm::ptr null' "$2"
  expect "$1" '= .*fm::map of 2000 entries, slot 0x[0-9a-f]+ = \{\[1000\] = 1000, \[1001\] = 1001' "$2"
  expect "$1" '= .*fm::set of 0 entries, slot 0x[0-9a-f]+$' "$2"
  expect "$1" 'some = fm::optional = \{value = 51\}, none = fm::optional none' "$2"
  expect "$1" 'number = fm::variant 2 = \{value = 2\.5\}, link = fm::variant 1 = \{value = fm::ref slot 0x' "$2"
  expect "$1" 'sizes = fm::hash_map of 1 entries, slot 0x[0-9a-f]+ = \{\["a text"\] = 6\}' "$2"
  expect "$1" 'numbers = fm::hash_set of 1 entries, slot 0x[0-9a-f]+ = \{61\}' "$2"
  expect "$1" 'jobs = fm::queue of 3 elements, slot 0x[0-9a-f]+ = \{71, 72, 73\}' "$2"
  expect "$1" 'by_name = fm::map of 1 entries, slot 0x[0-9a-f]+ = \{\["the inner one"\] = fm::ref slot 0x' "$2"
  # Of what is remote, but for a page, a block and a leaf: these have entries, and the others say that they are remote.
  expect "$1" '^\$[0-9]+ = fm::hash_map of 600 entries.*\[slot 0x[0-9a-f]+\] = remote' "$2"
  expect "$1" '^\$[0-9]+ = fm::hash_map of 600 entries.*\[1\] = 8[,}]' "$2"
  expect "$1" '^\$[0-9]+ = fm::queue of 400 elements, slot 0x[0-9a-f]+ = \{200, 201, 202,.*slot 0x[0-9a-f]+, remote\}' "$2"
  expect "$1" '^\$[0-9]+ = fm::map of 600 entries.*\[slot 0x[0-9a-f]+\] = remote, .*\[500\] = 508, ' "$2"
  [ $status = 0 ] || printf '%s\n' "$1"
  [ $before = 0 ] || status=$before
}

printers=("${inside[@]}")
run=(-ex 'break stopped' -ex run -ex "gcore $folder/core" "${printed[@]}" -ex kill)
expect_objects "$(look "${run[@]}" --args "$program" with-cache)" "of the running program"
printers=("${inside[@]}" "${sourced[@]}")
# The first frame that gdb looks at may be one without types, such as of a thread that waits in the C library.
expect_objects "$(look -ex 'thread apply all -q up' "${printed[@]/#up/frame function main}" "$program" "$folder/core")" \
  "of a core dump with the cache"

printers=("${sourced[@]}")
expect "$(look "${run[@]}" "$program")" "/(${program##*/}|libfarmem[^/]*)\" auto-loading has been declined" \
  "that its printers must be allowed"
shown=$(look "${printed[@]}" "$program" "$folder/core")
expect "$shown" 'fm::ptr slot 0x[0-9a-f]+, not in this dump$' "of a core dump without the cache"
expect "$shown" '= fm::vector slot 0x[0-9a-f]+, not in this dump$' "of a core dump without the cache"
expect "$shown" '= .*fm::map slot 0x[0-9a-f]+, not in this dump$' "of a core dump without the cache"
expect "$shown" '= fm::queue slot 0x[0-9a-f]+, not in this dump$' "of a core dump without the cache"
expect "$shown" '= .*fm::ptr null' "of a core dump without the cache"
[ $status = 0 ] || printf '%s\n' "$shown"
exit $status

#!/usr/bin/env bash
# check.sh PROGRAM SCRIPT: what gdb shows of PROGRAM, with the printers of SCRIPT. Exits with 77, and says so, without gdb.
set -uo pipefail
command -v gdb >/dev/null || { echo "gdb is not installed"; exit 77; }
shown=$(gdb -q -batch -nx -ex "source $2" -ex 'set print pretty off' -ex 'break stopped' -ex run -ex 'up' \
  -ex 'print p' -ex 'print *inner.cell_' -ex 'print remote' -ex 'print v' -ex 'down' -ex 'print pin' -ex 'print any' -ex 'print m' \
  -ex 'print s' \
  -ex kill "$1" 2>&1)
status=0
expect() {
  grep -qE -- "$1" <<<"$shown" || { echo "gdb did not show: $1"; status=1; }
}
expect 'fm::ptr slot 0x[0-9a-f]+, resident = \{object = \{value = 41, name = "outer name"'
expect 'next = fm::ref slot 0x[0-9a-f]+, resident, 1 pins = \{object = \{value = 42, name = "inner name"'
expect 'numbers = fm::vector of 5000 elements, slot 0x[0-9a-f]+ = \{0, 3, 6, 9'
expect 'back = fm::weak slot 0x[0-9a-f]+, resident, 1 pins = \{object = \{value = 42'
expect 'fm::ptr slot 0x[0-9a-f]+, remote$'
expect '= fm::vector of 5000 elements, slot 0x[0-9a-f]+ = \{0, 3, 6, 9, 12'
expect 'fm::read_pin = \{object = \{value = 42'
expect '= .*fm::ptr null'
expect '= .*fm::map of 2000 entries, slot 0x[0-9a-f]+'
expect '= .*fm::set of 0 entries, slot 0x[0-9a-f]+'
[ $status = 0 ] || printf '%s\n' "$shown"
exit $status

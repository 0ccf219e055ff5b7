#!/usr/bin/env bash
# reference_self_test.sh ROOT WORK: shows that check_reference.py and check_doxygen.sh can fail. Changes one place at a time in
# a copy of the tree and expects the check to name it.
set -uo pipefail
root=$(cd "$1" && pwd) work=$2
here=$root/test/structure
status=0

complain() {
  echo "self-test: $1"
  status=1
}

fresh_copy() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/docs"
  cp -r "$root/include" "$root/src" "$root/agent" "$root/cmake" "$root/CMakeLists.txt" "$work/tree/"
  cp -r "$root/docs/reference" "$work/tree/docs/reference"
}

# file_with PATTERN: the file of the copy that has a line with PATTERN.
file_with() {
  grep -rlE -- "$1" "$work/tree/include" "$work/tree/src" "$work/tree/agent" | head -n 1
}

# expect WHAT MESSAGE COMMAND...: the command must fail and say MESSAGE.
expect() {
  local what=$1 message=$2 output
  shift 2
  output=$("$@" 2>&1) && complain "the check passed although $what"
  echo "$output" >"$work/said"
  grep -qF -- "$message" <<<"$output" || complain "although $what, the check did not say '$message', but: $(head -n 5 <<<"$output")"
}

# plant PATTERN LINE: in a fresh copy, puts LINE before the line of the code that matches PATTERN.
plant() {
  fresh_copy
  plant_also "$1" "$2"
}

# plant_also PATTERN LINE: the same in the copy as it is.
plant_also() {
  local file
  file=$(file_with "$1")
  if [ -z "$file" ]; then
    complain "no file has '$1'"
    return
  fi
  LINE=$2 awk -v pattern="$1" '!done && $0 ~ pattern { print ENVIRON["LINE"]; done = 1 } { print }' "$file" >"$file.new"
  mv "$file.new" "$file"
}

# edit PAGE SED: in a fresh copy, changes a page.
edit() {
  fresh_copy
  sed -i -E "$2" "$work/tree/docs/reference/$1"
  cmp -s "$work/tree/docs/reference/$1" "$root/docs/reference/$1" && complain "'$2' does not change $1"
}

reference() { "$here/check_reference.py" "$work/tree"; }

fresh_copy
reference >/dev/null || complain "check_reference.py fails on the tree as it is"

plant '^  ok = 0,' '  planted = 999,'
expect "an enumerator was added" "code 'planted = 999' is missing" reference
edit errors.md 's/^\| `stale` \| 21 /| `stale` | 22 /'
expect "a number was changed" "code 'stale = 22' does not exist" reference
plant '^  std::uint64_t cache = ' '  bool planted = false;'
expect "an option was added" "field of heap_options 'planted' is missing" reference
plant '^  fault_mode faults = ' '  std::function<void(int, int)> planted;'
expect "an option with a function was added" "field of paged_options 'planted' is missing" reference
plant '^struct channel_options ' 'struct planted_options { int a = 0; };'
expect "a struct of options was added" "no section 'planted_options'" reference
edit options.md '/^\| `collect_share` /d'
expect "an option's row was removed" "field of heap_options 'collect_share' is missing" reference
edit options.md 's/^\| `linger` /| `lingers` /'
expect "an option's row was renamed" "field of channel_options 'lingers' does not exist" reference
plant 'getenv\("FARMEM_SLOTS"\)' '  if (std::getenv("FARMEM_PLANTED")) return 1;'
expect "a variable is read" "variable 'FARMEM_PLANTED' is missing" reference
plant '^      \{"memory", "SIZE"' '      {"planted", "N", "no such thing", false, [](config&, text) {}},'
expect "a setting of the agent was added" "setting '--planted' is missing" reference
edit agent-cli.md '/^\| `--doctor` /d'
expect "a flag's row was removed" "flag '--doctor' is missing" reference
edit agent-cli.md 's/^\| `--spin` /| `--spins` /'
expect "a setting's row was renamed" "setting '--spins' does not exist" reference
plant '^  std::uint64_t misses = 0;' '  std::uint64_t planted = 0, planted_too = 0;'
expect "a counter was added" "field of heap_stats 'planted_too' is missing" reference
edit metrics.md 's/^\| `torn` /| `turned` /'
expect "a counter's row was renamed" "field of pool_stats 'turned' does not exist" reference
edit metrics.md '/^\| `trace_faults` /d'
expect "a key's row was removed" "key of the status 'trace_faults' is missing" reference
edit limits.md 's/`slot_limit` in/`slot_limits` in/'
expect "a limit's constant was renamed" "has no 'slot_limits'" reference
edit limits.md 's,`src/paged/ranges.cc`,`src/paged/planted.cc`,'
expect "a limit's file was renamed" "there is no src/paged/planted.cc" reference

# Doxygen: public names without a docstring, and a docstring with an error.
documentation() { "$here/check_doxygen.sh" "$work/tree" "$work/html"; }
said() { cat "$work/said"; return 1; }
if command -v doxygen >/dev/null; then
  plant '^struct channel_options ' 'struct planted { int a = 0; };'
  plant_also '^/// Options of one receive' '/// Names @ref something_that_is_not_there.'
  plant_also '^  accepted, ' '  planted,'
  expect "a field has no docstring" "of struct fm::planted is not documented" documentation
  expect "a docstring refers to nothing" "something_that_is_not_there" said
  expect "an enumerator has no docstring" "an enumerator above has no docstring" said
fi
exit $status

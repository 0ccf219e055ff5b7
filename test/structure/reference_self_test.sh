#!/usr/bin/env bash
# reference_self_test.sh ROOT WORK: shows that check_reference.py and check_doxygen.sh can fail. Plants mistakes in a copy of the
# tree, runs each check once, and expects it to fail and to name every mistake.
set -uo pipefail
root=$(cd "$1" && pwd) work=$2
here=$root/test/structure
status=0
expected=()

complain() {
  echo "self-test: $1"
  status=1
}

fresh_copy() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/docs"
  cp -r "$root/include" "$root/src" "$root/agent" "$root/cmake" "$root/CMakeLists.txt" "$work/tree/"
  cp -r "$root/docs/reference" "$work/tree/docs/reference"
  expected=()
}

# plant PATTERN LINE MESSAGE: puts LINE before the first line of the code that matches PATTERN; the check must say MESSAGE.
plant() {
  local file
  file=$(grep -rlE -- "$1" "$work/tree/include" "$work/tree/src" "$work/tree/agent" | head -n 1)
  if [ -z "$file" ]; then
    complain "no file has '$1'"
    return
  fi
  LINE=$2 awk -v pattern="$1" '!done && $0 ~ pattern { print ENVIRON["LINE"]; done = 1 } { print }' "$file" >"$file.new"
  mv "$file.new" "$file"
  expected+=("$3")
}

# edit PAGE SED MESSAGE: changes a page; the check must say MESSAGE.
edit() {
  local page=$work/tree/docs/reference/$1
  cp "$page" "$work/before"
  sed -i -E "$2" "$page"
  ! cmp -s "$page" "$work/before" || complain "'$2' does not change $1"
  expected+=("$3")
}

# expect_all COMMAND...: the command must fail and say each message that is expected.
expect_all() {
  local output message
  output=$("$@" 2>&1) && complain "$1 passed"
  for message in "${expected[@]}"; do
    grep -qF -- "$message" <<<"$output" || complain "$1 did not say '$message'"
  done
}

fresh_copy
"$here/check_reference.py" "$work/tree" >/dev/null || complain "check_reference.py fails on the tree as it is"

plant '^  ok = 0,' '  planted = 999,' "code 'planted = 999' is missing"
edit errors.md 's/^\| `stale` \| 21 /| `stale` | 22 /' "code 'stale = 22' does not exist"
plant '^  std::uint64_t cache = ' '  bool planted = false;' "field of heap_options 'planted' is missing"
plant '^  fault_mode faults = ' '  std::function<void(int, int)> planted;' "field of paged_options 'planted' is missing"
plant '^struct channel_options ' 'struct planted_options { int a = 0; };' "no section 'planted_options'"
edit options.md '/^\| `collect_share` /d' "field of heap_options 'collect_share' is missing"
edit options.md 's/^\| `linger` /| `lingers` /' "field of channel_options 'lingers' does not exist"
plant 'getenv[(]"FARMEM_SLOTS"[)]' '  if (std::getenv("FARMEM_PLANTED")) return 1;' "variable 'FARMEM_PLANTED' is missing"
plant '^      [{]"memory", "SIZE"' '      {"planted", "N", "no such thing", false, [](config&, text) {}},' "setting '--planted' is missing"
edit agent-cli.md '/^\| `--doctor` /d' "flag '--doctor' is missing"
edit agent-cli.md 's/^\| `--spin` /| `--spins` /' "setting '--spins' does not exist"
plant '^  std::uint64_t misses = 0;' '  std::uint64_t planted = 0, planted_too = 0;' "field of heap_stats 'planted_too' is missing"
edit metrics.md 's/^\| `torn` /| `turned` /' "field of pool_stats 'turned' does not exist"
edit metrics.md '/^\| `trace_faults` /d' "key of the status 'trace_faults' is missing"
edit limits.md 's/`slot_limit` in/`slot_limits` in/' "has no 'slot_limits'"
edit limits.md 's,`src/paged/ranges.cc`,`src/paged/planted.cc`,' "there is no src/paged/planted.cc"
expect_all "$here/check_reference.py" "$work/tree"

if command -v doxygen >/dev/null; then
  fresh_copy
  plant '^struct channel_options ' 'struct planted { int a = 0; };' "of struct fm::planted is not documented"
  plant '^/// Options of one receive' '/// Names @ref something_that_is_not_there.' "something_that_is_not_there"
  plant '^  accepted, ' '  planted,' "an enumerator above has no docstring"
  expect_all "$here/check_doxygen.sh" "$work/tree" "$work/html"
fi
exit $status

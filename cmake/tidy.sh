#!/usr/bin/env bash
# cmake/tidy.sh BUILD [FILE...]: runs clang-tidy with the settings of .clang-tidy over the given files, or over all that
# BUILD/compile_commands.json compiles; one process a core. Prints the findings alone, and fails if there are any.
#
# The preset `tidy` puts eight sources together into one (CMAKE_UNITY_BUILD): most of the time goes into headers, and they
# are then read once. A source that lacks an #include is not noticed there, and names of others are seen, so clang
# also reads each by itself, for that and for names that hide others.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${1:?usage: cmake/tidy.sh BUILD [FILE...]}
shift
[ -f "$build/compile_commands.json" ] || { echo "$build has no compile_commands.json; configure it first" >&2; exit 2; }
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "clang-tidy is not installed" >&2; exit 2; }
clang=$(command -v clang++-14 || command -v clang++) || { echo "clang is not installed" >&2; exit 2; }

# commands COMPILER: for each source that is part of another, the command that reads it by itself; each ends with a NUL.
commands() {
  python3 - "$build/compile_commands.json" "$1" <<'PYTHON'
import json, re, shlex, sys

for entry in json.load(open(sys.argv[1])):
    if "/Unity/unity_" not in entry["file"]:
        continue
    arguments = shlex.split(entry["command"])[1:]
    del arguments[arguments.index("-o"):]  # -o OBJECT -c SOURCE end it
    for source in re.findall(r'#include "(.*\.cc)"', open(entry["file"]).read()):
        print(shlex.join([sys.argv[2], *arguments, "-Wno-everything", "-Werror=shadow", "-fsyntax-only", source]), end="\0")
PYTHON
}

status=0 options=()
if [ $# -eq 0 ]; then
  # That a unity includes sources is no finding, nor is a local that has the name of another source's variable.
  options=(--checks=-bugprone-suspicious-include --extra-arg=-Wno-shadow)
  mapfile -t files < <(python3 -c 'import json, sys; [print(e["file"]) for e in json.load(open(sys.argv[1]))]' "$build/compile_commands.json")
  alone=$(commands "$clang" | tr -cd '\0' | wc -c)
  [ "$alone" -gt 0 ] || { echo "$build was configured without CMAKE_UNITY_BUILD" >&2; exit 2; }
  commands "$clang" | xargs -0 -n 1 -P "$(nproc)" bash -c || status=1
else
  files=("$@")
fi
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$tidy" -p "$build" --quiet "${options[@]}" 2> >(grep -v 'warnings generated' >&2) || status=1
[ $status -eq 0 ] && echo "clang-tidy: ${#files[@]} files, no findings${alone:+; $alone sources by themselves}"
exit $status

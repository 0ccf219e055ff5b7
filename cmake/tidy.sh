#!/usr/bin/env bash
# cmake/tidy.sh BUILD [FILE...]: runs clang-tidy with the settings of .clang-tidy over the given files, or over all of
# src/ and agent/, as BUILD/compile_commands.json compiles them; one process a core. Prints the findings alone, and
# fails if there are any.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${1:?usage: cmake/tidy.sh BUILD [FILE...]}
shift
[ -f "$build/compile_commands.json" ] || { echo "$build has no compile_commands.json; configure it first" >&2; exit 2; }
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "clang-tidy is not installed" >&2; exit 2; }

if [ $# -eq 0 ]; then
  # The largest first, so that no processor is left alone with one at the end.
  mapfile -t files < <(find src agent -name '*.cc' -printf '%s %p\n' 2>/dev/null | LC_ALL=C sort -k1,1nr -k2 | cut -d' ' -f2)
else
  files=("$@")
fi
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$tidy" -p "$build" --quiet 2> >(grep -v 'warnings generated' >&2)
status=$?
[ $status -eq 0 ] && echo "clang-tidy: ${#files[@]} files, no findings"
exit $status

#!/usr/bin/env bash
# cmake/tidy.sh BUILD [FILE...]: runs clang-tidy with the settings of .clang-tidy over the given files, or over all that
# BUILD/compile_commands.json compiles of src/ and agent/; one process a core. The tidy preset has them in unity sources, because
# a file alone takes as long as eight do together: nearly all of it is the headers. Prints the findings alone, and fails if there
# are any.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${1:?usage: cmake/tidy.sh BUILD [FILE...]}
shift
[ -f "$build/compile_commands.json" ] || { echo "$build has no compile_commands.json; configure it first" >&2; exit 2; }
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "clang-tidy is not installed" >&2; exit 2; }

if [ $# -eq 0 ]; then
  # The largest first, so that no processor is left alone with one at the end.
  mapfile -t files < <(sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$build/compile_commands.json" |
    while read -r file; do
      sources=$(sed -n 's/^#include "\(.*\.cc\)"$/\1/p' "$file")
      echo "$(cat ${sources:-"$file"} | wc -c) $file"
    done | LC_ALL=C sort -k1,1nr -k2 | cut -d' ' -f2)
  # All that is there must be in it, or it would be left out without a word.
  all=$(find src agent -name '*.cc' | wc -l)
  seen=$(for file in "${files[@]}"; do sed -n 's/^#include "\(.*\.cc\)"$/\1/p' "$file" | grep . || echo "$file"; done | sort -u | wc -l)
  [ "$all" -eq "$seen" ] || { echo "src/ and agent/ have $all sources, and $build compiles $seen" >&2; exit 2; }
else
  files=("$@")
fi
# A unity source includes sources, which a check of clang-tidy is about; so it is off, and this looks in its stead.
if grep -rnE '^ *#include +["<].*\.cc[">]' src agent include; then
  echo "a source is included" >&2
  exit 1
fi
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$tidy" -p "$build" --quiet --checks=-bugprone-suspicious-include \
  2> >(grep -v 'warnings generated' >&2)
status=$?
[ $status -eq 0 ] && echo "clang-tidy: ${seen:-${#files[@]}} files, no findings"
exit $status

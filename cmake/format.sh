#!/usr/bin/env bash
# cmake/format.sh [--check] [FILE...]: formats the given files, or every C++ file of the tree, by .clang-format.
# With --check nothing is changed, and files that are not formatted are named and make it fail. Always clang-format
# 14, because other versions disagree with it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
format=$(command -v clang-format-14) || { echo "clang-format-14 is not installed" >&2; exit 2; }
arguments=(-i)
if [ "${1:-}" = --check ]; then
  arguments=(--dry-run -Werror --ferror-limit=3)
  shift
fi
if [ $# -eq 0 ]; then
  mapfile -t files < <(find include src agent test bench examples -name '*.h' -o -name '*.cc' 2>/dev/null | LC_ALL=C sort)
else
  files=("$@")
fi
[ ${#files[@]} -gt 0 ] || { echo "no files" >&2; exit 2; }
printf '%s\0' "${files[@]}" | xargs -0 -n 8 -P "$(nproc)" "$format" "${arguments[@]}"

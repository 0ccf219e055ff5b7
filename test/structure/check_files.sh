#!/usr/bin/env bash
# check_files.sh ROOT: checks that every source file begins by saying what lives there, that headers are guarded by #pragma
# once, and that no file has grown past 500 lines. Prints every violation; the exit status says whether there was one.
set -uo pipefail
cd "$1" || exit 2

status=0
violation() {
  echo "$1"
  status=1
}

while IFS= read -r file; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 500 ] || violation "$file: $lines lines; what passes 500 wants to be two files"
  case $file in
    *.h | include/*.cc | src/*.cc | agent/*.cc)
      IFS= read -r first <"$file"
      [[ $first == //* ]] || violation "$file:1: does not begin with a comment that says what lives here"
      ;;&
    *.h)
      grep -q '^#pragma once$' "$file" || violation "$file: no #pragma once"
      ;;
  esac
done < <(find include src agent test bench examples cmake -type f \
  \( -name '*.h' -o -name '*.cc' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt -o -name run \) 2>/dev/null | LC_ALL=C sort)
exit $status

#!/usr/bin/env bash
# check_internals.sh ROOT [LIST]: checks docs/internals and the glossary in the tree at ROOT. Every picture must be made of its
# source as it is now, and every file that the pages name in backquotes must exist: a path from the root, or the end of one.
# LIST has the tree's files, one a line; without it they are found. Prints every violation.
set -uo pipefail
cd "$1" || exit 2

status=0
docs/internals/build-pictures --check || status=1

# All suffixes of all paths, so that `word.h` and `test/pool/stress.h` are both known.
known=$(
  if [ $# -gt 1 ]; then cat "$2"; else find . -name build -prune -o -name .git -prune -o -type f -print | sed 's|^\./||'; fi |
    awk -F/ '{ for (i = NF; i >= 1; --i) { s = (i == NF ? $NF : $i "/" s); if (!(s in seen)) { seen[s]; print s } } }'
)
while IFS=: read -r page line name; do
  grep -qxF -- "$name" <<<"$known" && continue
  echo "$page:$line: there is no $name"
  status=1
done < <(
  for page in docs/internals/*.md docs/reference/glossary.md; do
    awk -v page="$page" '{
      rest = $0
      while (match(rest, /`[A-Za-z0-9_.\/-]+\.(h|cc|md|sh|awk|pml|dot|cmake|txt)`/)) {
        print page ":" NR ":" substr(rest, RSTART + 1, RLENGTH - 2)
        rest = substr(rest, RSTART + RLENGTH)
      }
    }' "$page"
  done
)

# Folders that the pages name: `src/cache/`, and those in the first column of the layer table.
while IFS=: read -r page line name; do
  grep -q -m 1 -F -- "$name/" <<<"$known" && continue
  grep -qxF -- "$name" <<<"$known" && continue  # a script
  echo "$page:$line: there is no folder $name"
  status=1
done < <(
  for page in docs/internals/*.md; do
    awk -v page="$page" '{
      rest = $0
      while (match(rest, /`(src|agent|test|include|docs|bench|examples)(\/[A-Za-z0-9_]+)+\/?`/)) {
        name = substr(rest, RSTART + 1, RLENGTH - 2)
        sub(/\/$/, "", name)
        print page ":" NR ":" name
        rest = substr(rest, RSTART + RLENGTH)
      }
    }
    /<!-- layers -->/ { table = 1 }
    /<!-- \/layers -->/ { table = 0 }
    table && /^\| (src|agent|include)/ { split($0, cell, /[ |]+/); print page ":" NR ":" cell[2] }' "$page"
  done
)
exit $status

#!/usr/bin/env bash
# check.sh verifies|fails MODEL DIRECTORY [-DMACRO...]: has spin search every interleaving of MODEL, in DIRECTORY, which is
# made anew. `verifies`: the search must be complete and find nothing. `fails`: it must find a violated assertion; the macros
# put a known mistake back then, so that a model that stopped seeing anything is found out. Spin and the C compiler are $SPIN
# and $CC. A search that went wrong leaves its files in DIRECTORY, with the interleaving that led there.
#
# A search reads nothing but the model, the macros, this script and the two programs. If it ended as expected before, with all of them
# as they are now, it is not repeated, and "cached" is printed. The names of such searches are the files in
# FARMEM_MODEL_CACHE ($XDG_CACHE_HOME/farmem/models, or ~/.cache/farmem/models); FARMEM_MODEL_CACHE=off repeats every search.
set -uo pipefail

expected=$1
model=$2
directory=$3
shift 3

refuse() {
  echo "$(basename "$model") $*" >&2
  exit 1
}

cache=${FARMEM_MODEL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/farmem/models}
search=$( (cat "$model" "$0" && printf '%s\n' "$expected" "$@" && "${SPIN:-spin}" -V && "${CC:-cc}" --version) 2>&1 | sha256sum)
search=${search%% *}
if [ "$cache" != off ] && [ -e "$cache/$search" ]; then
  echo "cached: $(basename "$model") $* ${expected/fails/fails as it should}"
  exit 0
fi

rm -rf "$directory"
mkdir -p "$directory"
cd "$directory" || exit 1

if ! "${SPIN:-spin}" -a "$@" "$model" >spin.log 2>&1 || [ ! -f pan.c ]; then
  cat spin.log
  refuse "is not accepted by spin"
fi
optimised=-O2
[ "$expected" = verifies ] || optimised=-O1  # a mistake is found soon: compiling takes longer than searching
"${CC:-cc}" $optimised -w -DSAFETY -DCOLLAPSE -DMEMLIM=1400 pan.c -o pan || refuse "cannot be compiled"
./pan -n -m500000 >pan.log 2>&1
grep -E 'states, stored|memory usage|elapsed|^pan' pan.log

errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.log)
case $expected in
  verifies)
    if [ "$errors" != 0 ]; then
      "${SPIN:-spin}" -k ./*.trail -p -g "$@" "$model" 2>&1 | tail -n 60
      cat pan.log
      refuse "fails; the end of the interleaving is above, the rest of it in $directory"
    fi
    if grep -qE 'search depth too small|MEMLIM bound|Search not completed|out of memory|interrupted' pan.log; then
      cat pan.log
      refuse "was not searched completely"
    fi
    ;;
  fails)
    if [ "$errors" != 1 ] || ! grep -q '^pan:1: assertion violated' pan.log; then
      cat pan.log
      refuse "does not see the mistake: $*"
    fi
    ;;
  *) refuse "is expected to what? $expected" ;;
esac
rm -f pan pan.*
if [ "$cache" != off ]; then
  (mkdir -p "$cache" && printf '%s %s\n' "$(basename "$model")" "$*" >"$cache/$search") 2>/dev/null || true
fi

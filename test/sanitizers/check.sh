#!/usr/bin/env bash
# check.sh KIND PROGRAM: runs the program under a sanitizer. Without a mistake, and with paged ranges, there is no report.
# With each mistake there is the one that docs/how-to/sanitizers.md promises. KIND: address (program and library), program
# (the program alone), thread, valgrind. Exits with 77, and says so, without valgrind.
set -uo pipefail
kind=$1 program=$2
command=("$program")
reports='ERROR: |WARNING: ThreadSanitizer|runtime error|not so: '
status=0

if [ "$kind" = valgrind ]; then
  command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
  export FARMEM_SLOTS=1048576
  command=(valgrind -q --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=9 "$program")
  reports='^==[0-9]+== |not so: '
fi

# run MISTAKE: sets `out` and `code`.
run() {
  out=$("${command[@]}" ${1:+"$1"} 2>&1)
  code=$?
}
fails() {
  printf '%s\ncheck.sh: %s (exit code %s)\n' "$out" "$1" "$code"
  status=1
}
clean() {
  run "$1"
  [ $code -eq 0 ] && ! grep -qE -- "$reports" <<<"$out" || fails "a report without a mistake: ${1:-none}"
}
caught() {
  run "$1"
  [ $code -ne 0 ] && grep -qE -- "$2" <<<"$out" || fails "no report of '$1' like: $2"
}

clean ""
case $kind in
  address | program)
    clean paged
    clean sigbus
    caught overflow 'AddressSanitizer: heap-buffer-overflow'
    caught leak 'LeakSanitizer: detected memory leaks'
    UBSAN_OPTIONS=halt_on_error=1 caught shift 'runtime error: shift exponent 40 is too large'
    ;;&
  address) caught scope 'AddressSanitizer: use-after-poison' ;;
  thread)
    clean paged
    TSAN_OPTIONS=report_signal_unsafe=0 clean sigbus
    caught race 'ThreadSanitizer: data race'
    caught 'race in object' 'ThreadSanitizer: data race'
    ;;
  valgrind)
    caught overflow 'Invalid write of size 4'
    caught leak '40 bytes in 1 blocks are definitely lost'
    run paged
    grep -q '^unsupported: userfaultfd' <<<"$out" || fails "paged ranges can be opened, or fail otherwise"
    ;;
esac
exit $status

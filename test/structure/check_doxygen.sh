#!/usr/bin/env bash
# check_doxygen.sh ROOT OUT: the API reference can be made, and every public name has a docstring (cmake/reference.sh). Also
# checks what Doxygen 1.9.4 does not: that each enumerator of the public headers has one. Exits with 77 if doxygen is missing.
set -uo pipefail
root=$1 out=$2
"$root/cmake/reference.sh" "$root" "$out"
status=$?
[ $status -ne 77 ] || exit 77

for page in index.html namespacefm.html classfm_1_1heap.html; do
  [ -s "$out/$page" ] || { echo "Doxygen has not made $page"; status=1; }
done
# In the line of an enum, an enumerator with a docstring is a link, and one without is bold text.
if grep -oHE '(\{|^,) <b>\w+</b>' "$out"/*.html; then
  echo "an enumerator above has no docstring"
  status=1
fi
exit $status

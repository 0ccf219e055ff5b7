#!/usr/bin/env bash
# reference.sh ROOT OUT: makes the API reference of the tree ROOT with Doxygen, as HTML in OUT (OUT/index.html). Fails, naming
# the place, if a public name has no docstring or a docstring has an error. Exits with 77 if doxygen is missing. Called by the
# CMake target `reference` and by the test structure:doxygen.
set -euo pipefail
root=$(cd "$1" && pwd)
out=$2

if ! command -v doxygen >/dev/null; then
  echo "the API reference was not made: doxygen is missing (apt-get install doxygen graphviz)"
  exit 77
fi
have_dot=NO
command -v dot >/dev/null && have_dot=YES
version=$(sed -nE 's/^project\(farmem VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt")

rm -rf "$out"
mkdir -p "$out"
sed -e "s|@PROJECT_SOURCE_DIR@|$root|g" -e "s|@PROJECT_VERSION@|$version|g" \
  -e "s|@FARMEM_REFERENCE_DIR@|$out|g" -e "s|@FARMEM_HAVE_DOT@|$have_dot|g" "$root/docs/reference/Doxyfile.in" >"$out/Doxyfile"
doxygen "$out/Doxyfile"

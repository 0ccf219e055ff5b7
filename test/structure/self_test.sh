#!/usr/bin/env bash
# self_test.sh ROOT WORK: shows that the checks of this folder can fail. Plants one violation at a time in a copy of the
# tree and expects the check to name the file that it was planted in.
set -uo pipefail
root=$1 work=$2
here=$root/test/structure
status=0

complain() {
  echo "self-test: $1"
  status=1
}

fresh_copy() {
  local folder
  rm -rf "$work/tree"
  mkdir -p "$work/tree"
  for folder in include src agent; do
    [ ! -d "$root/$folder" ] || cp -r "$root/$folder" "$work/tree/$folder"
  done
  mkdir -p "$work/tree/docs/internals"
  cp "$root/docs/internals/overview.md" "$work/tree/docs/internals"
}

# plant FILE LINE...: appends lines to a file of a fresh copy; a file that is new gets a head that passes.
plant() {
  local file=$1
  shift
  fresh_copy
  mkdir -p "$(dirname "$work/tree/$file")"
  [ -f "$work/tree/$file" ] || printf '// Planted.\n#pragma once\n' >"$work/tree/$file"
  printf '%s\n' "$@" >>"$work/tree/$file"
}

# expect CHECK FILE PATTERN: the check must fail, naming FILE, with a message that has PATTERN in it.
expect() {
  local output
  output=$("$here/$1" "$work/tree" 2>&1) && complain "$1 passed although $2 was made to violate it: $3"
  grep -F "$2" <<<"$output" | grep -q -- "$3" || complain "$1 did not say '$3' of $2, but: $output"
}

fresh_copy
"$here/check_layers.py" "$work/tree" >/dev/null || complain "check_layers.py fails on the tree as it is"
"$here/check_files.py" "$work/tree" >/dev/null || complain "check_files.py fails on the tree as it is"

plant src/base/planted.cc '  #  include "os/os.h"'
expect check_layers.py src/base/planted.cc 'src/os is not in its row'
plant src/cache/planted.cc '#include "../collector/collector.h"'
expect check_layers.py src/cache/planted.cc 'src/collector is not in its row'
plant src/remote/planted.h '#include "agent/heaps/heap.h"'
expect check_layers.py src/remote/planted.h 'agent/heaps is not in its row'
plant agent/heaps/planted.cc '#include "remote/agent_session.h"'
expect check_layers.py agent/heaps/planted.cc 'src/remote is not in its row'
plant agent/service/planted.cc '#include <farmem/heap/heap.h>'
expect check_layers.py agent/service/planted.cc 'include/farmem is not in its row'
plant src/fabric/server/planted.cc '#include "fabric/client/session.h"'
expect check_layers.py src/fabric/server/planted.cc 'src/fabric/client is not in its row'
plant include/farmem/planted.h '#include "../../src/os/memory.h"'
expect check_layers.py include/farmem/planted.h 'the private'
plant include/farmem/detail/planted.h '#include <spdlog/spdlog.h>'
expect check_layers.py include/farmem/detail/planted.h 'users need not have'
plant include/farmem/elsewhere/planted.h ''
expect check_layers.py include/farmem/elsewhere/planted.h 'an installed header lies in'
plant include/farmem/detail/elsewhere/planted.h ''
expect check_layers.py include/farmem/detail/elsewhere/planted.h 'an installed header lies in'
plant include/farmem/detail/tree/planted.h '#include "../../../../src/os/memory.h"'
expect check_layers.py include/farmem/detail/tree/planted.h 'the private'
plant src/elsewhere/planted.h ''
expect check_layers.py src/elsewhere/planted.h 'has no row'
plant src/os/planted.cc '#include "os/no_such_header.h"'
expect check_layers.py src/os/planted.cc 'does not exist'
plant include/farmem/base/units.h '#include <farmem/base/error.h>'
printf '#include <farmem/base/units.h>\n' >>"$work/tree/include/farmem/base/error.h"
expect check_layers.py include/farmem/ 'includes in a circle'
fresh_copy
sed -i 's/^| src\/table | \(.*\) |$/| src\/table | \1, src\/heap |/' "$work/tree/docs/internals/overview.md"
expect check_layers.py docs/internals/overview.md 'arrows in a circle'
fresh_copy
sed -i 's/^| src\/pool | \(.*\) |$/| src\/pool | \1, src\/table |/' "$work/tree/docs/internals/overview.md"
expect check_layers.py docs/internals/overview.md 'src/pool may include src/table, and does not'

plant src/os/planted.h ''
sed -i 1d "$work/tree/src/os/planted.h"
expect check_files.py src/os/planted.h 'does not begin with a comment'
plant src/os/planted.cc ''
sed -i 1d "$work/tree/src/os/planted.cc"
expect check_files.py src/os/planted.cc 'does not begin with a comment'
plant src/os/planted.h ''
sed -i 2d "$work/tree/src/os/planted.h"
expect check_files.py src/os/planted.h 'no #pragma once'
plant src/os/planted.cc "$(for _ in {1..500}; do echo '// line'; done)"
expect check_files.py src/os/planted.cc 'wants to be two'

# Documents of the insides: a file that is not there, a folder that is not there, a picture of another source.
documents() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/docs/internals" "$work/tree/docs/reference"
  cp "$root/docs/internals/build-pictures" "$root"/docs/internals/overview.{dot,svg} "$work/tree/docs/internals/"
  printf 'See `docs/internals/page.md`.\n' >"$work/tree/docs/internals/page.md"
  printf 'Nothing.\n' >"$work/tree/docs/reference/glossary.md"
}
documents
"$here/check_internals.py" "$work/tree" >/dev/null || complain "check_internals.py fails where nothing is wrong"
documents
echo 'See `nowhere/planted.h`.' >>"$work/tree/docs/internals/page.md"
expect check_internals.py docs/internals/page.md:2 'there is no nowhere/planted.h'
documents
echo 'See `src/nowhere/`.' >>"$work/tree/docs/internals/page.md"
expect check_internals.py docs/internals/page.md:2 'there is no folder src/nowhere'
documents
echo '// Another source.' >>"$work/tree/docs/internals/overview.dot"
expect check_internals.py overview.svg 'is not made of'

# The extractor: what it takes from the sample, and what it refuses.
extract() { awk -v dir="$work/code" -f "$here/extract_code.awk" "$1"; }
rm -rf "$work/code"
mkdir -p "$work/code"
[ "$(extract "$here/sample.md" | tr '\n' ' ')" = "sample_body sample_program " ] || complain "extract_code.awk misread sample.md"
grep -q '^int main() {$' "$work/code/sample_body.cc" || complain "a block without main was not wrapped"
[ "$(grep -c 'int main' "$work/code/sample_program.cc")" -eq 1 ] || complain "a block with main was wrapped"
refuse() {
  printf '%b' "$2" >"$work/bad.md"
  extract "$work/bad.md" >/dev/null 2>&1 && complain "extract_code.awk accepted $1"
}
refuse "a block that does not end" '<!-- compile: a -->\n```cpp\nint x;\n'
refuse "a marker without a block" '<!-- compile: a -->\n\ntext\n'
refuse "a marker at the end" '<!-- compile: a -->\n'
refuse "a block of another language" '<!-- compile: a -->\n```sh\nls\n```\n'
refuse "a name twice" '<!-- compile: a -->\n```cpp\n```\n<!-- compile: a -->\n```cpp\n```\n'
refuse "a name that is a path" '<!-- compile: ../a -->\n```cpp\n```\n'

# Links: a few pages with all forms that resolve, and one fault at a time beside them.
pages=$work/pages
rm -rf "$pages"
mkdir -p "$pages/docs/how-to"
cat >"$pages/README.md" <<'END'
# Top
[a page](docs/how-to/deploy.md), [a section](docs/how-to/deploy.md#an-agent--two), [here](#top), [a folder](docs/)
and [one of two](docs/how-to/deploy.md#same-1); [elsewhere](https://example.org/nothing) and ![a plot](plot.png)
[by name]: docs/how-to/deploy.md "a title"
```md
[not looked at](nowhere.md)
```
`[nor this](nowhere.md)`, <a href="docs/how-to/deploy.md#by-hand">by hand</a>
END
cat >"$pages/docs/how-to/deploy.md" <<'END'
# An agent — `two`
## Same
## Same
<a id="by-hand"></a> [up](../../README.md#top)
END
: >"$pages/plot.png"
"$here/check_links.sh" "$pages" >/dev/null || complain "check_links.sh fails on pages whose links resolve"
astray() {
  printf '%s\n' "$2" >"$pages/planted.md"
  output=$("$here/check_links.sh" "$pages" 2>&1) && complain "check_links.sh accepted $1"
  grep -q "^planted.md:[0-9]*: .*$3" <<<"$output" || complain "check_links.sh did not say '$3' of $1, but: $output"
}
astray "a page that is not there" '[x](docs/nothing.md)' 'does not exist'
astray "a page that is not there, by name" '[x]: docs/nothing.md' 'does not exist'
astray "a page that is not there, in HTML" '<img src="nothing.png" alt="x">' 'does not exist'
astray "an anchor that is not there" '[x](docs/how-to/deploy.md#nothing)' 'has no heading'
astray "an anchor of its own that is not there" '[x](#nothing)' 'has no heading'
astray "a repetition that is not there" '[x](docs/how-to/deploy.md#same-2)' 'has no heading'
astray "an anchor in an image" '[x](plot.png#nothing)' 'only pages have anchors'
astray "a way out of the tree" '[x](docs/../../x.md)' 'out of the tree'
astray "an absolute path" '[x](/README.md)' 'absolute path'
astray "a link to nothing" '[x]()' 'to nothing'
astray "an image without words" '![](plot.png)' 'alternative text'

exit $status

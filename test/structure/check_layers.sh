#!/usr/bin/env bash
# check_layers.sh ROOT: checks, in the tree at ROOT, that a layer includes only its own headers and the umbrella headers
# of lower layers. Prints every violation as file:line: reason; the exit status says whether there was one.
#
#   include/farmem/LAYER.h         the umbrella header of LAYER: its own headers and lower umbrellas
#   include/farmem/LAYER/*.h       headers of LAYER: each other and lower umbrellas
#   src/LAYER/*                    the code of LAYER: its own umbrella and headers, private ones too, and lower umbrellas
#   agent/*                        up to `store`, so that an agent cannot name a heap
#   include/farmem/farmem.h        everything, for users
set -uo pipefail
cd "$1" || exit 2

# From the lowest to the highest; layers on one line may not include each other.
layer_order='
base
os
type
table
fabric
store
cache
barrier
gc
heap
handles
containers channel pool paged
'

files=$(find include/farmem src agent -type f \( -name '*.h' -o -name '*.cc' \) 2>/dev/null | LC_ALL=C sort)
[ -n "$files" ] || { echo "no sources under $1"; exit 2; }

# shellcheck disable=SC2086
awk -v order="$(tr '\n' '|' <<<"$layer_order")" '
  function violation(reason) { printf "%s:%d: %s\n", FILENAME, FNR, reason; bad = 1 }
  function below(a, b) { return rank[a] < rank[b] }

  # The path that a quoted include means, relative to the root; empty if it climbs out of the tree.
  function resolve(dir, path,   parts, n, i, out, depth, kept) {
    n = split(dir "/" path, parts, "/")
    depth = 0
    for (i = 1; i <= n; ++i) {
      if (parts[i] == "." || parts[i] == "") continue
      if (parts[i] == "..") { if (--depth < 0) return ""; continue }
      kept[++depth] = parts[i]
    }
    out = ""
    for (i = 1; i <= depth; ++i) out = out (i > 1 ? "/" : "") kept[i]
    return out
  }

  # The layer that a file belongs to; "agent", "all" for farmem.h, or empty.
  function layer_of(path,   parts, n, name) {
    n = split(path, parts, "/")
    if (parts[1] == "agent") return "agent"
    if (parts[1] == "src") return n >= 3 ? parts[2] : ""
    if (parts[1] != "include" || parts[2] != "farmem") return ""
    if (n >= 4) return parts[3]
    name = parts[3]
    sub(/\.h$/, "", name)
    return name == "farmem" ? "all" : name
  }

  BEGIN {
    lines = split(order, line, "|")
    for (i = 1; i <= lines; ++i) {
      n = split(line[i], names, " ")
      for (k = 1; k <= n; ++k) rank[names[k]] = i
    }
    rank["agent"] = rank["store"] + 0.5
    rank["all"] = lines + 1
  }

  FNR == 1 {
    own = layer_of(FILENAME)
    is_public = FILENAME ~ /^include\//
    is_umbrella = FILENAME ~ /^include\/farmem\/[^\/]*\.h$/
    if (!(own in rank)) violation("lies in no layer; the layers are listed in check_layers.sh")
    else if (is_public && !is_umbrella && !seen_layer[own]++) {
      umbrella = "include/farmem/" own ".h"
      if ((getline ignored < umbrella) < 0) violation("layer " own " has no umbrella header " umbrella)
      close(umbrella)
    }
  }

  (own in rank) && /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    target = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", target)
    quoted = substr(target, 1, 1) == "\""
    target = substr(target, 2)
    sub(/[>"].*$/, "", target)
    if (target ~ /^farmem\//) {
      path = "include/" target
    } else if (quoted) {
      dir = FILENAME
      sub(/\/[^\/]*$/, "", dir)
      path = resolve(dir, target)
    } else if (target ~ /^(src|agent|include)\//) {
      path = target
    } else {
      if (is_public && target ~ /^(fmt|spdlog)\//) violation("a public header includes <" target ">, which users need not have")
      next
    }

    other = layer_of(path)
    if (!(other in rank)) { violation("includes " target ", which lies in no layer"); next }
    if (path ~ /^include\/farmem\/[^\/]*\.h$/) {
      if (other == own) {
        if (is_public) violation("a public header includes its own umbrella <" target ">")
      } else if (!below(other, own)) {
        violation("layer " own " includes <" target "> of layer " other ", which is not below it")
      }
    } else if (other != own) {
      if (below(other, own)) violation("layer " own " includes " target " past the umbrella <farmem/" other ".h>")
      else violation("layer " own " includes " target " of layer " other ", which is not below it")
    } else if (is_public && path !~ /^include\//) {
      violation("a public header includes the private " target)
    }
  }

  END { exit bad }
' $files

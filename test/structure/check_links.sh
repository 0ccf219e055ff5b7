#!/usr/bin/env bash
# check_links.sh ROOT: every relative link in a markdown file of the tree leads to a file or folder of the tree, and every
# anchor to a heading. Looks at links and images in brackets, reference definitions, and href and src attributes; not at
# code blocks, not at code spans, and not at addresses with a scheme, which would need a network.
#
# Prints FILE:LINE: REASON for each one that does not resolve, and exits with 1 if there are any.
set -euo pipefail
cd "$1"

# All that a link may lead to. Build trees are not part of the tree.
find . \( -path './build*' -o -path './.git' \) -prune -o -print | sed 's|^\./||' |
  LC_ALL=C awk '
# GitHub makes an anchor of a heading: lower case, punctuation dropped, a dash for each space, and -1, -2 for repetitions.
function anchor_of(heading) {
  heading = plain(heading)
  gsub(/`|\*/, "", heading)
  gsub(/\xe2\x80[\x90-\xbf]|\xe2\x86[\x80-\xbf]|\xc2[\xa0-\xbf]/, "", heading)
  heading = tolower(heading)
  gsub(/[^a-z0-9_ \x80-\xff-]/, "", heading)
  gsub(/ /, "-", heading)
  return heading
}

# A heading without its links: [text](target) is read as text.
function plain(text) {
  while (match(text, /\]\([^)]*\)/)) text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
  gsub(/\[|\]/, "", text)
  return text
}

function read_anchors(page,    line, fenced, heading, name) {
  fenced = 0
  while ((getline line < page) > 0) {
    if (line ~ /^ *(```|~~~)/) fenced = !fenced
    if (fenced) continue
    if (line ~ /^#+ /) {
      heading = line
      sub(/^#+ +/, "", heading)
      sub(/ +#* *$/, "", heading)
      name = anchor_of(heading)
      if ((page, name) in seen) name = name "-" seen[page, name]++
      else seen[page, name] = 1
      anchors[page, name] = 1
    }
    while (match(line, /(id|name)="[^"]*"/)) {
      name = substr(line, RSTART, RLENGTH)
      line = substr(line, RSTART + RLENGTH)
      sub(/^[a-z]*="/, "", name)
      sub(/"$/, "", name)
      anchors[page, name] = 1
    }
  }
  close(page)
}

# The path below the root, without "." and ".."; empty when it leaves the tree.
function normal(path,    n, i, part, out, kept) {
  n = split(path, part, "/")
  kept = 0
  for (i = 1; i <= n; ++i) {
    if (part[i] == "" || part[i] == ".") continue
    if (part[i] == "..") {
      if (kept == 0) return ""
      --kept
    } else {
      out[++kept] = part[i]
    }
  }
  path = "."
  for (i = 1; i <= kept; ++i) path = i == 1 ? out[1] : path "/" out[i]
  return path
}

function complain(page, number, reason) {
  printf "%s:%d: %s\n", page, number, reason
  ++faults
}

function check(page, number, target,    at, anchor, path, folder) {
  ++links
  if (target == "") return complain(page, number, "a link to nothing")
  if (target ~ /^[a-z][a-z0-9+.-]*:/) return
  if (target ~ /^\//) return complain(page, number, "\"" target "\" is an absolute path")
  at = index(target, "#")
  anchor = at ? substr(target, at + 1) : ""
  path = at ? substr(target, 1, at - 1) : target
  if (path == "") {
    path = page
  } else {
    folder = page
    if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
    path = normal(folder "/" path)
    if (path == "") return complain(page, number, "\"" target "\" leads out of the tree")
    if (!(path in exists)) return complain(page, number, "\"" target "\" does not exist")
  }
  if (anchor == "") return
  if (path !~ /\.md$/) {
    if (anchor !~ /^L[0-9]+/) complain(page, number, "\"" target "\": only pages have anchors")
    return
  }
  if (!((path, anchor) in anchors)) complain(page, number, "\"" target "\": " path " has no heading \"#" anchor "\"")
}

function check_page(page,    line, number, fenced, target) {
  number = fenced = 0
  while ((getline line < page) > 0) {
    ++number
    if (line ~ /^ *(```|~~~)/) fenced = !fenced
    if (fenced) continue
    gsub(/``[^`]*``|`[^`]*`/, "code", line)
    if (line ~ /!\[\]\(/) complain(page, number, "an image without alternative text")
    if (match(line, /^ *\[[^\]]+\]: */)) {
      target = substr(line, RLENGTH + 1)
      sub(/[ \t].*$/, "", target)
      check(page, number, target)
      continue
    }
    while (match(line, /\]\([^)]*\)|(href|src)="[^"]*"/)) {
      target = substr(line, RSTART, RLENGTH)
      line = substr(line, RSTART + RLENGTH)
      sub(/^\]\(|^[a-z]*="/, "", target)
      sub(/[)"]$/, "", target)
      sub(/[ \t]+["\x27].*$/, "", target)
      gsub(/^<|>$/, "", target)
      check(page, number, target)
    }
  }
  close(page)
}

{ exists[$0] = 1 }
/\.md$/ { pages[++count] = $0 }
END {
  for (i = 1; i <= count; ++i) read_anchors(pages[i])
  for (i = 1; i <= count; ++i) check_page(pages[i])
  printf "%d links in %d pages, %d faults\n", links, count, faults
  exit faults > 0
}'

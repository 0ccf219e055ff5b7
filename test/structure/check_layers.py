#!/usr/bin/env python3
"""check_layers.py ROOT: checks the includes of the tree at ROOT against the table of folders in docs/internals/overview.md.

The table stands between the lines `<!-- layers -->` and `<!-- /layers -->`. A row names a folder and the folders that it may
include; `<!-- open: ... -->` names folders and headers that every folder may include. In the rows of src/ and agent/,
include/farmem stands for all public headers, and include/farmem/detail for its types/ and barriers/ as well. The rules:

  - a file includes files of its own folder, of the folders in its row, and what is open, unless its own folder is open;
  - every folder with sources has a row, and every row has a folder and names none that it does not include;
  - the arrows of the table, and the includes of files, have no cycles (include/farmem and all of its detail/ count as one
    folder, and so do the parts of the cache and of the collector that ONE_FOLDER names);
  - an installed header includes installed headers only, and none that users need not have (fmt, spdlog), but for
    farmem/fmt.h, which is for those who have fmt, and which no other header includes;
  - installed headers lie in include/farmem, its detail/ and the folders of that which are named here, and nowhere else.

Prints every violation as file:line: reason; the exit status says whether there was one.
"""
import os
import re
import sys

FOR_FMT = "include/farmem/fmt.h"
OVERVIEW = "docs/internals/overview.md"
DETAIL = "include/farmem/detail"
PUBLIC = tuple(
    f"include/farmem/{of}" for of in ("base", "object", "handles", "heap", "containers", "tasks", "channel", "pool", "paged"))
BELOW_ALL = tuple(f"{DETAIL}/{of}" for of in ("types", "barriers"))
INSTALLED = ("include/farmem", *PUBLIC, DETAIL, *BELOW_ALL, *(f"{DETAIL}/{of}" for of in ("graph", "hash", "tree", "vector")))
# Folders whose files know each other: parts of one class, or what it and its parts are made of.
ONE_FOLDER = {folder: "include/farmem" for folder in INSTALLED} | {
    **{f"src/cache/{of}": "src/cache" for of in ("collections", "eviction", "memory")},
    "src/collector/marking": "src/collector",
}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^">]+)[">]')
bad = []


def violation(path, line, reason):
    bad.append(f"{path}:{line}: {reason}")


def read_table(root):
    """The rows as {folder: (set of folders, line)}, and what is open to all."""
    rows, allowed_everywhere, inside = {}, set(), False
    with open(os.path.join(root, OVERVIEW), encoding="utf-8") as page:
        for number, line in enumerate(page, 1):
            if match := re.match(r"<!-- open: (.*) -->", line):
                allowed_everywhere.update(match.group(1).split())
            if line.startswith("<!-- layers -->"):
                inside = True
            elif line.startswith("<!-- /layers -->"):
                inside = False
            elif inside and line.startswith("|") and not line.startswith("|---"):
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                if cells[0] != "folder":
                    names = set() if cells[2] == "-" else {name.strip() for name in cells[2].split(",")}
                    rows[cells[0]] = (names, number)
    return rows, allowed_everywhere


def sources(root):
    for top in ("include/farmem", "src", "agent"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".h", ".cc")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def resolve(root, path, quoted, target):
    """The file that an include means, relative to the root; None when it is not of this tree."""
    if target.startswith("farmem/"):
        return "include/" + target
    if not quoted:
        return None
    beside = os.path.normpath(os.path.join(os.path.dirname(path), target))
    for candidate in (beside, "src/" + target, target):
        if os.path.exists(os.path.join(root, candidate)):
            return candidate
    return beside


def seen_from(folder, other):
    """The name by which the row of a folder lists another one."""
    if folder in INSTALLED:
        return other
    return "include/farmem" if other in PUBLIC else DETAIL if other in BELOW_ALL else other


def find_cycle(edges):
    """A cycle of a graph {node: set of nodes}, as a list; empty when there is none."""
    state, path = {}, []

    def visit(node):
        state[node] = 1
        path.append(node)
        for next_node in sorted(edges.get(node, ())):
            if state.get(next_node) == 1:
                return path[path.index(next_node):] + [next_node]
            if next_node not in state:
                if cycle := visit(next_node):
                    return cycle
        state[node] = 2
        path.pop()
        return []

    for node in sorted(edges):
        if node not in state:
            if cycle := visit(node):
                return cycle
    return []


def main(root):
    sys.setrecursionlimit(10000)
    rows, everywhere = read_table(root)
    if not rows:
        sys.exit(f"{OVERVIEW}: no table of folders")
    files, file_edges, folder_edges = sorted(sources(root)), {}, {}
    for path in files:
        folder = os.path.dirname(path)
        if folder.startswith("include/") and folder not in INSTALLED:
            violation(path, 1, "an installed header lies in none of the folders of include/farmem")
            continue
        if folder not in rows:
            violation(path, 1, f"{folder} has no row in {OVERVIEW}")
            continue
        with open(os.path.join(root, path), encoding="utf-8") as text:
            lines = text.readlines()
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(2)
            other = resolve(root, path, match.group(1) == '"', target)
            if other is None:
                if folder in INSTALLED and path != FOR_FMT and target.startswith(("fmt/", "spdlog/")):
                    violation(path, number, f"an installed header includes <{target}>, which users need not have")
                continue
            if not os.path.exists(os.path.join(root, other)):
                violation(path, number, f"includes {target}, which does not exist")
                continue
            if other == FOR_FMT and folder in INSTALLED:
                violation(path, number, f"an installed header includes {FOR_FMT}, whose <fmt/format.h> users need not have")
            file_edges.setdefault(path, set()).add(other)
            exact = os.path.dirname(other)
            where = seen_from(folder, exact)
            folder_edges.setdefault(folder, set()).add(where)
            if folder in INSTALLED and exact not in INSTALLED:
                violation(path, number, f"an installed header includes the private {other}")
            elif where != folder and where not in rows[folder][0] and (folder in everywhere or not everywhere & {exact, other}):
                violation(path, number, f"{folder} includes {other}, but {where} is not in its row")
    used = {os.path.dirname(path) for path in files}
    for folder, (names, number) in rows.items():
        if folder not in used:
            violation(OVERVIEW, number, f"the row of {folder} has no sources")
        for name in sorted(names & rows.keys() - folder_edges.get(folder, set())):
            violation(OVERVIEW, number, f"{folder} may include {name}, and does not")
        for name in sorted(names - rows.keys()):
            violation(OVERVIEW, number, f"{folder} may include {name}, which has no row")
    arrows = {}
    for folder, (names, _) in rows.items():
        start = ONE_FOLDER.get(folder, folder)
        arrows.setdefault(start, set()).update({ONE_FOLDER.get(name, name) for name in names} - {start})
    if cycle := find_cycle(arrows):
        violation(OVERVIEW, rows[cycle[0]][1], "arrows in a circle: " + " -> ".join(cycle))
    if cycle := find_cycle(file_edges):
        violation(cycle[0], 1, "includes in a circle: " + " -> ".join(cycle))
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

#!/usr/bin/env python3
"""check_internals.py ROOT [LIST]: checks docs/internals and the glossary in the tree at ROOT. Every picture must be made of
its source as it is now, and every file or folder that the pages name in backquotes must exist: a path from the root, or the
end of one. So must folders in the first column of the layer table. LIST has the tree's files, one a line; without it they
are found. Prints every violation; the exit status says whether there was one.
"""
import glob
import os
import re
import subprocess
import sys

FILE = re.compile(r"`([A-Za-z0-9_./-]+\.(?:h|cc|md|sh|awk|py|pml|dot|cmake|txt))`")
FOLDER = re.compile(r"`((?:src|agent|test|include|docs|bench|examples)(?:/[A-Za-z0-9_]+)+)/?`")
ROW = re.compile(r"\| ((?:src|agent|include)\S*) \|")


def files(root):
    for folder, below, names in os.walk(root):
        below[:] = [b for b in below if b not in ("build", ".git")]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def main(root, listed=None):
    pictures = subprocess.run(["docs/internals/build-pictures", "--check"], cwd=root, check=False)
    bad = []
    if listed is None:
        paths = list(files(root))
    else:
        with open(listed, encoding="utf-8") as text:
            paths = text.read().splitlines()
    # All ends of all paths, so that `word.h` and `test/pool/stress.h` are both known; and the folders that files are in.
    ends, folders = set(), set()
    for path in paths:
        parts = path.split("/")
        ends.update("/".join(parts[i:]) for i in range(len(parts)))
        for end in range(1, len(parts)):
            folders.update("/".join(parts[i:end]) for i in range(end))
    pages = sorted(glob.glob(os.path.join(root, "docs/internals/*.md")))
    for page in [*pages, os.path.join(root, "docs/reference/glossary.md")]:
        shown, in_table = os.path.relpath(page, root), False
        with open(page, encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                in_table = (in_table or "<!-- layers -->" in line) and "<!-- /layers -->" not in line
                bad.extend(f"{shown}:{number}: there is no {name}" for name in FILE.findall(line) if name not in ends)
                if page not in pages:
                    continue
                named = FOLDER.findall(line) + (ROW.findall(line)[:1] if in_table else [])
                bad.extend(f"{shown}:{number}: there is no folder {name}" for name in named if name not in folders and name not in ends)
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad or pictures.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

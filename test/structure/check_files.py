#!/usr/bin/env python3
"""check_files.py ROOT: checks that every source file begins by saying what lives there, that headers are guarded by
#pragma once, and that no file has grown past 500 lines. Prints every violation; the exit status says whether there was one.
"""
import os
import sys

LINES_MAX = 500
FOLDERS = ("include", "src", "agent", "test", "bench", "examples", "cmake")
ENDINGS = (".h", ".cc", ".sh", ".cmake")
NAMES = ("CMakeLists.txt", "run")


def files(root):
    for top in FOLDERS:
        for folder, below, names in os.walk(os.path.join(root, top)):
            below.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                if (name.endswith(ENDINGS) or name in NAMES) and not os.path.islink(path):
                    yield os.path.relpath(path, root)


def faults(path, lines):
    if len(lines) > LINES_MAX:
        yield f"{path}: {len(lines)} lines; what passes {LINES_MAX} wants to be two files"
    is_header = path.endswith(".h")
    if is_header or (path.endswith(".cc") and path.startswith(("include/", "src/", "agent/"))):
        if not lines or not lines[0].startswith("//"):
            yield f"{path}:1: does not begin with a comment that says what lives here"
    if is_header and "#pragma once" not in lines:
        yield f"{path}: no #pragma once"


def main(root):
    bad = []
    for path in files(root):
        with open(os.path.join(root, path), encoding="utf-8") as text:
            bad.extend(faults(path, text.read().splitlines()))
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

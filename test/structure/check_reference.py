#!/usr/bin/env python3
"""check_reference.py ROOT: compares the pages of docs/reference/ with the code, in both directions.

  errors.md     the enumerators of fm::errc, with their numbers
  options.md    the fields of each options struct of the public headers; the environment variables that the code reads
  metrics.md    the fields of the statistics structs; the keys of the agent's status
  agent-cli.md  the flags and settings of farmem-agent
  limits.md     the constants and files in the column "defined"

Prints every difference; the exit status says whether there was one. Definitions are found by name, wherever the file is.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
pages = root / "docs" / "reference"
failures = []


def fail(text):
    failures.append(text)


def read(path):
    return path.read_text(encoding="utf-8")


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


headers = {p: without_comments(read(p)) for p in sorted(root.glob("include/**/*.h"))}
sources = {p: read(p) for folder in ("include", "src", "agent") for p in sorted(root.glob(folder + "/**/*"))
           if p.suffix in (".h", ".cc")}


def body_of(opening):
    """The text between the braces of the definition in the public headers that begins with `opening`, or None."""
    for text in headers.values():
        found = re.search(opening + r"[^;{]*\{", text)
        if not found:
            continue
        depth, at = 1, found.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        return text[found.end():at - 1]
    return None


def statements(body):
    """The statements of a class body: up to a semicolon, or to the end of a function's braces."""
    depth, start = 0, 0
    for at, c in enumerate(body):
        if c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0 and re.search(r"\)[\w\s]*\{", body[start:at]):
                start = at + 1  # a function with a body
        elif c == ";" and depth == 0:
            yield body[start:at]
            start = at + 1


def fields_of(struct):
    """The names of the data members of a struct of the public headers, without static ones."""
    body = body_of(r"\bstruct " + struct + r"\b")
    if body is None:
        fail(f"no header defines struct {struct}")
        return []
    names = []
    for statement in statements(body):
        statement = re.sub(r"\[\[.*?\]\]", "", statement)
        while re.search(r"\{[^{}]*\}", statement):
            statement = re.sub(r"\{[^{}]*\}", "", statement)
        while re.search(r"<[^<>]*>", statement):
            statement = re.sub(r"<[^<>]*>", "", statement)
        if re.match(r"\s*(static|using|friend|enum|struct|template|typedef)\b", statement):
            continue
        declared = re.sub(r"=[^,]*", "", statement)
        if "(" in declared:
            continue  # a function, or an initialiser with a comma in parentheses
        for part in declared.split(","):
            name = re.search(r"(\w+)\s*$", part)
            if name:
                names.append(name.group(1))
    return names


def section(page, heading):
    """The lines below a heading, up to the next heading of the same or a higher level."""
    lines = read(pages / page).splitlines()
    for at, line in enumerate(lines):
        found = re.match(r"(#+) +(.*?) *$", line)
        if found and found.group(2).lower() == heading.lower():
            level = len(found.group(1))
            end = at + 1
            while end < len(lines) and not re.match(r"#{1,%d} " % level, lines[end]):
                end += 1
            return lines[at + 1:end]
    fail(f"{page}: no section '{heading}'")
    return []


def cells(line):
    return [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] if line.startswith("|") else []


def first_column(lines, wanted=r"`([\w-]+)`"):
    """Names in the first column of the tables of these lines."""
    names = []
    for line in lines:
        columns = cells(line)
        if columns:
            names += re.findall(wanted, columns[0])
    return names


def compare(page, what, on_page, in_code):
    for name in sorted(set(in_code) - set(on_page)):
        fail(f"{page}: {what} '{name}' is missing")
    for name in sorted(set(on_page) - set(in_code)):
        fail(f"{page}: {what} '{name}' does not exist")
    for name in sorted({n for n in on_page if on_page.count(n) > 1}):
        fail(f"{page}: {what} '{name}' is there twice")


def check_errors():
    in_code = {f"{name} = {number}" for name, number in re.findall(r"(\w+) = (\d+)", body_of(r"\benum class errc\b") or "")}
    on_page = [f"{c[0].strip('`')} = {c[1]}" for c in map(cells, section("errors.md", "All codes"))
               if c and c[0].startswith("`")]
    compare("errors.md", "code", on_page, in_code)


def check_options():
    structs = set()
    for text in headers.values():
        for namespace in re.split(r"namespace fm \{", text)[1:]:
            namespace = namespace.split("namespace detail {")[0]
            structs |= set(re.findall(r"\bstruct (\w+_options) \{", namespace))
    for struct in sorted(structs | {"pool_class_identity"}):
        compare("options.md", f"field of {struct}", first_column(own_lines("options.md", struct)), fields_of(struct))
    variables = {v for text in sources.values() for v in re.findall(r'getenv\("(\w+)"\)', text)}
    on_page = [v for v in first_column(section("options.md", "Environment variables"), r"`([A-Z_]+)(?:\.\.\.)?`")
               if not v.startswith("FARMEM_AGENT_")]
    compare("options.md", "variable", on_page, variables)


def own_lines(page, heading):
    """The lines of a section without its subsections."""
    lines = section(page, heading)
    for at, line in enumerate(lines):
        if re.match(r"#+ ", line):
            lines = lines[:at]
            break
    return lines


def check_metrics():
    """Each struct's fields are the first columns of the tables that follow its name in the page, up to the next name."""
    structs = ["histogram_snapshot", "heap_stats", "type_stats", "cycle_report", "cycle_part", "verify_report", "channel_stats",
               "pool_stats", "pool_agent_stats", "pool_class_stats", "paged_stats"]
    in_words = ["pause_record", "pool_compaction", "pool_report"]
    text = read(pages / "metrics.md")
    on_page = {s: [] for s in structs}
    current = None
    body = text[text.index("## Histograms"):text.index("## Status of an agent")]
    for line in body.splitlines():
        named = [s for s in structs if re.search(r"`" + s + r"`", line)]
        if named and not line.startswith("|"):
            current = named[0]
        elif current:
            columns = cells(line)
            if columns:
                on_page[current] += re.findall(r"`(\w+)`", columns[0])
    for struct in structs:
        compare("metrics.md", f"field of {struct}", on_page[struct], fields_of(struct))
    for struct in in_words:
        sentence = next((l for l in text.splitlines() if f"`{struct}` has" in l), "")
        if not sentence:
            fail(f"metrics.md: no sentence says what {struct} has")
        sentence = sentence[sentence.find(f"`{struct}`") + len(struct) + 2:]
        compare("metrics.md", f"field of {struct}", re.findall(r"`(\w+)`", sentence), fields_of(struct))

    status = "\n".join(section("metrics.md", "Status of an agent"))
    written = [re.sub(r"`[^`]*\*[^`]*`", "", l) for l in status.splitlines()]
    keys_on_page = set(first_column(written, r"`(\w+)`"))
    totals = next((l for l in written if l.startswith("| `totals`")), "")
    keys_on_page |= set(re.findall(r"`(\w+)`", totals))
    keys = set()
    for path, source in sources.items():
        if re.search(r"statistic|_links|spaces|peers", path.name):
            keys |= set(re.findall(r'"(\w+)":', source))
    compare("metrics.md", "key of the status", sorted(keys_on_page), sorted(keys))


def check_agent():
    config = next((t for p, t in sources.items() if p.match("agent/**/config.cc") or p.match("agent/config.cc")), "")
    main = next((t for p, t in sources.items() if p.match("agent/**/main.cc") or p.match("agent/main.cc")), "")
    settings = re.findall(r'^ +\{"([\w-]+)",\s*"[^"]*",', config, flags=re.M)
    if len(settings) < 10:
        fail("agent-cli.md: the table of settings in config.cc was not found")
    commands = re.findall(r'(?:add_flag|add_option|set_version_flag)\("(--[\w-]+)"', main) + ["--help"]
    compare("agent-cli.md", "setting", first_column(section("agent-cli.md", "Settings"), r"`(--[\w-]+)`"),
            ["--" + s for s in settings])
    compare("agent-cli.md", "flag", first_column(section("agent-cli.md", "Commands"), r"`(--[\w-]+)`"), commands)


def check_limits():
    for line in read(pages / "limits.md").splitlines():
        columns = cells(line)
        if len(columns) < 4 or columns[-1] in ("defined",) or set(columns[-1]) == {"-"}:
            continue
        named = False
        for names, path in re.findall(r"((?:`\w+`(?:, )?)*)(?: in )?`((?:src|include|agent)/[\w./]+)`", columns[-1]):
            named = True
            if not (root / path).is_file():
                fail(f"limits.md: {columns[0]}: there is no {path}")
                continue
            for name in re.findall(r"`(\w+)`", names):
                if not re.search(rf"\b{name}\b", read(root / path)):
                    fail(f"limits.md: {columns[0]}: {path} has no '{name}'")
        if not named:
            fail(f"limits.md: {columns[0]}: no file says where it is defined")


for check in (check_errors, check_options, check_metrics, check_agent, check_limits):
    check()
print("\n".join(failures))
sys.exit(1 if failures else 0)

#!/usr/bin/env python3
"""Makes bench/README.md and two plots from bench/results/*.json, by the plan in bench/page.toml.

  bench/report.py           writes the page; the plots too where matplotlib is installed
  bench/report.py --check   writes nothing; fails when the page is not what would be written, when the plan names a
                            result that does not exist, when a measured row is on no table of the page, and when the plan
                            calls a row older than its benchmark that was measured since
  --root FOLDER             instead of the folder of this script, for its test

Figures come from the results only. The plan holds words: which rows make up the page, claims, goals that the programs do
not state, and notes. Every row says its commit, date and processor. Marks: † of another tree than the newest result, ‡ on
another processor than the newest row of its table, § measured before its benchmark changed. Standard library only; bench/report_plots.py draws. Nobody edits bench/README.md by hand.
"""
import argparse
import json
import pathlib
import re
import sys
import tomllib

CELL_LIMIT = 120
ENTRY_KEYS = {"result", "row", "where", "claim", "goal", "note", "detail", "figure", "worst_over", "has_goal", "better"}
TABLE_KEYS = {"title", "result", "row", "where", "rows", "column", "figure", "note"}
GOAL = re.compile(r"(ratio |p50 )?(<=|>=) ([0-9.]+)( ns)?$")
CHANGED_KEYS = {"row", "where", "since", "why"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
FIGURES = {"ratio", "value", "p50", "p50_ratio"}


class Problem(Exception):
    """A mistake in the plan or in the results, in words for whoever made it."""


def short(value):
    """A figure in at most four places; none for one that the results could not say."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.1:
        return f"{value:.2f}"
    return f"{value:.2g}" if size else "0"


def short_bound(value):
    """A bound without zeros at its end."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def load(results):
    """Every result: its rows, in the order in which they were measured."""
    loaded = {}
    for path in sorted(results.glob("*.json")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row["result"], row["name"] = path.stem, row["name"].split(".", 1)[1]
            if row["quick"] or row["build"] != "release":
                raise Problem(f"results/{path.name}: {row['name']} is of --quick sizes or of a debug build")
        loaded[path.stem] = rows
    return loaded


def load_text(path):
    """A result that has no JSON: lines of NAME ours FIGURE peer FIGURE ratio FIGURE, after one about the tree."""
    lines = path.read_text().splitlines()
    head = re.match(r"# (commit|recorded_in) (\S+) tree (\S+)(?: time (\S+))?$", lines[0])
    if not head:
        raise Problem(f"results/{path.name}: the first line does not say which tree was measured")
    rows = []
    for line in lines[1:]:
        match = re.match(r"(\S+)\s+farmem\s+(\S+)\s+(\S+)\s+(\S+)\s+ratio\s+(\S+)$", line)
        if not match:
            raise Problem(f"results/{path.name}: cannot be read: {line}")
        name, ours, peer_name, peer, ratio = match.groups()
        rows.append({"result": path.stem, "name": name, "parameters": {}, "unit": "us" if "latency" in name else "MiB/s",
                     "ours": float(ours), "peer": float(peer), "peer_name": peer_name, "ratio": float(ratio),
                     head.group(1): head.group(2), "tree": head.group(3), "processor": "emulated", **({"time": head.group(4)} if head.group(4) else {})})
    return rows


def newest_of(rows):
    """The row that was measured last; rows without a time are the oldest."""
    return max(rows, key=lambda row: row.get("time", ""))


def marked(text, *marks):
    return " ".join([text, *(mark for mark, is_so in marks if is_so)])


def commit_cell(row, newest):
    """The commit that a row measured, marked when its tree is not the newest, or its benchmark no longer what it was."""
    return marked(f"`{row.get('commit') or row['recorded_in']}`", ("†", row["tree"] != newest), ("§", row.get("changed")))


def processor_name(row, words):
    return words.get("processor", {}).get(row["processor"], row["processor"])


def measured_cells(row, newest, table, words):
    """Commit, date and processor of a row; `table` is the newest row of its table."""
    return [commit_cell(row, newest), row.get("time", "–")[:10],
            marked(processor_name(row, words), ("‡", row["processor"] != table["processor"]))]


def is_marked(row, newest, table):
    return row["tree"] != newest or bool(row.get("changed")) or row["processor"] != table["processor"]


def mark_changed(plan, loaded):
    """Notes in each row why it does not say what its benchmark measures today; one line for each change."""
    for name, about in plan["results"].items():
        for change in about.get("changed", []):
            if unknown := set(change) - CHANGED_KEYS:
                raise Problem(f"page.toml: results.{name}.changed: unknown keys {sorted(unknown)}")
            if not TIME.fullmatch(str(change["since"])):
                raise Problem(f"page.toml: results.{name}.changed: since is \"YYYY-MM-DDTHH:MM:SSZ\", as in the results, not {change['since']}")
            rows = [s.row for s in select({**change, "result": name, "claim": f"results.{name}.changed"}, loaded)]
            old = [row for row in rows if row.get("time", "") < change["since"]]
            if not old:
                raise Problem(f"page.toml: results.{name}.changed: every {change['row']} was measured after {change['since']}; remove the entry")
            for row in old:
                row["changed"] = change["why"]
            yield f"- `{name}` ({len(old)} of its rows): {change['why']}."


def lower_is_better(row):
    return not (row["unit"].endswith("/s") or row["unit"] in ("share", "of before"))


class Selection:
    """One row of a result, with the names that a claim may mention."""

    def __init__(self, row, captured):
        self.row = row
        self.names = {**row["parameters"], **captured, "unit": row["unit"], "peer_name": row.get("peer_name", ""),
                      "name": row["name"]}


def select(entry, loaded):
    """The rows that an entry of the plan means."""
    result = entry["result"]
    if result not in loaded:
        raise Problem(f"page.toml: {entry.get('claim', entry.get('title'))}: there is no results/{result}.json")
    pattern = re.compile("".join(f"(?P<{part[1:-1]}>.+?)" if part.startswith("{") else re.escape(part)
                                 for part in re.split(r"(\{\w+\})", entry["row"])) + "$")
    found = []
    for row in loaded[result]:
        match = pattern.match(row["name"])
        if not match or (entry.get("has_goal") is not None and entry["has_goal"] != ("goal" in row)):
            continue
        selection = Selection(row, match.groupdict())
        wanted = entry.get("where", {})
        if all(selection.names.get(key) in (value if isinstance(value, list) else [value])
               for key, value in wanted.items()):
            found.append(selection)
    if not found:
        raise Problem(f"page.toml: {entry.get('claim', entry.get('title'))}: no row of results/{result}.json is {entry['row']}"
                      + (f" with {entry['where']}" if "where" in entry else ""))
    return found


class Metric:
    """One row of the page."""

    def __init__(self, entry, selection, words, of=1):
        row = self.row = selection.row
        names = {key: words.get(key, {}).get(value, value) for key, value in selection.names.items()}
        self.claim = entry["claim"].format(**names)
        self.note, self.detail = entry.get("note", ""), entry.get("detail", "")
        self.peer = names["peer_name"] or "–"
        if of > 1:
            self.peer += f", hardest of {of}"
        self.goal_text = entry.get("goal", row.get("goal", ""))
        self.goal = self.bound = self.met = self.margin = self.figure = None
        self.spread = ""
        if "left_out" in row:
            killed = "wait status 9" in row["left_out"]
            self.note = self.note or "left out: " + ("the kernel killed the swapping peer" if killed else row["left_out"])
            return
        if self.goal_text and not GOAL.match(self.goal_text):
            raise Problem(f"page.toml: {self.claim}: cannot read the goal '{self.goal_text}'")
        kind, sign, bound, _ = GOAL.match(self.goal_text).groups() if self.goal_text else ("", "", "", "")
        which = entry.get("figure") or ("p50" if kind == "p50 " else "ratio" if row["ratio"] is not None else "value")
        if which not in FIGURES:
            raise Problem(f"page.toml: {self.claim}: there is no figure '{which}'")
        self.unit = "" if "ratio" in which else "ns" if which == "p50" else words.get("unit", {}).get(row["unit"], row["unit"])
        if which == "ratio":
            self.figure = row["ratio"]
            self.spread = f"[{short(row['ratio_min'])}, {short(row['ratio_max'])}]" if "ratio_min" in row else ""
        elif which == "p50":
            self.figure = row["ours_detail"]["latency_ns"]["p50"]
        elif which == "p50_ratio":
            self.figure = row["ours_detail"]["latency_ns"]["p50"] / row["peer_detail"]["latency_ns"]["p50"]
        else:
            self.figure = row["ours"]
            detail = row.get("ours_detail", {"min": 0, "max": 0})
            self.spread = f"[{short(detail['min'])}, {short(detail['max'])}]" if detail["min"] != detail["max"] else ""
        better = entry.get("better")
        self.arrow = {"lower": "↓", "higher": "↑", "neither": ""}[
            better or ("lower" if sign == "<=" else "higher" if sign else "lower" if lower_is_better(row) else "higher")]
        if sign:
            self.bound = float(bound)
            self.met = self.figure <= self.bound if sign == "<=" else self.figure >= self.bound
            over, under = (self.bound, self.figure) if sign == "<=" else (self.figure, self.bound)
            self.margin = over / under if under else float(self.met)  # nothing, of nothing that is allowed, is the goal
            unit = "×" if "ratio" in which else f" {self.unit}".rstrip()
            self.goal = f"{'at most' if sign == '<=' else 'at least'} {short_bound(float(bound))}{unit}"
            if "met" in row and "goal" not in entry and "figure" not in entry and self.met != row["met"]:
                raise Problem(f"results/{row['result']}.json: {row['name']}: 'met' disagrees with the goal")

    def cells(self, newest, table, words, mark):
        figure = "–" if self.figure is None else " ".join(filter(None, [
            self.arrow, short(self.figure), self.unit, self.spread]))
        note = " ".join(filter(None, [self.note, mark]))
        met = "–" if self.met is None else "yes" if self.met else "**no**"
        return [self.claim, self.peer, figure, self.goal or "–", met, *measured_cells(self.row, newest, table, words), note]


def metrics_of(entry, loaded, words):
    """An entry's rows of the page: one for each selection, or the hardest of each group."""
    if unknown := set(entry) - ENTRY_KEYS:
        raise Problem(f"page.toml: {entry.get('claim')}: unknown keys {sorted(unknown)}")
    found = select(entry, loaded)
    if "worst_over" not in entry:
        return [Metric(entry, selection, words) for selection in found]
    groups = {}
    for selection in found:
        key = tuple(kv for kv in selection.names.items() if kv[0] != entry["worst_over"])
        groups.setdefault(key, []).append(selection)
    out = []
    for group in groups.values():
        made = [Metric(entry, selection, words, len(group)) for selection in group if "left_out" not in selection.row]
        out.append(min(made, key=lambda m: m.margin if m.margin else m.figure * (-1 if m.arrow == "↓" else 1)))
    return out


def matrix(table, loaded, words, newest):
    """A table of all figures of one kind: parameters down, one parameter across. Cells are marked that differ from the newest."""
    if unknown := set(table) - TABLE_KEYS:
        raise Problem(f"page.toml: {table.get('title')}: unknown keys {sorted(unknown)}")
    def say(key, value):
        return words.get(key, {}).get(value, value)

    columns, lines, selected = [], {}, select(table, loaded)
    latest = newest_of([selection.row for selection in selected])
    for selection in selected:
        names = selection.names
        missing = [key for key in [*table["rows"], table["column"]] if key not in names]
        if missing:
            raise Problem(f"page.toml: {table['title']}: rows have no {missing}")
        across = say(table["column"], names[table["column"]])
        if across not in columns:
            columns.append(across)
        line = lines.setdefault(tuple(say(key, names[key]) for key in table["rows"]), {})
        if across in line:
            raise Problem(f"page.toml: {table['title']}: two rows would share a cell")
        row = selection.row
        line[across] = "left out" if "left_out" in row else marked(
            short(row["ratio"] if table["figure"] == "ratio" else row["ours"]), ("†", row["tree"] != latest["tree"]),
            ("‡", row["processor"] != latest["processor"]), ("§", row.get("changed")))
    out = ["Measured: " + ", ".join(measured_cells({**latest, "changed": ""}, newest, latest, words)) + ".", "", markdown_row([key.replace("_", " ") for key in table["rows"]] + columns), "|---" * len(table["rows"]) + "|---:" * len(columns) + "|"]
    out += [markdown_row(list(keys) + [line.get(c, "–") for c in columns]) for keys, line in lines.items()]
    return out


def markdown_row(cells):
    for cell in cells:
        if len(cell) > CELL_LIMIT:
            raise Problem(f"page.toml: a cell of {len(cell)} characters, {CELL_LIMIT} at most: {cell}")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def area_lines(area, metrics, loaded, words, newest):
    out = [f"## {area['title']}", "", area["about"].strip(), ""]
    details, table = [], newest_of([metric.row for metric in metrics])
    out += [markdown_row(["claim", "peer", "ratio [spread]", "goal", "met", "commit", "date", "processor", "note"]), "|---" * 9 + "|"]
    for metric in metrics:
        mark = ""
        if metric.detail:
            if metric.detail not in details:
                details.append(metric.detail)
            mark = f"({details.index(metric.detail) + 1})"
        out.append(markdown_row(metric.cells(newest, table, words, mark)))
    out.append("")
    out += [f"{number}. {' '.join(detail.split())}" for number, detail in enumerate(details, 1)] + ([""] if details else [])
    for each in area.get("table", []):
        out += ["<details>", f"<summary>{each['title']}</summary>", ""]
        out += ([each["note"].strip(), ""] if "note" in each else []) + matrix(each, loaded, words, newest) + ["", "</details>", ""]
    out += [f"![{text}](results/{picture})" for picture, text in area.get("plots", {}).items()] + ([""] if area.get("plots") else [])
    return out


def summary_lines(areas, newest):
    out = [markdown_row(["area", "metrics", "with a goal", "met", "missed", "marked"]), "|---|---:|---:|---:|---:|---:|"]
    total = [0] * 5
    for area, metrics in areas:
        met = [m.met for m in metrics if m.met is not None]
        table = newest_of([m.row for m in metrics])
        counts = [len(metrics), len(met), sum(met), len(met) - sum(met), sum(is_marked(m.row, newest, table) for m in metrics)]
        total = [a + b for a, b in zip(total, counts)]
        anchor = re.sub(r"[^\w\- ]", "", area["title"].lower()).replace(" ", "-")
        out.append(markdown_row([f"[{area['title']}](#{anchor})"] + [str(c) for c in counts]))
    return out + [markdown_row(["all"] + [f"**{c}**" for c in total])]


def result_lines(plan, loaded, newest):
    out = [markdown_row(["result", "command", "commit", "measured", "processor", "changed since, or beware"]), "|---|---|---|---|---|---|"]
    for name, rows in loaded.items():
        about = plan["results"][name]
        commits = sorted({commit_cell(r, newest) for r in rows})
        files = f"[json](results/{name}.json), [txt](results/{name}.txt)" if not about.get("text") else f"[txt](results/{name}.txt)"
        when = sorted({r["time"][:10] for r in rows if "time" in r})
        processors = sorted({r["processor"] for r in rows})
        out.append("| " + " | ".join([f"`{name}` {files}", f"`{about['command']}`", ", ".join(commits),
                                      ", ".join(when) or "–", ", ".join(processors), about.get("caveat", "")]) + " |")
        markdown_row([about["command"], about.get("caveat", "")])
    return out


def page(root):
    """The page as text, its metrics by area, and all results."""
    results = root / "results"
    with open(root / "page.toml", "rb") as file:
        plan = tomllib.load(file)
    loaded = load(results)
    newest = newest_of([row for rows in loaded.values() for row in rows])
    for name, about in plan["results"].items():
        if about.get("text"):
            loaded[name] = load_text(results / f"{name}.txt")
        elif name not in loaded:
            raise Problem(f"page.toml: there is no results/{name}.json")
    for name in loaded:
        if name not in plan["results"]:
            raise Problem(f"results/{name}.json is not on the page: page.toml has no [results.{name}]")
    changes = list(mark_changed(plan, loaded))
    for path in sorted(results.glob("*.txt")):
        if path.stem not in loaded and path.name not in plan["text"]:
            raise Problem(f"results/{path.name} is not on the page")
    areas = [(area, [m for entry in area["row"] for m in metrics_of(entry, loaded, plan["words"] | plan["claim_words"])]) for area in plan["area"]]
    on_page = {id(s.row) for area in plan["area"] for entry in area["row"] + area.get("table", []) for s in select(entry, loaded)}
    for name, rows in loaded.items():
        if lost := [row for row in rows if id(row) not in on_page]:
            raise Problem(f"results/{name}: {lost[0]['name']} {lost[0]['parameters']} is on no table of the page ({len(lost)} rows are not)")
    for area, metrics in areas:
        seen = set()
        for m in metrics:
            key = (m.claim, m.peer, m.goal)
            if key in seen:
                raise Problem(f"page.toml: two rows of '{area['title']}' say the same: {m.claim}")
            seen.add(key)
    commit = newest.get("commit") or newest["recorded_in"]
    unmeasured = sorted(p.stem for p in root.glob("*.cc") if p.stem not in loaded)
    out = ["<!-- Generated by bench/report.py from bench/results and bench/page.toml. Do not edit. -->", "# Benchmarks", ""]
    out += [plan["head"].strip().replace("@commit@", commit), ""]
    out += summary_lines(areas, newest["tree"]) + ["", "![How far each metric is from its goal](results/ratio_to_goal.svg)", ""]
    for area, metrics in areas:
        out += area_lines(area, metrics, loaded, plan["words"], newest["tree"])
    out += ["## Results", "", plan["foot"].strip(), ""] + result_lines(plan, loaded, newest["tree"]) + [""]
    if changes:
        out += ["Rows with § were measured before their benchmark changed, and wait for a new measurement:", "", *changes, ""]
    out += [f"- [{name}](results/{name}): {text}" for name, text in plan["text"].items()]
    if unmeasured:
        out += [f"- No result is kept of: {', '.join(f'`bench/{name}.cc`' for name in unmeasured)}."]
    return "\n".join(out).rstrip() + "\n", areas, loaded


def check(root, text, digests):
    """What is not as this script would make it."""
    readme = root / "README.md"
    written = readme.read_text() if readme.exists() else ""
    if written != text:
        differing = next((n for n, (a, b) in enumerate(zip(written.splitlines(), text.splitlines()), 1) if a != b), "the end")
        yield f"bench/README.md is not what bench/report.py makes of the results; it differs from line {differing}"
    for name, digest in digests.items():
        picture = root / "results" / name
        if not picture.exists() or digest not in picture.read_text():
            yield f"bench/results/{name} was not drawn from these results; run bench/report.py with python3-matplotlib installed"
    for picture in sorted(set(re.findall(r"\(results/([\w.]+)\)", text))):
        if not (root / "results" / picture).exists():
            yield f"bench/results/{picture} does not exist"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    options = parser.parse_args()
    sys.dont_write_bytecode = True
    import report_plots

    try:
        text, areas, loaded = page(options.root)
        plots = report_plots.plots(areas, loaded)
        if options.check:
            problems = list(check(options.root, text, {name: plot.digest for name, plot in plots.items()}))
        else:
            (options.root / "README.md").write_text(text)
            problems = report_plots.draw(plots, options.root / "results")
    except (Problem, KeyError) as problem:
        problems = [str(problem) if isinstance(problem, Problem) else f"page.toml: nothing is called {problem}"]
    for problem in problems:
        print(f"report.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

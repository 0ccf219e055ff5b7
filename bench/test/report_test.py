#!/usr/bin/env python3
"""Tests that bench/report.py makes the page that it should, and that --check can fail: each test plants one violation in a copy of
the page, its plan and its results, and expects a message that names it. Run by ctest as structure:bench-page-self-test."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parent.parent
PYTHON = [sys.executable, "-S"]  # without packages of the site: neither test nor page needs matplotlib


def row(name, **more):
    """A measured row with a peer; `more` replaces what it says."""
    side = {"median": 2.0, "min": 1.0, "max": 3.0}
    out = {"name": name, "parameters": {"size": "1"}, "unit": "ns", "ours": 2.0, "ours_detail": side, "peer": 1.0, "peer_name": "them",
           "peer_detail": side, "ratio": 2.0, "ratio_min": 1.5, "ratio_max": 2.5, "quick": False, "build": "release",
           "processor": "P", "time": "2026-01-02T00:00:00Z", "commit": "aaaaaaa", "tree": "t1"}
    return out | more


PLAN = """
head = "Newest: @commit@."
foot = "Results:"
[text]
[words.size]
"1" = "one"
[claim_words]
[[area]]
title = "Area"
about = "About."
[[area.row]]
result = "thing"
row = "a"
claim = "a of {size}"
detail = "Why."
[results.thing]
command = "bench/run thing"
"""


class Page(unittest.TestCase):
    """A small page in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "results").mkdir()
        (self.root / "page.toml").write_text(PLAN)
        self.results([row("thing.a")])

    def results(self, rows, name="thing"):
        (self.root / "results" / f"{name}.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
        (self.root / "results" / f"{name}.txt").write_text("the table\n")

    def plan(self, text):
        (self.root / "page.toml").write_text(text)

    def run_script(self, *options):
        done = subprocess.run([*PYTHON, BENCH / "report.py", "--root", self.root, *options], capture_output=True, text=True)
        return done.returncode, done.stderr

    def lines(self):
        self.run_script()  # fails for want of plots, but writes the page first
        return (self.root / "README.md").read_text().splitlines()

    def line(self, start):
        found = [line for line in self.lines() if line.startswith(start)]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def expect(self, message):
        """Both making and checking must fail, and say why."""
        for options in ([], ["--check"]):
            status, said = self.run_script(*options)
            self.assertEqual(status, 1)
            self.assertIn(message, said)

    def test_a_row_has_claim_peer_ratio_spread_and_commit(self):
        self.assertEqual(self.line("| a of"), "| a of one | them | ↓ 2.00 [1.50, 2.50] | – | – | `aaaaaaa` | 2026-01-02 | P | (1) |")
        self.assertIn("1. Why.", self.lines())
        self.assertIn("Newest: aaaaaaa.", self.lines())

    def test_a_goal_is_evaluated(self):
        for goal, met, words in (("ratio <= 2", True, "at most 2× | yes"), ("ratio <= 1.9", False, "at most 1.9× | **no**"),
                                 ("ratio >= 2.5", False, "at least 2.5× | **no**"), ("<= 1500", True, "at most 1500 ns | yes")):
            self.results([row("thing.a", goal=goal, met=met)] if "ratio" in goal else
                         [row("thing.a", goal=goal, met=met, ratio=None, peer_name="")])
            self.assertIn(words, self.line("| a of"))

    def test_the_plan_may_state_a_goal(self):
        self.plan(PLAN.replace('detail = "Why."', 'goal = "ratio <= 1"'))
        self.assertIn("at most 1× | **no**", self.line("| a of"))

    def test_met_that_disagrees_with_its_goal_fails(self):
        self.results([row("thing.a", goal="ratio <= 1", met=True)])
        self.expect("'met' disagrees")

    def test_a_row_of_another_tree_is_stale(self):
        self.plan(PLAN.replace("[results.thing]", '[[area.row]]\nresult = "thing"\nrow = "b"\nclaim = "b of {size}"\n[results.thing]'))
        old = row("thing.b", tree="t0", recorded_in="bbbbbbb", time="2026-01-01T00:00:00Z")
        del old["commit"]
        self.results([row("thing.a"), old])
        self.assertIn("| `bbbbbbb` † |", self.line("| b of"))
        self.assertIn("| `aaaaaaa` |", self.line("| a of"))

    def test_a_row_of_another_processor_than_its_tables_is_marked(self):
        self.plan(PLAN.replace("[results.thing]", '[[area.row]]\nresult = "thing"\nrow = "b"\nclaim = "b of {size}"\n[results.thing]'))
        self.results([row("thing.a", processor="Q", time="2026-01-01T00:00:00Z"), row("thing.b")])
        self.assertIn("| `aaaaaaa` | 2026-01-01 | Q ‡ |", self.line("| a of"))
        self.assertIn("| `aaaaaaa` | 2026-01-02 | P |", self.line("| b of"))
        self.assertEqual(self.line("| [Area]"), "| [Area](#area) | 2 | 0 | 0 | 0 | 1 |")

    def test_a_result_without_json_says_its_commit_and_its_date(self):
        self.plan(PLAN.replace("[results.thing]", """[[area.row]]
result = "lab"
row = "latency"
claim = "latency in the lab"
[results.lab]
text = true
command = "bench/lab"
[results.thing]"""))
        for head, cells in (("commit ccccccc tree t1 time 2026-01-01T00:00:00Z", "`ccccccc` | 2026-01-01 | emulated ‡"),
                            ("recorded_in ccccccc tree t0", "`ccccccc` † | – | emulated ‡")):
            (self.root / "results" / "lab.txt").write_text(f"# {head}\nlatency  farmem 3 them 2 ratio 1.5\n")
            self.assertIn(f"| {cells} |", self.line("| latency in the lab"))
            self.assertIn("| `lab` [txt](results/lab.txt) |", self.line("| `lab`"))

    def test_processors_may_have_short_names(self):
        self.plan(PLAN.replace("[claim_words]", '[words.processor]\n"P" = "the P"\n[claim_words]'))
        self.assertIn("| the P |", self.line("| a of"))

    def changed(self, text):
        self.plan(PLAN + "[[results.thing.changed]]\n" + text)

    def test_a_row_that_was_measured_before_its_benchmark_changed_is_marked(self):
        self.changed('row = "a"\nsince = "2026-01-03T00:00:00Z"\nwhy = "it counted twice"')
        self.assertIn("| `aaaaaaa` § |", self.line("| a of"))
        self.assertIn("- `thing` (1 of its rows): it counted twice.", self.lines())
        self.assertEqual(self.line("| [Area]"), "| [Area](#area) | 1 | 0 | 0 | 0 | 1 |")

    def test_a_change_that_was_measured_since_fails(self):
        self.changed('row = "a"\nsince = "2026-01-02T00:00:00Z"\nwhy = "it counted twice"')
        self.expect("every a was measured after 2026-01-02T00:00:00Z; remove the entry")

    def test_a_change_of_no_row_fails(self):
        self.changed('row = "b"\nsince = "2026-01-03T00:00:00Z"\nwhy = "x"')
        self.expect("results.thing.changed: no row of results/thing.json is b")

    def test_a_change_at_no_time_fails(self):
        self.changed('row = "a"\nsince = 2026-01-03\nwhy = "x"')
        self.expect("not 2026-01-03")

    def test_cells_of_a_matrix_that_differ_from_its_newest_are_marked(self):
        self.plan(PLAN.replace("[results.thing]", """[[area.table]]
title = "All"
result = "thing"
row = "a"
rows = ["size"]
column = "peer_name"
figure = "ratio"
[[results.thing.changed]]
row = "a"
where = {peer_name = "w"}
since = "2026-01-03T00:00:00Z"
why = "it counted twice"
[results.thing]""").replace('claim = "a of {size}"', 'claim = "a of {size}"\nworst_over = "peer_name"'))
        old = {"time": "2026-01-01T00:00:00Z"}
        self.results([row("thing.a", peer_name="x", **old, tree="t0"), row("thing.a", peer_name="y"),
                      row("thing.a", peer_name="z", **old, processor="Q"), row("thing.a", peer_name="w", **old)])
        self.assertIn("Measured: `aaaaaaa`, 2026-01-02, P.", self.lines())
        self.assertIn("| one | 2.00 † | 2.00 | 2.00 ‡ | 2.00 § |", self.lines())

    def test_the_hardest_of_several_peers_is_shown(self):
        self.plan(PLAN.replace('detail = "Why."', 'worst_over = "peer_name"\ngoal = "ratio <= 3"'))
        self.results([row("thing.a", peer_name="x", ratio=1.0), row("thing.a", peer_name="y", ratio=2.0)])
        self.assertIn("y, hardest of 2 | ↓ 2.00", self.line("| a of"))

    def test_a_row_that_was_left_out_says_so(self):
        left = {key: value for key, value in row("thing.a").items() if key not in ("ours", "ratio", "peer_name")}
        self.results([left | {"left_out": "killed"}])
        self.assertIn("| left out: ", self.line("| a of"))

    def test_a_page_that_was_edited_fails(self):
        self.lines()
        (self.root / "README.md").write_text((self.root / "README.md").read_text().replace("2.00", "1.00"))
        status, said = self.run_script("--check")
        self.assertEqual(status, 1)
        self.assertIn("README.md is not what bench/report.py makes of the results", said)

    def test_plots_of_other_results_fail(self):
        self.lines()
        for name in ("ratio_to_goal.svg", "local_share.svg"):
            (self.root / "results" / name).write_text("<!-- data 0123456789abcdef -->")
        status, said = self.run_script("--check")
        self.assertEqual(status, 1)
        self.assertIn("ratio_to_goal.svg was not drawn from these results", said)

    def test_a_result_that_does_not_exist_fails(self):
        self.plan(PLAN.replace('result = "thing"', 'result = "nothing"'))
        self.expect("there is no results/nothing.json")

    def test_a_row_that_does_not_exist_fails(self):
        self.plan(PLAN.replace('row = "a"', 'row = "b"'))
        self.expect("no row of results/thing.json is b")

    def test_a_result_that_is_not_on_the_page_fails(self):
        self.results([row("other.a")], "other")
        self.expect("results/other.json is not on the page")

    def test_a_text_that_is_not_on_the_page_fails(self):
        (self.root / "results" / "more.txt").write_text("\n")
        self.expect("results/more.txt is not on the page")

    def test_a_measured_row_that_is_on_no_table_fails(self):
        self.results([row("thing.a"), row("thing.b")])
        self.expect("b {'size': '1'} is on no table of the page")

    def test_quick_sizes_fail(self):
        self.results([row("thing.a", quick=True)])
        self.expect("is of --quick sizes")

    def test_a_long_cell_fails(self):
        self.plan(PLAN.replace("a of {size}", "a" * 121))
        self.expect("a cell of 121 characters")

    def test_a_mistyped_key_fails(self):
        self.plan(PLAN.replace("detail =", "detial ="))
        self.expect("unknown keys ['detial']")

    def test_two_rows_that_say_the_same_fail(self):
        self.plan(PLAN.replace(" of {size}", ""))
        self.results([row("thing.a"), row("thing.a", parameters={"size": "2"})])
        self.expect("two rows of 'Area' say the same")


class ThisPage(unittest.TestCase):
    """The page of this tree, in a copy."""

    def test_a_changed_figure_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            shutil.copytree(BENCH / "results", copy / "results")
            for name in ("page.toml", "README.md", *(p.name for p in BENCH.glob("*.cc"))):
                shutil.copy(BENCH / name, copy)
            script = [*PYTHON, BENCH / "report.py", "--check", "--root", copy]
            self.assertEqual(subprocess.run(script).returncode, 0)
            zipf = copy / "results" / "zipf.json"
            zipf.write_text(zipf.read_text().replace('"ratio":15.0', '"ratio":16.0', 1))
            done = subprocess.run(script, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("README.md is not what", done.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests of bench/compare: what it says of recorded outputs in which a row changed and in which none did, that it takes turns, and
that it names the rows of one tree only. No figure is measured: programs of the trees here print what the test wants. Also of
bench/support/measured_tree.sh. Run by ctest as structure:bench-compare-self-test."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = 9
NOISE = [0.97, 1.0, 1.04, 0.99, 1.02, 0.98, 1.03, 1.0, 1.01]  # what nothing but the machine does to a figure


def row(name, value, unit="ns", peer="them", **more):
    """A row as the programs of bench/ write it."""
    return {"name": name, "parameters": {"size": "1"}, "unit": unit, "ours": value, "peer": 2.0, "peer_name": peer, "ratio": value / 2.0,
            "ours_detail": {"latency_ns": {"p50": value / 10, "p99": value * 10}}} | more


def micro(name, value, unit="ns", **more):
    """A row as Google Benchmark writes it."""
    return {"name": name, "run_type": "iteration", "real_time": value * 2, "cpu_time": value, "time_unit": unit} | more


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def run_script(self, *options, script=BENCH / "compare"):
        done = subprocess.run([sys.executable, script, *map(str, options)], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr


class Recorded(Compare):
    """What is said of outputs that are there."""

    def setUp(self):
        super().setUp()
        side = {"named": "x", "commit": "aaaaaaa", "tree": "t1"}
        (self.root / "run.json").write_text(json.dumps({
            "time": "2026-01-02T00:00:00Z", "processor": "P", "cores": 2, "load_before": 0.0, "quick": False, "rounds": ROUNDS,
            "rows": ["thing"], "a": side, "b": side | {"commit": "bbbbbbb", "tree": "t2"}}))

    def record(self, a, b, rounds=ROUNDS, program=0):
        """`a` and `b` give the rows of a round; a list of Google Benchmark's rows becomes its one object."""
        for side, rows_of in (("a", a), ("b", b)):
            (self.root / side).mkdir(exist_ok=True)
            for number in range(rounds):
                rows = rows_of(number)
                is_micro = rows and "time_unit" in rows[0]
                text = json.dumps({"context": {}, "benchmarks": rows}) if is_micro else "".join(json.dumps(r) + "\n" for r in rows)
                (self.root / side / f"{number:03}.{program:02}.json").write_text(text)

    def judged(self, *options):
        out = self.root / "out.json"
        status, said, wrong = self.run_script("--recorded", self.root, "--json", out, *options)
        self.assertEqual((status, wrong), (0, ""))
        return {r["name"]: r for r in map(json.loads, out.read_text().splitlines())}, said

    def verdicts(self, *options):
        return {name: r["verdict"] for name, r in self.judged(*options)[0].items()}

    def test_a_row_that_changed_is_told_from_one_that_did_not(self):
        self.record(lambda n: [row("t.changed", 100 * NOISE[n]), row("t.same", 50 * NOISE[n])],
                    lambda n: [row("t.changed", 120 * NOISE[n - 1]), row("t.same", 50 * NOISE[n - 1])])
        rows, said = self.judged()
        self.assertEqual({name: r["verdict"] for name, r in rows.items()}, {"t.changed": "slower", "t.same": "same"})
        changed = rows["t.changed"]
        self.assertEqual((changed["a"], changed["b"], changed["ratio"]), (100, 120, 1.2))
        self.assertEqual((changed["a_min"], changed["a_max"]), (97, 104))
        self.assertAlmostEqual(changed["ratio_min"], 1.2 * 0.98 / 1.03)
        self.assertAlmostEqual(changed["ratio_max"], 1.2 * 1.04 / 0.99)
        self.assertEqual((changed["commit_a"], changed["commit_b"], changed["tree_b"], changed["processor"], changed["time"]),
                         ("aaaaaaa", "bbbbbbb", "t2", "P", "2026-01-02T00:00:00Z"))
        head, rest = said.split("not changed:")
        self.assertIn("t.changed size=1 against=them", head)
        self.assertIn("1.2 [1.142, 1.261]  slower", head)
        self.assertIn("t.same", rest)
        self.assertIn("1 of 2 rows changed; by chance alone about 0.0 would", rest)

    def test_a_higher_rate_is_faster_and_more_bytes_are_more(self):
        self.record(lambda n: [row("t.rate", 100, "MiB/s"), row("t.bytes", 64, "an element"), row("t.ms", 2 * NOISE[n], "ms")],
                    lambda n: [row("t.rate", 200, "MiB/s"), row("t.bytes", 65, "an element"), row("t.ms", NOISE[n], "ms")])
        self.assertEqual(self.verdicts(), {"t.rate": "faster", "t.bytes": "more", "t.ms": "faster"})

    def test_one_round_that_disagrees_is_the_spread(self):
        self.record(lambda n: [row("t.a", 100)], lambda n: [row("t.a", 99 if n == 4 else 130)])
        self.assertEqual(self.verdicts(), {"t.a": "same"})

    def test_a_change_that_is_smaller_than_least_is_none(self):
        self.record(lambda n: [row("t.a", 100 + n / 100)], lambda n: [row("t.a", 101 + n / 100)])
        self.assertEqual(self.verdicts(), {"t.a": "same"})
        self.assertEqual(self.verdicts("--least", "0.005"), {"t.a": "slower"})

    def test_few_rounds_are_not_judged(self):
        self.record(lambda n: [row("t.a", 100)], lambda n: [row("t.a", 200)], rounds=4)
        self.assertEqual(self.verdicts(), {"t.a": "not judged"})

    def test_google_benchmark_rows_are_read_in_one_unit(self):
        self.record(lambda n: [micro("g/changed", 1.0, "us"), micro("g/same", NOISE[n]), micro("g/wall/real_time", 10)],
                    lambda n: [micro("g/changed", 1500), micro("g/same", NOISE[n - 1]), micro("g/wall/real_time", 10),
                               micro("g/same_mean", 9, run_type="aggregate")])
        rows, _ = self.judged()
        self.assertEqual({name: r["verdict"] for name, r in rows.items()},
                         {"g/changed": "slower", "g/same": "same", "g/wall/real_time": "same"})
        self.assertEqual((rows["g/changed"]["a"], rows["g/changed"]["b"], rows["g/wall/real_time"]["a"]), (1000, 1500, 20))

    def test_both_kinds_of_program_go_into_one_report(self):
        self.record(lambda n: [row("t.a", 1)], lambda n: [row("t.a", 1)])
        self.record(lambda n: [micro("g/a", 1)], lambda n: [micro("g/a", 2)], program=1)
        self.assertEqual(self.verdicts(), {"t.a": "same", "g/a": "slower"})

    def test_rows_of_one_tree_only_are_named(self):
        self.record(lambda n: [row("t.old", 1), row("t.both", 1)], lambda n: [row("t.new", 1), row("t.both", 1)])
        rows, said = self.judged()
        self.assertEqual((rows["t.old"]["missing_in"], rows["t.new"]["missing_in"], rows["t.both"]["verdict"]), ("b", "a", "same"))
        self.assertIn("not in A:\n  t.new size=1 against=them\n", said)
        self.assertIn("not in B:\n  t.old size=1 against=them\n", said)
        self.assertIn("0 of 1 rows changed", said)
        self.assertIn("2 could not be compared", said)

    def test_a_program_of_one_tree_only_has_its_rows_named(self):
        self.record(lambda n: [row("t.a", 1)], lambda n: [row("t.a", 1)])
        for path in (self.root / "a").iterdir():
            path.unlink()
        self.assertEqual(self.judged()[0]["t.a"]["missing_in"], "a")

    def test_a_row_that_cannot_run_says_why(self):
        left = {"name": "t.left", "parameters": {}, "unit": "ns", "left_out": "not root"}
        self.record(lambda n: [row("t.left", 1, parameters={}, peer_name="")], lambda n: [left])
        self.record(lambda n: [micro("g/a", 1)], lambda n: [micro("g/a", 1, error_occurred=True, error_message="no memory")], program=1)
        rows, said = self.judged()
        self.assertEqual((rows["t.left"]["missing_in"], rows["t.left"]["why"]), ("b", "left out: not root"))
        self.assertEqual((rows["g/a"]["missing_in"], rows["g/a"]["why"]), ("b", "no memory"))
        self.assertIn("t.left: left out: not root", said)

    def test_a_row_that_some_rounds_lack_is_not_compared(self):
        self.record(lambda n: [row("t.a", 1), row("t.b", 1)], lambda n: [row("t.a", 1)] + ([row("t.b", 2)] if n % 2 else []))
        self.assertEqual(self.judged()[0]["t.b"]["why"], "ran in 4 of 9 rounds")

    def test_rows_that_differ_in_a_parameter_or_in_the_peer_stay_apart(self):
        def rows(of_second):
            return lambda n: [row("t.a", 1), row("t.a", of_second, peer="others"), row("t.a", 1), row("t.a", 1, parameters={"size": "2"})]
        self.record(rows(1), rows(2))
        _, said = self.judged()
        self.assertIn("1 of 4 rows changed", said)
        self.assertIn("slower     t.a size=1 against=others\n", said)
        self.assertIn("t.a size=1 against=them again=2", said)

    def test_another_unit_is_not_compared(self):
        self.record(lambda n: [row("t.a", 1, "ns")], lambda n: [row("t.a", 1000, "us")])
        self.assertIn("units differ: ns, us", self.judged()[0]["t.a"]["why"])

    def test_the_figure_may_be_the_ratio_or_a_quantile(self):
        self.record(lambda n: [row("t.a", 100)], lambda n: [row("t.a", 100, ratio=60.0, ours_detail={"latency_ns": {"p50": 5.0}})])
        self.assertEqual(self.verdicts(), {"t.a": "same"})
        ratio = self.judged("--figure", "ratio")[0]["t.a"]
        self.assertEqual((ratio["a"], ratio["b"], ratio["unit"], ratio["verdict"]), (50, 60, "ns, of the peer's", "slower"))
        self.assertEqual(self.verdicts("--figure", "p50"), {"t.a": "faster"})
        self.assertEqual(self.judged("--figure", "p99")[0]["t.a"]["why"], "has no p99")

    def test_what_cannot_be_read_is_named(self):
        self.record(lambda n: [row("t.a", 1)], lambda n: [{"name": "t.a"}])
        status, _, wrong = self.run_script("--recorded", self.root)
        self.assertEqual(status, 1)
        self.assertIn("b/000.00.json: cannot be read as rows: KeyError('parameters')", wrong)
        status, _, wrong = self.run_script("--recorded", self.root / "a")
        self.assertIn("has no run.json", wrong)


class Run(Compare):
    """Trees whose programs are scripts that log their turns."""

    def program(self, tree, value, name="fake", more=""):
        (tree / "bench").mkdir(parents=True, exist_ok=True)
        (tree / "bench" / f"{name}.cc").touch()
        binary = tree / "build" / "release-bench" / "bench" / f"bench_{name}"
        binary.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(row(f"{name}.a", value))
        binary.write_text(f"#!/bin/sh\necho \"{tree.name} $*\" >>{self.root}/log\n{more}\necho '{line}' >\"$2\"\n")
        binary.chmod(0o755)

    def log(self):
        return (self.root / "log").read_text().splitlines()

    def compare(self, *options):
        """Runs a copy of the script, so that its outputs lie in a folder of the test."""
        script = self.root / "own" / "bench" / "compare"
        (script.parent / "support").mkdir(parents=True, exist_ok=True)
        shutil.copy(BENCH / "compare", script)
        shutil.copy(BENCH / "support" / "measured_tree.sh", script.parent / "support")
        return self.run_script("--no-build", *options, script=script)

    def test_the_trees_take_turns(self):
        self.program(self.root / "one", 1.0)
        self.program(self.root / "two", 2.0)
        out = self.root / "out.json"
        status, said, wrong = self.compare(self.root / "one", self.root / "two", "fake.a", "--rounds", "5", "--json", out, "--", "--more", "1")
        self.assertEqual(status, 0, wrong)
        self.assertEqual([line.split()[0] for line in self.log()], ["one", "two"] * 5)
        self.assertTrue(all(line.endswith("--rounds 3 --only a --more 1") for line in self.log()), self.log())
        self.assertEqual(json.loads(out.read_text())["verdict"], "slower")
        self.assertIn("1 of 1 rows changed; by chance alone about 0.1 would", said)
        folder = wrong.split("outputs are in ")[1].strip()
        self.assertEqual(self.run_script("--recorded", folder)[1], said)

    def test_a_tree_without_the_program_is_said_to_lack_its_rows(self):
        self.program(self.root / "one", 1.0)
        (self.root / "two" / "bench").mkdir(parents=True)
        _, said, _ = self.compare(self.root / "one", self.root / "two", "fake", "--rounds", "5")
        self.assertIn("not in B:\n  fake.a", said)

    def test_a_program_that_fails_ends_it(self):
        self.program(self.root / "one", 1.0)
        self.program(self.root / "two", 2.0, more="echo no room >&2; exit 3")
        status, said, wrong = self.compare(self.root / "one", self.root / "two", "fake")
        self.assertEqual((status, said), (1, ""))
        self.assertIn(f"fake of {self.root / 'two'} failed with status 3:\nno room", wrong)

    def test_a_program_that_hangs_ends_it(self):
        self.program(self.root / "one", 1.0)
        self.program(self.root / "two", 2.0, more="exec sleep 1000")
        status, said, wrong = self.compare(self.root / "one", self.root / "two", "fake", "--within", "2")
        self.assertEqual((status, said), (1, ""))
        self.assertIn("did not end within 2 s", wrong)

    def test_mistakes_are_named(self):
        self.program(self.root / "one", 1.0)
        one = self.root / "one"
        for arguments, message in (((one, "no-such-revision"), "neither a folder nor a revision"), ((one,), "name two trees"),
                                   ((one, one, "other"), "neither tree has a bench/other.cc"), ((one, one, "a/b"), "names no rows"),
                                   ((one, one, "fake", "--rounds", "3"), "at least 5")):
            status, _, wrong = self.compare(*arguments)
            self.assertNotEqual(status, 0)
            self.assertIn(message, wrong)

    @unittest.skipUnless(shutil.which("git"), "needs git")
    def test_revisions_are_worktrees_under_build(self):
        own = self.root / "own"
        git = ["git", "-C", own, "-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
        for value in (1.0, 2.0):
            self.program(own, value)
            if value == 1.0:
                subprocess.run(["git", "init", "-q", own], check=True)
            subprocess.run([*git, "add", "-f", "."], check=True)
            subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
        status, said, wrong = self.compare("HEAD~1", "HEAD", "fake")
        self.assertEqual(status, 0, wrong)
        self.assertIn("1 of 1 rows changed", said)
        commits = [subprocess.run([*git, "rev-parse", c], capture_output=True, text=True).stdout[:7] for c in ("HEAD~1", "HEAD")]
        self.assertIn(f"A: HEAD~1, commit {commits[0]}", said)
        self.assertIn(f"B: HEAD, commit {commits[1]}", said)
        self.assertEqual(len([p for p in (own / "build" / "compare").iterdir() if p.name != "runs"]), 2)


@unittest.skipUnless(shutil.which("git"), "needs git")
class MeasuredTree(unittest.TestCase):
    """What results record of the tree that was measured."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        for name in ("include/a", "src/a", "agent/a", "bench/a.cc", "bench/results/a.json", "docs/a"):
            self.write(name, "1")
        self.commit()

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def commit(self):
        git = ["git", "-C", self.root, "-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)

    def measured(self):
        script = f'. "{BENCH}/support/measured_tree.sh"; echo "$FARMEM_BENCH_COMMIT $FARMEM_BENCH_TREE"'
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.split()

    def test_the_tree_is_that_of_the_library(self):
        commit, tree = self.measured()
        self.assertNotIn("dirty", commit)
        self.write("docs/a", "2")
        self.commit()
        self.assertEqual(self.measured()[1], tree)
        for part in ("include", "src", "agent"):
            self.write(f"{part}/a", "2")
            changed, tree_before = self.measured()[1], tree
            self.assertNotEqual(changed, tree_before)
            self.commit()
            tree = self.measured()[1]
            self.assertEqual(changed, tree)

    def test_a_commit_is_dirty_when_what_measures_or_is_measured_is_not_the_commits(self):
        self.write("bench/results/a.json", "2")
        self.write("docs/a", "2")
        self.assertNotIn("dirty", self.measured()[0])
        for name in ("bench/a.cc", "src/a", "src/new"):
            self.write(name, "3")
            self.assertTrue(self.measured()[0].endswith("-dirty"), name)
            self.commit()
            self.assertNotIn("dirty", self.measured()[0])


if __name__ == "__main__":
    os.environ.pop("GIT_DIR", None)
    unittest.main()

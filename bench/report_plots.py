"""The plots of bench/report.py: how far each metric is from its goal, and throughput against the local share.

A plot's data are plain lists, made without matplotlib. Their digest is written into the SVG, so that --check can tell on any
machine whether a picture was drawn from the results beside it. Only bench/report.py imports this file.
"""
import hashlib
import json

GREEN, ORANGE, GRAY = "#2a7f62", "#c8553d", "#808080"
LINES = ["#1f5a99", "#2a7f62", "#c8553d"]


class Plot:
    def __init__(self, data, draw):
        self.data, self.draw = data, draw
        self.digest = "data " + hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


def margins(areas):
    """For each area: its title, and every metric's margin: 1 is the goal, above is better."""
    return [[area["title"], sorted(round(m.margin, 4) for m in metrics if m.margin)] for area, metrics in areas]


def draw_margins(data, figure):
    axes = figure.subplots()
    for y, (_, values) in enumerate(reversed(data)):
        for met, colour, marker in ((True, GREEN, "o"), (False, ORANGE, "X")):
            shown = [v for v in values if (v >= 1) == met]
            heights = [y + 0.22 * ((n % 3) - 1) for n in range(len(shown))]
            axes.plot(shown, heights, marker, color=colour, markersize=5, alpha=0.75, markeredgewidth=0, linestyle="none")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    everything = [v for _, values in data for v in values]
    axes.set_xlim(min(everything) / 1.6, max(everything) * 1.6)
    axes.set_xticks([0.01, 0.1, 1, 10], ["100 times short", "10 times short", "goal", "10 times better"])
    axes.minorticks_off()
    axes.set_yticks(range(len(data)), [f"{title}  ({sum(v >= 1 for v in values)}/{len(values)})" for title, values in reversed(data)])
    axes.set_ylim(-0.6, len(data) - 0.4)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_title("Each metric against its goal (met / with a goal)", fontsize=11)


def find(loaded, result, name, **parameters):
    for row in loaded.get(result, []):
        if row["name"] == name and all(row["parameters"].get(k) == v for k, v in parameters.items()) and "left_out" not in row:
            return row
    return None


def local_share(loaded):
    """Throughput by local share. Left: of everything local. Right: MiB/s of a scan on fm::paged, and on swap."""
    managed = []
    for work, label in (("mix", "key-value mix"), ("pagerank", "PageRank"), ("pagerank_blocks", "PageRank in blocks")):
        paired = [[int(r["parameters"]["local"][:-1]), round(100 / r["ratio"], 2)] for r in loaded.get("offload", [])
                  if r["name"] == work + "_far" and "ratio" in r]
        # At 13 % nothing was measured against everything local: farmem's figure by that side's of the same run, per operation.
        alone = find(loaded, "offload", work + "_offloaded", local="13%")
        whole = [r["peer"] for r in loaded.get("offload", []) if r["name"] == work + "_far" and "peer" in r]
        unpaired = [[13, round(100 * alone["ours"] * sum(whole) / len(whole) / 1e3, 2)]] if alone and whole else []
        if paired:
            managed.append([label, [[100, 100.0], *sorted(paired, reverse=True)], unpaired])
    paged = {"fm::paged": [], "kernel swap on a RAM disk": []}
    for local in ("75%", "50%", "25%"):
        if row := find(loaded, "paged", "swap_hash", transport="shm", local=local):
            paged["fm::paged"].append([int(local[:-1]), round(row["ours"], 1)])
            paged["kernel swap on a RAM disk"].append([int(local[:-1]), round(row["peer"], 1)])
    plain = find(loaded, "paged", "resident_hash", transport="shm")
    return [managed, [[name, points] for name, points in paged.items()], round(plain["peer"], 1) if plain else None]


def draw_local_share(data, figure):
    managed, paged, plain = data
    left, right = figure.subplots(1, 2)
    for (label, points, unpaired), colour, marker in zip(managed, LINES, "os^"):
        left.plot(*zip(*points), marker=marker, color=colour, label=label)
        if unpaired:
            left.plot(*zip(points[-1], *unpaired), color=colour, linestyle=":")
            left.plot(*zip(*unpaired), marker=marker, color=colour, markerfacecolor="white", linestyle="none")
    left.set_ylim(0, 105)
    left.set_ylabel("throughput, % of all data local")
    left.set_title("fm::heap (shm)", fontsize=11)
    for (label, points), colour, marker in zip(paged, (LINES[0], LINES[2]), "os"):
        right.plot(*zip(*points), marker=marker, color=colour, label=label)
    if plain:
        right.plot([100], [plain], marker="D", color=GRAY, linestyle="none", label="plain memory")
    right.set_ylim(0, None)
    right.set_ylabel("MiB/s of a scan with arithmetic")
    right.set_title("fm::paged, unmodified code (shm)", fontsize=11)
    for axes, ticks in ((left, [100, 50, 25, 13]), (right, [100, 75, 50, 25])):
        axes.set_xscale("log")
        axes.set_xlim(112, 11.5 if axes is left else 22)
        axes.set_xticks(ticks, [f"{t} %" for t in ticks])
        axes.minorticks_off()
        axes.set_xlabel(f"local memory, share of the {'heap' if axes is left else 'data'}")
        axes.grid(color="#dddddd")
        axes.set_axisbelow(True)
        axes.legend(frameon=False, fontsize=9, loc="lower left" if axes is left else "upper right")


def plots(areas, loaded):
    return {"ratio_to_goal.svg": Plot(margins(areas), (draw_margins, (9, 4.2))),
            "local_share.svg": Plot(local_share(loaded), (draw_local_share, (9, 3.6)))}


def draw(made, folder):
    """Writes the pictures; without matplotlib, says so."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return ["the plots were not drawn: python3-matplotlib is not installed"]
    matplotlib.rcParams.update({"svg.hashsalt": "farmem", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9})
    for name, plot in made.items():
        function, size = plot.draw
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_facecolor("white")
        function(plot.data, figure)
        figure.savefig(folder / name, metadata={"Date": None, "Description": plot.digest})
    return []

#!/usr/bin/env python3
"""Draws the figures from what the simulations printed.

    figures.py RESULTS OUTPUT

RESULTS holds one file for each simulation, named by what was simulated: SYSTEM.BENCHMARK.KEY=VALUE...  with lines `label number`.
OUTPUT gets results.json, with every number, and an SVG for each figure that the results suffice for.
"""
import json
import pathlib
import sys
from xml.sax.saxutils import escape

CYCLES_PER_NS = 3.2
PARTS = ("trap", "processing", "interface", "blade")
COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#b0b0b0", "#8172b3", "#c44e52")
MODES = {"software": "software", "accelerated": "accelerator"}


def load(directory):
    """The results, as dictionaries: system, benchmark, settings and figures in one."""
    for path in sorted(directory.iterdir()):
        if path.suffix == ".partial":
            continue
        system, benchmark, *settings = path.name.split(".")
        row = {"system": system, "benchmark": benchmark}
        for setting in settings:
            key, value = setting.split("=")
            row[key] = int(value) if value.isdigit() else value
        for line in path.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) == 2 and words[1].isdigit():
                row[words[0]] = int(words[1])
        if row.get("right", 1) != 1 or row.get("status", 0) != 0:
            sys.exit(f"{path}: the program's result is wrong")
        yield row


class Drawing:
    """A chart of bars with labels below, an axis on the left, a legend on the right."""

    def __init__(self, title, unit, top):
        self.top = max(top, 1e-9)
        self.at = 70
        self.body = [f'<text x="20" y="24" font-size="15">{escape(title)}</text>']
        step = 10 ** (len(str(int(self.top))) - 1)
        while self.top / step < 4:
            step /= 2
        value = 0
        while value <= self.top:
            y = self.height(value)
            label = f"{value:g}"
            self.body.append(f'<line x1="60" x2="620" y1="{y:.1f}" y2="{y:.1f}" stroke="#e0e0e0"/>'
                             f'<text x="55" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
            value += step
        self.body.append(f'<text x="20" y="44" fill="#606060">{escape(unit)}</text>')

    def height(self, value):
        return 300 - 240 * value / self.top

    def bar(self, values, label, width=40, gap=14, colours=COLOURS):
        """One bar of stacked values."""
        below = 0
        for value, colour in zip(values, colours):
            self.body.append(f'<rect x="{self.at}" width="{width}" y="{self.height(below + value):.1f}" '
                             f'height="{self.height(below) - self.height(below + value):.1f}" fill="{colour}"/>')
            below += value
        middle = self.at + width / 2
        self.body.append(f'<text x="{middle}" y="{self.height(below) - 4:.1f}" text-anchor="middle" font-size="10">{f"{below:.0f}" if below >= 100 else f"{below:.3g}"}</text>')
        for line, text in enumerate(label.split("\n")):
            self.body.append(f'<text x="{middle}" y="{314 + 13 * line}" text-anchor="middle" font-size="10">{escape(text)}</text>')
        self.at += width + gap

    def space(self, width):
        self.at += width

    def legend(self, names, colours=COLOURS):
        for line, (name, colour) in enumerate(zip(names, colours)):
            y = 60 + 18 * line
            self.body.append(f'<rect x="630" y="{y}" width="12" height="12" fill="{colour}"/>'
                             f'<text x="647" y="{y + 11}">{escape(name)}</text>')

    def save(self, path):
        path.write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 350" font-family="sans-serif" font-size="11">\n'
                        '<rect width="760" height="350" fill="white"/>\n' + "\n".join(self.body) + "\n</svg>\n")


def parts_of(row):
    """Where the cycles of one touch of a page went, in nanoseconds; on Linux from the kernel's figures."""
    if row["system"] == "linux":
        # Most touches have no page to evict, and none of a queue's needs to see to: the median is one of these.
        total = row["touch_median"]
        latency = row["latency"]
        if row["accelerated"]:
            inside, moving = row["fetch_cycles"] / row["fetches"], row["travel_cycles"] / row["fetches"]
        else:
            inside, moving = row["clean_cycles"] / row["clean_faults"], row["clean_load_cycles"] / row["clean_faults"]
        row = {"trap": total - inside, "processing": inside - moving, "interface": moving - latency, "blade": latency}
    return [row[part] / CYCLES_PER_NS for part in PARTS]


def mode_of(row):
    return row.get("mode") or ("accelerated" if row["accelerated"] else "software")


def breakdown(rows, system, title, path):
    """Figures 10 and 11: where the time of one fetch goes."""
    chosen = [r for r in rows if r["system"] == system and r["benchmark"] == "touch"]
    if not chosen:
        return {}
    chosen.sort(key=lambda r: (-r["latency"], mode_of(r) != "software"))
    bars = [(r, parts_of(r)) for r in chosen]
    drawing = Drawing(title, "ns for one page", max(sum(p) for _, p in bars))
    drawing.legend(PARTS)
    totals = {}
    for row, parts in bars:
        drawing.bar(parts, f"{MODES[mode_of(row)]}\n{row['latency'] / CYCLES_PER_NS:.0f} ns", width=90, gap=30)
        totals[(row["latency"], mode_of(row))] = sum(parts)
    drawing.save(path)
    return {f"{system}_fetch_ratio_at_{latency}_cycles": round(totals[(latency, "software")] / totals[(latency, "accelerated")], 3)
            for latency, mode in totals if mode == "accelerated" and (latency, "software") in totals}


def runs(rows, system, benchmark):
    """Runs of a benchmark by share of local memory and mode."""
    found = {}
    for row in rows:
        if row["system"] == system and row["benchmark"] == benchmark and "local" in row:
            found[(row["local"], mode_of(row))] = row
    return found


def compared(rows, system, benchmark, figure, title, unit, value, path):
    """Bars of a value for software and accelerator, at each share of local memory."""
    found = runs(rows, system, benchmark)
    shares = sorted({share for share, _ in found}, reverse=True)
    pairs = [(share, [value(found[(share, mode)], found) if (share, mode) in found else None for mode in MODES]) for share in shares]
    pairs = [(share, values) for share, values in pairs if None not in values]
    if not pairs:
        return {}
    drawing = Drawing(title, unit, max(max(values) for _, values in pairs))
    drawing.legend(MODES.values())
    for share, values in pairs:
        for index, number in enumerate(values):
            drawing.bar([number], f"{share}%" if index == 0 else "", width=44, gap=4, colours=COLOURS[index:])
        drawing.space(30)
    drawing.save(path)
    return {f"{system}_{benchmark}_{figure}_{share}": {"software": values[0], "accelerated": values[1],
                                                     "ratio": round(values[0] / values[1], 3) if values[1] else None}
            for share, values in pairs}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    results, output = map(pathlib.Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    rows = list(load(results))
    summary = {}
    for system, name in (("bare", "bare metal"), ("linux", "Linux")):
        summary |= breakdown(rows, system, f"Fetch of one page, {name} (as Figures 10 and 11)", output / f"{system}-fetch.svg")
        for benchmark in ("quicksort", "gen"):
            def local(found):
                return next((r["cycles"] for (share, _), r in found.items() if share == 100), None)

            summary |= compared(rows, system, benchmark, "slowdown", f"{benchmark}, {name}: run time (as Figures 9 and 14)",
                                "times that of local memory only", lambda r, found: r["cycles"] / local(found),
                                output / f"{system}-{benchmark}-runtime.svg") if local(runs(rows, system, benchmark)) else {}
            summary |= compared(rows, system, benchmark, "faults", f"{benchmark}, {name}: faults for paging (as Figure 12)",
                                "faults", lambda r, found: r["swap_faults"] + r["queue_faults"] if r["system"] == "linux" else r["faults"],
                                output / f"{system}-{benchmark}-faults.svg")
            summary |= compared(rows, system, benchmark, "bookkeeping", f"{benchmark}, {name}: the system's own time (as Figure 13)",
                                "million cycles in handlers, without transfers",
                                lambda r, found: ((r["paging_cycles"] - r["load_cycles"] - r["store_cycles"]) if r["system"] == "linux"
                                                  else r["fault_cycles"] - r["transfer_cycles"]) / 1e6,
                                output / f"{system}-{benchmark}-bookkeeping.svg")
    (output / "results.json").write_text(json.dumps({"summary": summary, "runs": rows}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()

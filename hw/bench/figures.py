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
PAGE_KIB = 4
PARTS = ("trap", "processing", "interface", "blade")
COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#b0b0b0", "#8172b3", "#c44e52")
MODES = {"software": "software", "accelerated": "accelerator"}


def load(directory):
    """The results, as dictionaries: system, benchmark, settings and figures in one."""
    for path in sorted(directory.iterdir()):
        if path.suffix in (".partial", ".json"):
            continue
        system, benchmark, *settings = path.name.split(".")
        row = {"system": system, "benchmark": benchmark}
        for setting in settings:
            key, value = setting.split("=")
            row[key] = int(value) if value.isdigit() else value
        for line in path.read_text(errors="replace").splitlines():
            words = line.split()
            # Of several clients the one that fared worst.
            if len(words) == 3 and words[0][-1] == ":" and words[2].isdigit():
                row[words[1]] = max(row.get(words[1], 0), int(words[2]))
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
        # Means of touches that had no page to evict, and no queue's needs to see to. Fetches of the accelerator are all alike: their trap is
        # what a touch takes beyond the fetch unit. Software's is what all touches took beyond the handlers; faults elsewhere don't count.
        latency = row["latency"]
        if row["accelerated"]:
            inside, moving = row["fetch_cycles"] / row["fetches"], row["travel_cycles"] / row["fetches"]
            trap = row["touch_median"] - inside
        else:
            inside, moving = row["clean_cycles"] / row["clean_faults"], row["clean_load_cycles"] / row["clean_faults"]
            elsewhere = (row["loads"] - row["touched"]) * inside
            trap = (row["touch_total"] - row["paging_cycles"] + elsewhere) / row["touched"]
        row = {"trap": trap, "processing": inside - moving, "interface": moving - latency, "blade": latency}
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


def runs(rows, benchmark, pages):
    """Runs of a benchmark under Linux by share of local memory and mode."""
    return {(row["local"], mode_of(row)): row for row in rows
            if row["system"] == "linux" and row["benchmark"] == benchmark and row.get("pages") == pages}


def compared(found, name, title, unit, value, path):
    """Bars of a value for software and accelerator, at each share of local memory."""
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
    return {f"{name}_{share}": {"software": round(values[0], 3), "accelerated": round(values[1], 3),
                                "ratio": round(values[0] / values[1], 3) if values[1] else None}
            for share, values in pairs}


def fetched(row):
    """Pages that came from the blade, by faults and by the accelerator."""
    return row["loads"] + row["fetches"]


def system_faults(row):
    """Faults, and interrupts, because of paging."""
    return row["swap_faults"] + row["queue_faults"] + row["interrupts"]


def bookkeeping(row):
    """The kernel's cycles for a page that comes: without its transfer, and without the reclaim that makes room."""
    return (row["paging_cycles"] - row["load_cycles"] - row["paging_reclaim_cycles"]) / fetched(row)


def swept(rows, benchmark, key, title, unit, value, path):
    """Bars of a value over one setting."""
    found = sorted(((row[key], value(row)) for row in rows if row["system"] == "linux" and row["benchmark"] == benchmark))
    if not found:
        return {}
    drawing = Drawing(title, unit, max(number for _, number in found))
    for setting, number in found:
        drawing.bar([number], str(setting), width=50, gap=24)
    drawing.save(path)
    return {f"{path.stem}_{setting}": round(number, 1) for setting, number in found}


def tails(rows, path):
    """How long touches of pages that were away took, with more and more clients of one blade."""
    found = sorted((row for row in rows if row["benchmark"] == "clients"), key=lambda row: (row["clients"], row["mode"] != "software"))
    if not found:
        return {}
    drawing = Drawing("Wait for a page, clients of one blade (§6)", "thousand cycles", max(row["touch_99"] for row in found) / 1e3)
    names = ("median", "90%", "99%")
    drawing.legend(names)
    summary = {}
    for row in found:
        values = [row["touch_median"] / 1e3, row["touch_90"] / 1e3, row["touch_99"] / 1e3]
        for index, number in enumerate(values):
            drawing.bar([number], f"{row['clients']}, {MODES[row['mode']]}" if index == 1 else "", width=24, gap=2, colours=COLOURS[index:])
        drawing.space(14)
        summary[f"clients_{row['clients']}_{row['mode']}"] = dict(zip(names, values)) | {"longest": row["touch_longest"] / 1e3}
    drawing.save(path)
    return summary


def service(rows):
    """What had to interrupt a program with pauses, for each way of serving the queues."""
    return {f"service_{row['how']}": {key: row[key] for key in ("fetches", "queue_faults", "interrupts", "kpfad_runs", "kpfad_booked")}
            for row in rows if row["benchmark"] == "service"}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    results, output = map(pathlib.Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    rows = list(load(results))
    summary = {}
    for system, name in (("bare", "bare metal"), ("linux", "Linux")):
        summary |= breakdown(rows, system, f"Fetch of one page, {name} (as Figures 10 and 11)", output / f"{system}-fetch.svg")
    for benchmark, pages in sorted({(row["benchmark"], row["pages"]) for row in rows if row["benchmark"] in ("quicksort", "gen")}):
        found = runs(rows, benchmark, pages)
        name = f"{benchmark}-{pages * PAGE_KIB}K"

        def draw(figure, title, unit, value):
            return compared(found, f"{name}_{figure}", f"{benchmark} of {pages * PAGE_KIB} KiB: {title}", unit, value,
                            output / f"linux-{name}-{figure}.svg")

        if (100, "software") in found:
            alone = found[(100, "software")]["cycles"]
            summary |= draw("runtime", "run time (as Figures 9 and 14)", "times that of local memory only", lambda row: row["cycles"] / alone)
        summary |= draw("faults", "faults for paging (as Figure 12)", "faults", system_faults)
        summary |= draw("bookkeeping", "bookkeeping of a page (as Figure 13)", "cycles", bookkeeping)
        summary |= draw("kernel", "handlers, reclaim and all", "thousand cycles for a page",
                        lambda row: (row["paging_cycles"] - row["load_cycles"]) / fetched(row) / 1e3)
    for benchmark, key, of in (("depth", "accelerated", "frames in the FreeQ"), ("evictions", "evictions", "evictions at once"),
                               ("period", "threshold", "pages in the NewQ for an interrupt")):
        summary |= swept(rows, benchmark, key, f"Run time by {of}", "million cycles", lambda row: row["cycles"] / 1e6,
                         output / f"linux-{benchmark}-runtime.svg")
        summary |= swept(rows, benchmark, key, f"Bookkeeping of a page by {of}", "cycles", bookkeeping,
                         output / f"linux-{benchmark}-bookkeeping.svg")
        summary |= swept(rows, benchmark, key, f"Faults and interrupts by {of}", "faults and interrupts", system_faults,
                         output / f"linux-{benchmark}-faults.svg")
    summary |= tails(rows, output / "clients.svg")
    summary |= service(rows)
    if (results / "area.json").exists():
        summary["area"] = json.loads((results / "area.json").read_text())
    (output / "results.json").write_text(json.dumps({"summary": summary, "runs": rows}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()

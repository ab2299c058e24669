#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws the figures from what the simulations printed.

    figures.py RESULTS OUTPUT [RECORDED [--keep]]

RESULTS holds one file for each simulation, named by what was simulated: SYSTEM.BENCHMARK.KEY=VALUE...  with lines `label number`.
OUTPUT gets results.json, with every number and what it was made from, and an SVG for each figure that the results suffice for. RECORDED is
a results.json of before: simulations repeat exactly, so what differs from it is named, and the exit status is 3. With --keep that is no error,
and runs on record that were not simulated again are kept, drawn, too, and still say what they were made from.
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
# Software that does not wait for its evictions either, where that was simulated.
ASYNCHRONOUS = "asynchronous"
BARS = {"software": "software", "accelerated": "accelerator", ASYNCHRONOUS: "not waiting"}
NAMES = {"bare": "bare metal", "linux": "Linux"}
# Linux's way to its handler and back, in cycles, where the run that measures it is missing.
SOFTWARE_TRAP = 698
# The accelerator's: the failed walk, the way to it, and the repeated walk.
ACCELERATOR_TRAP = 208
# The exit status where figures are drawn, but not as they were recorded.
DRIFTED = 3
# Of runs that were recorded before runs said what they were made from.
MADE_UNKNOWN = {"commit": "ab36600c or before it", "kernel": "linux-source-6.1, of an unknown version"}
# What tells a run from others: the words of its file's name.
SETTINGS = ("system", "benchmark", "how", "clients", "mode", "pages", "local", "latency", "accelerated", "evictions", "threshold")


def load(directory):
    """The results, as dictionaries: system, benchmark, settings and figures in one."""
    for path in sorted(directory.iterdir()):
        if path.suffix in (".partial", ".json", ".txt"):
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
            # The kernel's list of figures has one that is called like a setting.
            if len(words) == 2 and words[1].isdigit() and words[0] not in SETTINGS:
                row[words[0]] = int(words[1])
        if row.get("right", 1) != 1 or row.get("status", 0) != 0:
            sys.exit(f"{path}: the program's result is wrong")
        yield row


def software_trap(rows):
    """What touches of 32 pages took beyond the handlers. With more pages some of the program's other faults evict, too, and can't be told
    from those of touches. It depends neither on the blade nor on the client. None where that run had other faults that brought a page."""
    for row in rows:
        if row["benchmark"] == "trap":
            if row["swap_faults"] != row["touched"]:
                print(f"software's trap was not measured: {row['touched']} touches, {row['swap_faults']} faults", file=sys.stderr)
                return None
            return (row["touch_total"] - row["paging_cycles"]) / row["touched"]
    return None


class Drawing:
    """A chart of bars with labels below, an axis on the left, a legend on the right."""

    def __init__(self, title, unit, top):
        # The number above the highest bar has room below the unit.
        self.top = max(top * 1.06, 1e-9)
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
        # what a touch takes beyond the fetch unit.
        latency = row["latency"]
        if row["accelerated"]:
            inside, moving = row["fetch_cycles"] / row["fetches"], row["travel_cycles"] / row["fetches"]
            trap = row["touch_median"] - inside
        else:
            inside, moving = row["clean_cycles"] / row["clean_faults"], row["clean_load_cycles"] / row["clean_faults"]
            trap = SOFTWARE_TRAP
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


def asynchronous(row):
    """Software's paging that does not wait for its evictions."""
    return mode_of(row) == "software" and row.get("evictions", 0) > 0


def end_to_end(rows):
    """How much faster a program is than with software that waits for evictions, and than with software that does not."""
    summary = {}
    for row in rows:
        if row["system"] != "linux" or row["benchmark"] not in ("quicksort", "gen") or mode_of(row) != "accelerated":
            continue
        same = [other for other in rows if all(other.get(key) == row.get(key) for key in ("system", "benchmark", "pages", "local", "latency"))]
        label = f"{row['benchmark']} {row['pages'] * PAGE_KIB}K {row['local']}% {row['latency']}"
        summary[label] = {(ASYNCHRONOUS if asynchronous(other) else "waiting"): other["cycles"] / row["cycles"]
                          for other in same if mode_of(other) == "software"}
    return {"end_to_end": summary} if summary else {}


def programs(rows, system, latency):
    """The paper's benchmarks at one blade: (benchmark, pages, share, run with local memory only, run for each mode), as far as there are both
    modes. Software that does not wait is a third one, where it was simulated."""
    found = {(row["benchmark"], row["pages"], row["local"], ASYNCHRONOUS if asynchronous(row) else mode_of(row), row["latency"]): row
             for row in rows if row["system"] == system and row["benchmark"] in ("quicksort", "gen")}
    groups = []
    for benchmark, pages, share in sorted({key[:3] for key in found}, key=lambda key: (key[0] != "quicksort", key[1], -key[2])):
        # Without paging the blade does not matter, nor who would fetch.
        alone = [row for key, row in found.items() if key[:3] == (benchmark, pages, 100)]
        both = {mode: found.get((benchmark, pages, share, mode, latency)) for mode in MODES}
        if alone and share != 100 and None not in both.values():
            third = found.get((benchmark, pages, share, ASYNCHRONOUS, latency))
            groups.append((benchmark, pages, share, alone[0], both | ({ASYNCHRONOUS: third} if third else {})))
    return groups


def compared(groups, title, unit, value, path, bars=BARS):
    """Bars of a value for software and accelerator, for each program; `value` is given a run and the one with local memory only."""
    if not groups:
        return {}
    pairs = [(f"{benchmark} {pages * PAGE_KIB}K {share}%", {mode: value(row, alone) for mode, row in runs.items() if mode in bars})
             for benchmark, pages, share, alone, runs in groups]
    drawing = Drawing(title, unit, max(max(values.values()) for _, values in pairs))
    most = max(len(values) for _, values in pairs)
    drawing.legend(list(bars.values())[:most])
    width = min(44, (540 / len(pairs) - 12) / most)
    for label, values in pairs:
        for index, number in enumerate(values.values()):
            drawing.bar([number], label.replace(" ", "\n") if index == 0 else "", width=width, gap=2, colours=COLOURS[index:])
        drawing.space(10)
    drawing.save(path)
    return {label: values | {"ratio": values["software"] / values["accelerated"]} for label, values in pairs if values["accelerated"]}


def rounded(value):
    """A summary's numbers without digits that say nothing."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return round(value, 3 if abs(value) < 1000 else 1) if isinstance(value, float) else value


def fetched(row):
    """Pages that came from the blade, by faults and by the accelerator."""
    return row["loads"] + row["fetches"]


def system_faults(row):
    """Faults, and interrupts, because of paging."""
    return row["swap_faults"] + row["queue_faults"] + row["interrupts"]


def bookkeeping(row):
    """The kernel's cycles for a page that comes: without its transfer, and without the reclaim that makes room."""
    return (row["paging_cycles"] - row["load_cycles"] - row["paging_reclaim_cycles"]) / fetched(row)


def fetch_cycles(row, alone):
    """What stands between a program and its page: mean of faults that had no page to evict; or of fetches."""
    del alone
    if row["accelerated"]:
        return ACCELERATOR_TRAP + row["fetch_cycles"] / row["fetches"]
    return SOFTWARE_TRAP + row["clean_cycles"] / max(row["clean_faults"], 1)


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
            | {"bookkeeping": bookkeeping(row), "cycles": row["cycles"]} for row in rows if row["benchmark"] == "service"}


def main():
    if len(sys.argv) not in (3, 4, 5) or sys.argv[4:] not in ([], ["--keep"]):
        sys.exit(__doc__)
    results, output = map(pathlib.Path, sys.argv[1:3])
    recorded = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    keep = len(sys.argv) == 5
    output.mkdir(parents=True, exist_ok=True)
    rows = list(load(results))
    drift = compare(rows, recorded) if recorded else 0
    made = provenance(rows, results, recorded if keep else None)
    summary = {}
    trap = software_trap(rows)
    if trap is not None:
        globals()["SOFTWARE_TRAP"] = trap
        summary["software_trap_cycles"] = trap
    for system, name in NAMES.items():
        summary |= breakdown(rows, system, f"Fetch of one page, {name} (as Figures 10 and 11)", output / f"{system}-fetch.svg")
    latencies = sorted({row["latency"] for row in rows if "latency" in row}, reverse=True)
    for system, latency in ((system, latency) for system in ("bare", "linux") for latency in latencies):
        groups = programs(rows, system, latency)
        blade = f"blade of {latency / CYCLES_PER_NS:.0f} ns"

        def draw(figure, title, unit, value, only=None):
            name = f"{system}-{figure}-{latency}"
            # Only how long a program runs is another matter for software that does not wait.
            found = compared([group for group in groups if only in (None, group[0])], f"{title}, {blade}", unit, value, output / f"{name}.svg",
                             BARS if only else MODES)
            return {name: found} if found else {}

        # One figure for each program: they differ by an order of magnitude.
        for benchmark in ("quicksort", "gen"):
            summary |= draw(f"{benchmark}-runtime", f"Run time of {benchmark}, {NAMES[system]} (as Figures 9 and 14)", "times that of local memory only",
                            lambda row, alone: row["cycles"] / alone["cycles"], benchmark)
        if system == "linux":
            summary |= draw("inside", "Fetch of a page inside of programs", "cycles, trap and all", fetch_cycles)
            summary |= draw("faults", "Faults for paging (as Figure 12)", "faults", lambda row, _: system_faults(row))
            summary |= draw("bookkeeping", "Bookkeeping of a page (as Figure 13)", "cycles", lambda row, _: bookkeeping(row))
            summary |= draw("kernel", "Handlers, reclaim and all", "thousand cycles for a page",
                            lambda row, _: (row["paging_cycles"] - row["load_cycles"]) / fetched(row) / 1e3)
    for benchmark, key, of in (("depth", "accelerated", "frames in the FreeQ"), ("depth_gen", "accelerated", "frames in the FreeQ, gen"),
                               ("depth_quicksort", "accelerated", "frames in the FreeQ, quicksort"), ("evictions", "evictions", "evictions at once"),
                               ("period", "threshold", "pages in the NewQ for an interrupt")):
        summary |= swept(rows, benchmark, key, f"Run time by {of}", "million cycles", lambda row: row["cycles"] / 1e6,
                         output / f"linux-{benchmark}-runtime.svg")
        summary |= swept(rows, benchmark, key, f"Bookkeeping of a page by {of}", "cycles", bookkeeping,
                         output / f"linux-{benchmark}-bookkeeping.svg")
        summary |= swept(rows, benchmark, key, f"Faults and interrupts by {of}", "faults and interrupts", system_faults,
                         output / f"linux-{benchmark}-faults.svg")
    summary |= tails(rows, output / "clients.svg")
    summary |= end_to_end(rows)
    summary |= service(rows)
    area = results / "area.json"
    if area.exists():
        summary["area"] = json.loads(area.read_text())
    elif keep and recorded.exists():
        summary |= {"area": before for name, before in json.loads(recorded.read_text())["summary"].items() if name == "area"}
    summary = rounded(summary)
    (output / "results.json").write_text('{"made": ' + json.dumps(made, indent=1) + ',\n"summary": ' + json.dumps(summary, indent=1) + ',\n"runs": [\n'
                                         + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n")
    print(json.dumps(summary, indent=1))
    if drift and not keep:
        sys.exit(DRIFTED)


def settings(row):
    return " ".join(f"{key}={row[key]}" for key in SETTINGS if key in row)


def provenance(rows, results, recorded):
    """What the runs were made from and with: a list, of which each row names its part. Adds those that are on record only."""
    text = results / "provenance.txt"
    made = [dict(line.split(" ", 1) for line in text.read_text().splitlines() if " " in line) if text.exists() else {}]
    simulated = {settings(row) for row in rows}
    for row in rows:
        row["made"] = 0
    if recorded and recorded.exists():
        before = json.loads(recorded.read_text())
        for row in before["runs"]:
            if settings(row) in simulated:
                continue
            part = before["made"][row["made"]] if "made" in row else MADE_UNKNOWN
            if part not in made:
                made.append(part)
            rows.append(row | {"made": made.index(part)})
        rows.sort(key=settings)
    return made


def compare(rows, recorded):
    """Says which runs are not as they were recorded, and how many."""
    if not recorded.exists():
        return 0
    before = {settings(row): {key: row[key] for key in row if key != "made"} for row in json.loads(recorded.read_text())["runs"]}
    both = [row for row in rows if settings(row) in before]
    other = [settings(row) for row in both if row != before[settings(row)]]
    print(f"{len(both) - len(other)} of {len(rows)} runs are as recorded in {recorded.name}, {len(other)} differ", file=sys.stderr)
    for name in other:
        print(f"differs: {name}", file=sys.stderr)
    return len(other)


if __name__ == "__main__":
    main()

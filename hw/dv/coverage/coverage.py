#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Adds up what simulations have covered of each module, and compares it with the thresholds.

    coverage.py THRESHOLDS [--missing] COVERAGE:VERILOG...

COVERAGE is what Verilator counted in one simulation of the design in VERILOG. A module that stands in several
designs counts once: a branch or a bit is covered when any simulation has covered it in any instance. Branches are told
apart by their distance from the beginning of their module.

Verilator counts no branch that ends the simulation: assertions are not counted. Signals that Chisel gave no name are
not counted, nor are the random values of registers. With --missing the output has each branch and each bit that is not
covered.

Status 1 where a module is below its threshold.
"""
import pathlib
import re
import sys
import tomllib
from collections import defaultdict

POINT = re.compile(r"^C '(.*)' (\d+)$")
KINDS = ("line", "toggle")


def module_lines(verilog):
    """For each line of a design: the module that it is in, and where that one begins."""
    lines, name, begin = [("", 0)], "", 0
    for number, text in enumerate(verilog.read_text().splitlines(), 1):
        if text.startswith("module "):
            name, begin = re.match(r"module (\w+)", text).group(1), number
        lines.append((name, begin))
    return lines


def read(coverage, verilog):
    """The points of one simulation: (kind, module, name), the place in Scala, and whether it was met."""
    places = module_lines(verilog)
    source = verilog.read_text().splitlines()
    for line in coverage.read_text().splitlines():
        match = POINT.match(line)
        if not match:
            continue
        fields = dict(part.split("\x02", 1) for part in match.group(1).split("\x01") if "\x02" in part)
        kind = fields["page"].split("/")[0].removeprefix("v_")
        number = int(fields["l"])
        module, begin = places[number]
        if kind not in KINDS:
            continue
        name = fields["o"]
        if kind == "line":
            name = f"{number - begin}:{fields['n']} {name}"
        scala = re.search(r"@\[(\S+ \d+):", source[number - 1])
        yield (kind, module, name), scala.group(1) if scala else "", int(match.group(2)) > 0


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--missing"]
    if len(arguments) < 2:
        sys.exit(__doc__)
    thresholds = tomllib.loads(pathlib.Path(arguments[0]).read_text())
    met, scala_of = defaultdict(bool), {}
    for pair in arguments[1:]:
        coverage, verilog = map(pathlib.Path, pair.split(":"))
        for key, scala, hit in read(coverage, verilog):
            met[key] |= hit
            scala_of.setdefault(key, scala)
    below = 0
    print(f"{'module':22} {'branches':>16} {'bits':>18}")
    for module, wanted in thresholds.items():
        cells = []
        for kind in KINDS:
            points = [hit for key, hit in met.items() if key[:2] == (kind, module)]
            # A module without branches has none to miss.
            share = 100 * sum(points) / len(points) if points else 100.0 if kind == "line" else 0.0
            short = share < wanted[kind]
            below += short
            cells.append(f"{sum(points)}/{len(points)} {share:5.1f}%{' !' if short else '  '}")
        print(f"{module:22} {cells[0]:>16} {cells[1]:>18}   wanted {wanted['line']} {wanted['toggle']}")
    if "--missing" in sys.argv:
        for key, hit in met.items():
            if not hit and key[1] in thresholds:
                print("not covered:", *key, scala_of[key])
    if below:
        print(f"{below} shares are below what {arguments[0]} wants")
        sys.exit(1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Area and logic depth of parts of the system, by Yosys.

    area.py SYSTEM.v MODULE...        prints JSON

Each module is flattened and mapped to two-input gates; memories (queues, register file) become flip-flops.
Depth is the longest path of gates between registers or ports. Adders are ripple-carry: a measure for comparison, not a prediction of a clock.
"""
import json
import re
import subprocess
import sys
import tempfile

SCRIPT = """
read_verilog -DSYNTHESIS {verilog}
hierarchy -top {module}
proc; flatten; opt -fast; memory; opt -fast
techmap; opt -fast
abc -fast -g AND,NAND,OR,NOR,XOR,XNOR,MUX
opt_clean
tee -o {work}/stat.json stat -json
tee -o {work}/depth ltp -noff
"""
GATES = {"$_AND_", "$_NAND_", "$_OR_", "$_NOR_", "$_XOR_", "$_XNOR_", "$_MUX_", "$_NOT_", "$_ANDNOT_", "$_ORNOT_"}


def measure(verilog, module):
    with tempfile.TemporaryDirectory() as work:
        script = SCRIPT.format(verilog=verilog, module=module, work=work)
        subprocess.run(["yosys", "-q", "-p", script], check=True, stdout=subprocess.DEVNULL)
        with open(f"{work}/stat.json", encoding="ascii") as file:
            design = json.load(file)["design"]
        with open(f"{work}/depth", encoding="ascii") as file:
            depth = re.search(r"length=(\d+)", file.read())
    cells = design["num_cells_by_type"]
    return {
        "gates": sum(n for cell, n in cells.items() if cell in GATES),
        "flip_flops": sum(n for cell, n in cells.items() if "DFF" in cell),
        "depth": int(depth[1]) if depth else None,
    }


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(json.dumps({module: measure(sys.argv[1], module) for module in sys.argv[2:]}, indent=1))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Proves the assertions of one unit with Yosys.

    prove.py UNIT.v TOP CYCLES [--assume TEXT]...

The same assertions that stop a simulation become properties. Those whose message contains a TEXT are the environment's part of the
contract: they are assumed. First every state that can be reached within CYCLES of a reset is checked, then induction is tried; the
result says which of the two held. Exits with 1 when a property fails.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ASSERTION = re.compile(
    r"`ifndef SYNTHESIS\s+`ifdef PRINTF_COND\s+if \(`PRINTF_COND\) begin\s+`endif\s+if \((?P<a>\w+)\) begin\s+"
    r"\$fwrite\(32'h80000002,\"Assertion failed: (?P<message>[^\\\"]*)[^\n]*\n\s+end\s+`ifdef PRINTF_COND\s+end\s+`endif\s+`endif[^\n]*\n"
    r"\s+`ifndef SYNTHESIS\s+`ifdef STOP_COND\s+if \(`STOP_COND\) begin\s+`endif\s+if \((?P<b>\w+)\) begin\s+\$fatal;[^\n]*\n\s+end\s+"
    r"`ifdef STOP_COND\s+end\s+`endif\s+`endif[^\n]*\n")


def properties(verilog, assumed):
    """Turns what would stop a simulation into assert and assume statements."""
    counts = {"assert": 0, "assume": 0}

    def replace(match):
        if match["a"] != match["b"]:
            raise ValueError("message and stop belong to different assertions")
        kind = "assume" if any(text in match["message"] for text in assumed) else "assert"
        counts[kind] += 1
        return f"{kind}(!{match['a']});\n"

    text = ASSERTION.sub(replace, verilog)
    if "$fatal" in text:
        raise ValueError("an assertion was not recognised")
    return text, counts


def yosys(script):
    return subprocess.run(["yosys", "-q", "-p", script], capture_output=True, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verilog", type=pathlib.Path)
    parser.add_argument("top")
    parser.add_argument("cycles", type=int)
    parser.add_argument("--assume", action="append", default=[])
    arguments = parser.parse_args()
    text, counts = properties(arguments.verilog.read_text(), arguments.assume)
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory, "unit.sv")
        source.write_text(text)
        load = (f"read_verilog -sv -formal {source}; prep -top {arguments.top} -flatten; memory_map; "
                f"opt -full; async2sync; dffunmap; opt_clean; ")
        common = "-set-assumes -prove-asserts -verify -timeout 200"
        bounded = yosys(f"{load} sat {common} -seq 1 -set-at 1 reset 1 -tempinduct-baseonly -maxsteps {arguments.cycles}")
        if bounded.returncode:
            print(bounded.stdout[-3000:], bounded.stderr[-3000:])
            print(f"{arguments.top}: a property fails")
            return 1
        induction = yosys(f"{load} sat {common} -tempinduct-inductonly -seq 1 -set reset 0 -maxsteps {arguments.cycles}")
    unbounded = "and by induction for ever" if induction.returncode == 0 else "induction finds no end"
    print(f"{arguments.top}: {counts['assert']} properties hold for {arguments.cycles} cycles after a reset, {unbounded} "
          f"({counts['assume']} assumed of the environment)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

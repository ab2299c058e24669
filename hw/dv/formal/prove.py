#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Proves the assertions of one unit with Yosys and ABC.

    prove.py UNIT.v TOP [--assume TEXT]... [--covers] [--seconds N]

The same assertions that stop a simulation become properties. Those whose message contains a TEXT are the environment's part of the
contract: they are assumed, as are those that begin with "environment: ". Registers hold anything at first, the first cycle is a reset, and later ones may be. ABC's property-directed
reachability looks for an invariant from which the properties follow: what it proves holds for ever. If it finds none in N seconds, the
result says for how many cycles they hold. Exits with 1 when a property fails, and shows how.

With --covers the properties whose message begins with "cover: " say what is never reached: each must fail, or the proofs of the others
could hold of a circuit that does nothing.
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
RESET_FIRST = """  reg first_cycle = 1;
  always @(posedge clock) first_cycle <= 0;
  always @* assume(!first_cycle || reset);
"""
PREPARE = "prep -top {top} -flatten; memory_map; opt -full; async2sync; dffunmap; "


def properties(verilog, assumed, covers):
    """Turns what would stop a simulation into assert and assume statements."""
    counts = {"assert": 0, "assume": 0}
    names = []

    def replace(match):
        if match["a"] != match["b"]:
            raise ValueError("message and stop belong to different assertions")
        message = match["message"]
        environment = message.startswith("environment: ") or any(text in message for text in assumed)
        kind = "assume" if environment else "assert"
        if kind == "assert":
            if message.startswith("cover: ") != covers:
                return ";\n"
            names.append(message)
        counts[kind] += 1
        return f"{kind}(!{match['a']});\n"

    text = ASSERTION.sub(replace, verilog)
    if "$fatal" in text:
        raise ValueError("an assertion was not recognised")
    return text, counts, names


def reset_first(verilog, top):
    """The first cycle is a reset."""
    end = verilog.index("endmodule", verilog.index(f"module {top}("))
    return verilog[:end] + RESET_FIRST + verilog[end:]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def circuit(source, top, path):
    """Gates and registers, with an output for each property; what nobody drives is free in each cycle."""
    made = run("yosys", "-q", "-p", f"read_verilog -sv -formal {source}; {PREPARE.format(top=top)} setundef -undriven -anyseq; techmap; "
               f"opt -full; dfflegalize -cell $_DFF_P_ 01; abc -g AND -fast; delete -output {top}/o:*; opt_clean; write_aiger -zinit {path}")
    if made.returncode:
        sys.exit(f"{top}: {made.stderr[-3000:]}")


def counterexample(source, top, cycles):
    """The values of a run of so many cycles that ends with a property's failure."""
    found = run("yosys", "-p", f"read_verilog -sv -formal {source}; {PREPARE.format(top=top)} opt_clean; sat -set-assumes "
                f"-prove-asserts -verify -timeout 200 -seq 1 -set-at 1 reset 1 -tempinduct-baseonly -maxsteps {cycles} -show-ports")
    return found.stdout[-4000:]


def reached(top, gates, names, seconds):
    """Whether each of the covers is reached in some run."""
    said = run("yosys-abc", "-c", f"read_aiger {gates}; fold; zero; trim; pdr -a -T {seconds}").stdout
    hits = len(set(re.findall(r"Output +(\d+) .*?was asserted in frame", said)))
    print(f"{top}: {hits} of {len(names)} are reached")
    if hits == len(names):
        return 0
    print(said[-3000:])
    print("\n".join(names))
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verilog", type=pathlib.Path)
    parser.add_argument("top")
    parser.add_argument("--assume", action="append", default=[])
    parser.add_argument("--covers", action="store_true")
    parser.add_argument("--seconds", type=int, default=200)
    arguments = parser.parse_args()
    top = arguments.top
    text, counts, names = properties(arguments.verilog.read_text(), arguments.assume, arguments.covers)
    with tempfile.TemporaryDirectory() as directory:
        source, gates = pathlib.Path(directory, "unit.sv"), pathlib.Path(directory, "unit.aig")
        source.write_text(reset_first(text, top))
        circuit(source, top, gates)
        if arguments.covers:
            return reached(top, gates, names, arguments.seconds)
        # Assumptions become part of the circuit, and registers that are always alike become one.
        said = run("yosys-abc", "-c", f"read_aiger {gates}; fold; scorr; pdr -T {arguments.seconds} -v").stdout
        failed = re.search(r"asserted in frame (\d+)", said)
        if failed:
            print(counterexample(source, top, int(failed[1]) + 1))
            print(f"{top}: a property fails in cycle {int(failed[1]) + 1}")
            return 1
    if "Property proved" in said:
        how_long = "for ever"
    else:
        cycles = [int(frame) for frame in re.findall(r"^ *(\d+) :", said, re.MULTILINE)]
        if not cycles:
            sys.exit(f"{top}: {said[-3000:]}")
        how_long = f"for {max(cycles)} cycles"
    print(f"{top}: {counts['assert']} properties hold {how_long} ({counts['assume']} assumed of the environment)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

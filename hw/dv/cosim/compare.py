#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares what the RTL and the functional model retired in user mode, instruction by instruction.

    compare.py RTL_COMMITS SPIKE_LOG

The RTL runs the program under paging; the model has all pages in memory. Paging must not be visible: both retire the same instructions
at the same addresses, and wherever the RTL reads a register it reads what the model's register holds.
"""
import re
import struct
import sys

RECORD = struct.Struct("<QQQIBBH")
LINE = re.compile(r"core\s+0: 0 0x([0-9a-f]+) \(0x([0-9a-f]+)\)(?: x(\d+)\s+0x([0-9a-f]+))?")
READS_FIRST = {0x03, 0x13, 0x1B, 0x23, 0x2F, 0x33, 0x3B, 0x63, 0x67}
READS_SECOND = {0x23, 0x2F, 0x33, 0x3B, 0x63}


def rtl(path):
    with open(path, "rb") as file:
        data = file.read()
    for pc, first, second, instruction, privilege, hart, _ in RECORD.iter_unpack(data):
        if privilege == 0 and hart == 0:
            yield pc, instruction, first, second


def spike(path):
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            match = LINE.match(line)
            if match:
                write = (int(match[3]), int(match[4], 16)) if match[3] else None
                yield int(match[1], 16), int(match[2], 16), write


def main():
    registers = {0: 0}
    compared = operands = 0
    expected = spike(sys.argv[2])
    for pc, instruction, first, second in rtl(sys.argv[1]):
        want = next(expected, None)
        if want is None:
            sys.exit(f"the RTL goes on at {pc:#x} after {compared} instructions, the model has ended")
        if (pc, instruction) != want[:2]:
            sys.exit(f"after {compared} instructions the RTL retires {instruction:#x} at {pc:#x}, the model {want[1]:#x} at {want[0]:#x}")
        if instruction & 3 == 3:
            opcode = instruction & 0x7F
            for reads, field, value in ((READS_FIRST, instruction >> 15 & 31, first), (READS_SECOND, instruction >> 20 & 31, second)):
                if opcode in reads and field in registers:
                    operands += 1
                    if registers[field] != value:
                        sys.exit(f"at {pc:#x}, after {compared} instructions: x{field} is {value:#x}, should be {registers[field]:#x}")
        if want[2] and want[2][0]:
            registers[want[2][0]] = want[2][1]
        compared += 1
    if next(expected, None) is not None:
        sys.exit(f"the RTL has ended after {compared} instructions, the model goes on")
    if compared < 1000:
        sys.exit(f"only {compared} instructions: was this the right program?")
    print(f"{compared} instructions and {operands} operands agree")


if __name__ == "__main__":
    main()

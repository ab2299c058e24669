#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the offsets of registers where they are written down: RTL, bare-metal header, driver, document.

    registers.py HW

The RTL decides. The header and the document must have all of its registers; the driver only those that it uses.
"""
import pathlib
import re
import sys

# Registers of which the RTL has one offset and software several, or none of its own.
GROUPS = {"COUNTERS": "FETCHES", "REFUSALS": "REFUSAL"}


def upper(name):
    """freePush is FREE_PUSH elsewhere."""
    return re.sub(r"([A-Z])", r"_\1", name).upper()


def pairs(text, pattern):
    return {name: int(offset, 16) for name, offset in re.findall(pattern, text)}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    hw = pathlib.Path(sys.argv[1])
    rtl = (hw / "rtl/Registers.scala").read_text()
    rtl = rtl[rtl.index("object RegisterMap"):rtl.index("object AccessError")]
    expected = {GROUPS.get(upper(name), upper(name)): int(offset, 16) for name, offset in re.findall(r"val (\w+) = (0x\w+)", rtl)}
    header = pairs((hw / "sw/lib/pfa.h").read_text(), r"\bPFA_(\w+) = (0x\w+)")
    driver = (hw / "linux/pfa.c").read_text()
    driver = pairs(driver[driver.index("\tIDENTITY = "):driver.index("#define WORD_VALID")], r"\b([A-Z_]+) = (0x\w+)")
    document = {name.split(" of ")[0]: int(offset, 16) for offset, name in
                re.findall(r"^\| (0x[0-9A-F]+)(?: \+ 8h)? \| ([A-Z_]+(?: of hart h)?) \|", (hw / "doc/registers.md").read_text(), re.MULTILINE)}
    wrong = []
    for name, offset in expected.items():
        for where, has in (("sw/lib/pfa.h", header), ("doc/registers.md", document)):
            if has.get(name) != offset:
                wrong.append(f"{where}: {name} is {has.get(name)}, not {offset:#x}")
    for name, offset in driver.items():
        if header.get(name) != offset:
            wrong.append(f"linux/pfa.c: {name} is {offset:#x}, not {header.get(name)}")
    for name, offset in document.items():
        if header.get(name) != offset:
            wrong.append(f"sw/lib/pfa.h: {name} is {header.get(name)}, not {offset:#x}")
    print("\n".join(wrong) or f"{len(expected)} registers, {len(driver)} of them in the driver")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

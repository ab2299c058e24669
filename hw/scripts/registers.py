#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes what depends on the register map from registers.toml: RTL, C header, tables of the document.

    registers.py [--check]

With --check nothing is written: exits with 1, and names the files, where one of them differs from what would be.
"""
import pathlib
import sys
import tomllib

HW = pathlib.Path(__file__).resolve().parent.parent
MADE = "Made from registers.toml by scripts/registers.py."
WIDTH = 64


class Problem(Exception):
    """registers.toml makes no sense; the text says where."""


def camel(name):
    """FREE_PUSH is freePush in Scala."""
    first, *others = name.lower().split("_")
    return first + "".join(word.capitalize() for word in others)


def check(description):
    """Names, offsets and bits are used once, and fit."""
    names, offsets = set(), set()
    for register in description["register"]:
        name, offset = register["name"], register["offset"]
        if name in names or offset in offsets:
            raise Problem(f"{name}: a name or an offset is used twice")
        names.add(name)
        offsets.add(offset)
        if offset % 8 or not 0 <= offset < 4096:
            raise Problem(f"{name}: {offset:#x} is no offset of a register")
        if not set(register["access"].split(", ")) <= {"read", "write"}:
            raise Problem(f"{name}: access is 'read', 'write' or 'read, write'")
        used = 0
        for high, low, field, *_ in register.get("fields", []):
            if not 0 <= low <= high < WIDTH:
                raise Problem(f"{name}: {field} has no bits {high}:{low}")
            mask = (1 << high + 1) - (1 << low)
            if used & mask:
                raise Problem(f"{name}: {field} overlaps another field")
            used |= mask
    for group in description["values"]:
        for value, name, *_ in group["values"]:
            if not 0 < value < 1 << group["width"]:
                raise Problem(f"{group['scala']}: {name} does not fit in {group['width']} bits")


def scala(description):
    lines = ["// SPDX-License-Identifier: MIT OR Apache-2.0", f"// {MADE}", "package farmem.pfa", "", "import chisel3._", "",
             "/** The registers; doc/registers.md says what they do. */", "object RegisterMap {",
             f"  val base: BigInt = {description['base']:#x}L"]
    for register in description["register"]:
        fields = "".join(f',\n    RegisterField("{name}", {high}, {low})' for high, low, name, *_ in register.get("fields", []))
        access = register["access"].split(", ")
        lines.append(f'  val {camel(register["name"])} = Register("{register["name"]}", 0x{register["offset"]:02x}, '
                     f'readable = {str("read" in access).lower()}, writable = {str("write" in access).lower()}{fields})')
    lines.append("  val all: Seq[Register] = Seq(")
    lines.append(",\n".join(f"    {camel(r['name'])}" for r in description["register"]) + ")")
    lines.append("}")
    for group in description["values"]:
        lines += ["", f"/** {group['what']}. Zero is none. */", f"object {group['scala']} {{", f"  val width = {group['width']}"]
        lines += [f"  val {name} = {value}.U(width.W)" for value, name, *_ in group["values"]]
        lines.append("}")
    return "\n".join(lines) + "\n"


def header(description):
    lines = ["/* SPDX-License-Identifier: MIT OR Apache-2.0 */", f"/* {MADE} Programs, driver and tests include it, C or C++. */",
             "#ifndef PFA_REGISTERS_H", "#define PFA_REGISTERS_H", "", f"#define PFA_BASE {description['base']:#x}UL", "",
             "/* Offsets. */"]
    lines += [f"#define PFA_{r['name']} 0x{r['offset']:02x}" + (f" /* one for each {r['each']} */" if "each" in r else "")
              for r in description["register"]]
    lines += ["", "/* Fields of words that were read. */"]
    for register in description["register"]:
        if "read" not in register["access"].split(", "):
            continue
        for high, low, name, *_ in register.get("fields", []):
            shifted = f"(word) >> {low}" if low else "(word)"
            lines.append(f"#define PFA_{register['name']}_{name.upper()}(word) ({shifted} & {(1 << high - low + 1) - 1:#x}UL)")
    lines += ["", "/* Bits of the interrupts. */"]
    enable = next(r for r in description["register"] if r["name"] == "INTERRUPT_ENABLE")
    lines += [f"#define PFA_IRQ_{name.upper()} {1 << low:#x}" for _, low, name, *_ in enable["fields"]]
    for group in description["values"]:
        lines += ["", f"/* {group['what']}. */"]
        lines += [f"#define {group['c']}_{name} {value}" for value, _, name, _ in group["values"]]
    return "\n".join([*lines, "", "#endif"]) + "\n"


def bits(high, low):
    return f"{high}" if high == low else f"{high}:{low}"


def table(description):
    lines = ["| offset | name | access | what |", "|---|---|---|---|"]
    for register in description["register"]:
        fields = " · ".join(f"{bits(high, low)} {what[0]}" for high, low, _, *what in register.get("fields", []) if what)
        offset, name = f"0x{register['offset']:02X}", register["name"]
        if "each" in register:
            offset, name = f"{offset} + 8{register['each'][0]}", f"{name} of {register['each']} {register['each'][0]}"
        lines.append(f"| {offset} | {name} | {register['access']} | {register['what'].format(fields=fields)} |")
    return "\n".join(lines)


def values(description):
    return "\n\n".join(f"{group['what']}: " + " · ".join(f"{value} {what}" for value, _, _, what in group["values"]) + "."
                       for group in description["values"])


def between(text, name, content):
    """The text with what stands between the two marks of that name replaced."""
    begin, end = f"<!-- registers.toml: {name} -->\n", "<!-- end -->"
    if begin not in text:
        raise Problem(f"doc/registers.md: the mark for {name} is missing")
    before, after = text.split(begin, 1)
    return f"{before}{begin}{content}\n{end}{after.split(end, 1)[1]}"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        description = tomllib.loads((HW / "registers.toml").read_text())
        check(description)
        document = (HW / "doc/registers.md").read_text()
        document = between(between(document, "registers", table(description)), "values", values(description))
    except (Problem, tomllib.TOMLDecodeError) as problem:
        print(f"registers: {problem}", file=sys.stderr)
        return 2
    made = {"rtl/RegisterMap.scala": scala(description), "sw/lib/pfa_registers.h": header(description), "doc/registers.md": document}
    wrong = 0
    for name, text in made.items():
        path = HW / name
        if path.exists() and path.read_text() == text:
            continue
        if len(sys.argv) > 1:
            print(f"registers: {name} is not what registers.toml makes of it; run hw/scripts/registers.py")
            wrong = 1
        else:
            path.write_text(text)
    if not wrong:
        print(f"{len(description['register'])} registers")
    return wrong


if __name__ == "__main__":
    sys.exit(main())

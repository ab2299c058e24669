#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes a random user program: blocks of arithmetic, loads, stores, atomics and branches, spread over pages of code, which work on
pages of data. generate.py SEED DATA_PAGES > program.S"""
import random
import sys

REGISTERS = [f"x{n}" for n in range(5, 16)]
BLOCKS = 24
ROUNDS = 3


def block(rng, number, data_bytes):
    lines = [f"block{number}:"]
    labels = 0
    for step in range(rng.randint(12, 30)):
        a, b, c = (rng.choice(REGISTERS) for _ in range(3))
        kind = rng.random()
        if kind < 0.40:
            operation = rng.choice("add sub xor or and sll srl sra slt sltu addw subw mul mulh divu remu mulw".split())
            lines.append(f"  {operation} {a}, {b}, {c}")
        elif kind < 0.50:
            lines.append(f"  addi {a}, {b}, {rng.randint(-2048, 2047)}")
        elif kind < 0.90:
            size, load, store = rng.choice([(8, "ld", "sd"), (4, "lw", "sw"), (4, "lwu", "sw"), (2, "lh", "sh"), (1, "lbu", "sb")])
            lines.append(f"  li x28, {rng.randrange(0, data_bytes // size) * size}")
            lines.append("  add x28, x28, x20")
            if rng.random() < 0.06:
                lines += ["  andi x28, x28, -8", f"  amo{rng.choice(['add', 'xor', 'swap', 'max'])}.d {a}, {b}, (x28)"]
            elif rng.random() < 0.5:
                lines.append(f"  {load} {a}, 0(x28)")
            else:
                lines.append(f"  {store} {a}, 0(x28)")
        else:
            labels += 1
            lines.append(f"  {rng.choice(['beq', 'bne', 'blt', 'bgeu'])} {a}, {b}, skip{number}_{labels}")
            lines.append(f"  addi {c}, {c}, 1")
            lines.append(f"skip{number}_{labels}:")
    return lines


def main():
    rng = random.Random(int(sys.argv[1]))
    data_bytes = int(sys.argv[2]) * 4096
    order = list(range(BLOCKS))
    rng.shuffle(order)
    follower = dict(zip(order, order[1:]))
    out = ['  .section .user, "ax"', "  .globl user_start", "user_start:", "  mv x20, a0", f"  li x21, {ROUNDS}"]
    out += [f"  li {register}, {rng.getrandbits(63)}" for register in REGISTERS]
    out += ["  j round"]
    # The end is reached from anywhere by a jump through a register.
    out += ["round:", f"  la x29, block{order[0]}", "  jr x29", "next_round:", "  addi x21, x21, -1", "  bnez x21, round",
            "  li a0, 1", "  ecall"]
    for number in range(BLOCKS):
        # Some blocks begin on a page of their own, some straddle a page's end.
        out.append(rng.choice(["  .balign 4096\n  .space 4070", "  .balign 4096", "  .space 1000", ""]) if number % 2 else "")
        out.append("  .balign 2")
        out += block(rng, number, data_bytes)
        out += [f"  la x29, {'block%d' % follower[number] if number in follower else 'next_round'}", "  jr x29"]
    out.append("  .balign 4096")
    print("\n".join(out))


if __name__ == "__main__":
    main()

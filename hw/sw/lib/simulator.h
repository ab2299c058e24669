// SPDX-License-Identifier: MIT OR Apache-2.0
// Registers of the simulator: console, exit, and what may go wrong at the blade. dv/sim/chip.h has the same list.
#pragma once
#include <stdint.h>

#define SIMULATOR_BASE 0x60000000UL

enum {
    SIM_CONSOLE = 0x00,
    SIM_EXIT = 0x08,
    SIM_CYCLE = 0x10,
    SIM_LATENCY = 0x18,
    SIM_CYCLES_PER_FLIT = 0x20,
    SIM_FAIL = 0x28,
    SIM_LOSE = 0x30,
    SIM_CUT_SHORT = 0x38,
    SIM_HOLD = 0x40,
    SIM_HOLD_CYCLES = 0x48,
    SIM_BLADE_READS = 0x50,
    SIM_BLADE_WRITES = 0x58,
    SIM_PEEK_ID = 0x60,
    SIM_PEEK_WORD = 0x68,
    SIM_PEEK_DATA = 0x70,
    SIM_RESET = 0x78,
    SIM_ARGUMENT = 0x80, // eight of them: what the simulator was told to do
    SIM_LIE = 0xc8,      // answers come with others that nobody asked for, of the wrong kind, too long, or twice
    SIM_EARLY = 0xd0,    // a write is confirmed before its words are sent, and not done
    SIM_REFUSE = 0xd8,   // writes fail, reads don't
    SIM_BAD_PAGE = 0xc0, // accesses to the page at this address end in an error of the bus; 0: none
};

static inline void sim_write(unsigned offset, uint64_t value) { *(volatile uint64_t *)(SIMULATOR_BASE + offset) = value; }
static inline uint64_t sim_read(unsigned offset) { return *(volatile uint64_t *)(SIMULATOR_BASE + offset); }

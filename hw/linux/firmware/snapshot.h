// SPDX-License-Identifier: MIT OR Apache-2.0
// A machine that has booted elsewhere, and goes on here: where its memory holds what is not memory. Firmware and C read this.
//
// The kernel boots on spike, which takes seconds, with the firmware's model of the accelerator (model.c), until its first program asks what
// to do. Memory from the device tree on becomes part of an image; the firmware of that image (firmware.S, RESUME) continues on the core.
#pragma once

#define SNAPSHOT_MEMORY 0x80100000 // the device tree; what is before belongs to the firmware that runs
#define SNAPSHOT_STATE 0x80180000

#define STATE_REGISTERS 0 // pc, then x1 to x31
#define STATE_SATP 256
#define STATE_STVEC 264
#define STATE_SSCRATCH 272
#define STATE_SEPC 280
#define STATE_SCAUSE 288
#define STATE_STVAL 296
#define STATE_MSTATUS 304
#define STATE_MIE 312
#define STATE_MIP 320
#define STATE_TIME 328
#define STATE_TIME_COMPARE 336
#define STATE_PLIC_PRIORITY 344
#define STATE_PLIC_ENABLE 352
#define STATE_PLIC_THRESHOLD 360

// Of the interrupt controller: the accelerator's source, and the supervisor of hart 0.
#define PLIC_PRIORITY 0x0c000004
#define PLIC_ENABLE 0x0c002080
#define PLIC_THRESHOLD 0x0c201000
#define CLINT_TIME_COMPARE 0x02004000
#define CLINT_TIME 0x0200bff8

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Made from registers.toml by scripts/registers.py. Programs, driver and tests include it, C or C++. */
#ifndef PFA_REGISTERS_H
#define PFA_REGISTERS_H

#define PFA_BASE 0x10020000UL

/* Offsets. */
#define PFA_IDENTITY 0x00
#define PFA_CONTROL 0x08
#define PFA_STATUS 0x10
#define PFA_INTERRUPT_ENABLE 0x18
#define PFA_INTERRUPT_PENDING 0x20
#define PFA_NEW_THRESHOLD 0x28
#define PFA_TIMEOUT 0x30
#define PFA_ERROR 0x38
#define PFA_FREE_PUSH 0x40
#define PFA_NEW_POP 0x48
#define PFA_EVICT_PUSH 0x50
#define PFA_EVICT_POP 0x58
#define PFA_REMOTE_FRAME 0x60
#define PFA_REMOTE_START 0x68
#define PFA_REMOTE_STATUS 0x70
#define PFA_FREE_POP 0x78
#define PFA_FETCHES 0x80
#define PFA_FETCH_CYCLES 0x88
#define PFA_TRAVEL_CYCLES 0x90
#define PFA_FETCH_LONGEST 0x98
#define PFA_REFUSED 0xa0
#define PFA_REPEATED 0xa8
#define PFA_EVICTED 0xb0
#define PFA_DROPPED 0xb8
#define PFA_FRAME_BASE 0xc0
#define PFA_FRAME_LIMIT 0xc8
#define PFA_FRAME_LOCK 0xd0
#define PFA_BUS_ERROR 0xd8
#define PFA_NEW_CONTEXT 0xe0
#define PFA_REFUSAL 0x100 /* one for each hart */

/* Fields of words that were read. */
#define PFA_IDENTITY_SIGNATURE(word) ((word) >> 40 & 0xffffffUL)
#define PFA_IDENTITY_VERSION(word) ((word) >> 32 & 0xffUL)
#define PFA_IDENTITY_HARTS(word) ((word) >> 24 & 0xffUL)
#define PFA_IDENTITY_EVICT_DEPTH(word) ((word) >> 16 & 0xffUL)
#define PFA_IDENTITY_NEW_DEPTH(word) ((word) >> 8 & 0xffUL)
#define PFA_IDENTITY_FREE_DEPTH(word) ((word) & 0xffUL)
#define PFA_CONTROL_ENABLE(word) ((word) & 0x1UL)
#define PFA_STATUS_FETCHING(word) ((word) & 0x1UL)
#define PFA_STATUS_EVICTING(word) ((word) >> 1 & 0x1UL)
#define PFA_STATUS_TRANSFERRING(word) ((word) >> 2 & 0x1UL)
#define PFA_STATUS_TAGS_SPENT(word) ((word) >> 3 & 0x1UL)
#define PFA_STATUS_FREE_COUNT(word) ((word) >> 8 & 0xffffUL)
#define PFA_STATUS_NEW_COUNT(word) ((word) >> 24 & 0xffffUL)
#define PFA_STATUS_EVICT_COUNT(word) ((word) >> 40 & 0xffUL)
#define PFA_STATUS_EVICT_UNFINISHED(word) ((word) >> 48 & 0xffUL)
#define PFA_INTERRUPT_ENABLE_NEW(word) ((word) & 0x1UL)
#define PFA_INTERRUPT_ENABLE_FREE(word) ((word) >> 1 & 0x1UL)
#define PFA_INTERRUPT_ENABLE_EVICTED(word) ((word) >> 2 & 0x1UL)
#define PFA_INTERRUPT_ENABLE_REMOTE(word) ((word) >> 3 & 0x1UL)
#define PFA_INTERRUPT_ENABLE_ERROR(word) ((word) >> 4 & 0x1UL)
#define PFA_INTERRUPT_ENABLE_BUS(word) ((word) >> 5 & 0x1UL)
#define PFA_INTERRUPT_PENDING_NEW(word) ((word) & 0x1UL)
#define PFA_INTERRUPT_PENDING_FREE(word) ((word) >> 1 & 0x1UL)
#define PFA_INTERRUPT_PENDING_EVICTED(word) ((word) >> 2 & 0x1UL)
#define PFA_INTERRUPT_PENDING_REMOTE(word) ((word) >> 3 & 0x1UL)
#define PFA_INTERRUPT_PENDING_ERROR(word) ((word) >> 4 & 0x1UL)
#define PFA_INTERRUPT_PENDING_BUS(word) ((word) >> 5 & 0x1UL)
#define PFA_NEW_THRESHOLD_ENTRIES(word) ((word) & 0xffffUL)
#define PFA_TIMEOUT_CYCLES(word) ((word) & 0x7fffffffUL)
#define PFA_ERROR_VALID(word) ((word) >> 63 & 0x1UL)
#define PFA_ERROR_CAUSE(word) ((word) >> 16 & 0xfUL)
#define PFA_ERROR_OFFSET(word) ((word) & 0xfffUL)
#define PFA_NEW_POP_VALID(word) ((word) >> 63 & 0x1UL)
#define PFA_NEW_POP_HART(word) ((word) >> 55 & 0xffUL)
#define PFA_NEW_POP_VPN(word) ((word) >> 28 & 0x7ffffffUL)
#define PFA_NEW_POP_ID(word) ((word) & 0xfffffffUL)
#define PFA_EVICT_POP_VALID(word) ((word) >> 63 & 0x1UL)
#define PFA_EVICT_POP_FAILED(word) ((word) >> 62 & 0x1UL)
#define PFA_EVICT_POP_ID(word) ((word) & 0xfffffffUL)
#define PFA_REMOTE_FRAME_FRAME(word) ((word) >> 12 & 0xfffffffffUL)
#define PFA_REMOTE_STATUS_UNDER_WAY(word) ((word) & 0x1UL)
#define PFA_REMOTE_STATUS_ENDED(word) ((word) >> 1 & 0x1UL)
#define PFA_REMOTE_STATUS_FAILED(word) ((word) >> 2 & 0x1UL)
#define PFA_REMOTE_STATUS_BUS(word) ((word) >> 3 & 0x1UL)
#define PFA_FREE_POP_VALID(word) ((word) >> 63 & 0x1UL)
#define PFA_FREE_POP_FRAME(word) ((word) >> 12 & 0xfffffffffUL)
#define PFA_FRAME_BASE_FRAME(word) ((word) >> 12 & 0xfffffffffUL)
#define PFA_FRAME_LIMIT_FRAME(word) ((word) >> 12 & 0xfffffffffUL)
#define PFA_FRAME_LOCK_LOCKED(word) ((word) & 0x1UL)
#define PFA_BUS_ERROR_VALID(word) ((word) >> 63 & 0x1UL)
#define PFA_BUS_ERROR_ACCESS(word) ((word) >> 60 & 0x7UL)
#define PFA_BUS_ERROR_ADDRESS(word) ((word) & 0xffffffffffffffUL)
#define PFA_NEW_CONTEXT_VALID(word) ((word) >> 63 & 0x1UL)
#define PFA_NEW_CONTEXT_ROOT(word) ((word) & 0xfffffffffUL)
#define PFA_REFUSAL_VALID(word) ((word) >> 63 & 0x1UL)
#define PFA_REFUSAL_REASON(word) ((word) >> 60 & 0x7UL)
#define PFA_REFUSAL_VPN(word) ((word) >> 28 & 0x7ffffffUL)
#define PFA_REFUSAL_ID(word) ((word) & 0xfffffffUL)

/* Bits of the interrupts. */
#define PFA_IRQ_NEW 0x1
#define PFA_IRQ_FREE 0x2
#define PFA_IRQ_EVICTED 0x4
#define PFA_IRQ_REMOTE 0x8
#define PFA_IRQ_ERROR 0x10
#define PFA_IRQ_BUS 0x20

/* Reasons of a refusal. */
#define PFA_REFUSED_DISABLED 1
#define PFA_REFUSED_NO_FRAME 2
#define PFA_REFUSED_NEW_FULL 3
#define PFA_REFUSED_FETCH_FAILED 4
#define PFA_REFUSED_EVICTION_FAILED 5
#define PFA_REFUSED_BUS_ERROR 6

/* Accesses in BUS_ERROR. */
#define PFA_BUS_FRAME_WRITE 1
#define PFA_BUS_FRAME_READ 2
#define PFA_BUS_ENTRY_READ 3
#define PFA_BUS_ENTRY_WRITE 4

/* Causes in ERROR. */
#define PFA_ERROR_SIZE 1
#define PFA_ERROR_NO_REGISTER 2
#define PFA_ERROR_READ_ONLY 3
#define PFA_ERROR_WRITE_ONLY 4
#define PFA_ERROR_FULL 5
#define PFA_ERROR_BUSY 6
#define PFA_ERROR_VALUE 7
#define PFA_ERROR_LOCKED 8

#endif

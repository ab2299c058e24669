// SPDX-License-Identifier: MIT OR Apache-2.0
// A small pager for user pages, in two ways over the same blade with the same number of frames: in software, one page in each
// fault; and with the accelerator, where faults only come when its queues need the system.
#pragma once
#include "os.h"

enum pager_mode { PAGER_LOCAL, PAGER_SOFTWARE, PAGER_ACCELERATED };

struct pager_figures {
    uint64_t faults, fetched, evicted, fault_cycles;
    uint64_t transfer_cycles; // of these, waiting for pages and evictions
};
extern struct pager_figures pager_figures;

// Makes pages 0 to `pages` - 1 of user memory, with `image` at the beginning and zeros after it. Local mode needs a frame for each
// page; the other modes begin with all pages remote, and never use more than `frames`.
void pager_start(enum pager_mode mode, unsigned pages, unsigned frames, const void *image, size_t image_bytes);
// Serves a fault at this address. Returns false when the fault isn't the pager's.
bool pager_fault(uint64_t cause, uint64_t address);

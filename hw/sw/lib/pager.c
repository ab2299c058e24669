// SPDX-License-Identifier: MIT OR Apache-2.0
#include "pager.h"

struct pager_figures pager_figures;

static enum pager_mode mode;
static unsigned page_count;
static unsigned batch;
static uint64_t frame_of[USER_PAGES];
static uint64_t free_frames[FRAME_POOL];
static unsigned free_count;
// Resident pages that the pager knows of, oldest first.
static uint16_t resident[USER_PAGES];
static unsigned resident_head, resident_count;

static uint64_t id_of(unsigned page) { return 0x5000 + page; }
static void remember(unsigned page) { resident[(resident_head + resident_count++) % USER_PAGES] = (uint16_t)page; }
static unsigned oldest(void) {
    check(resident_count > 0);
    unsigned page = resident[resident_head];
    resident_head = (resident_head + 1) % USER_PAGES;
    resident_count--;
    return page;
}

static void transfer(bool write, uint64_t frame, uint64_t id) {
    uint64_t begin = cycle();
    pfa_write(PFA_REMOTE_FRAME, frame);
    pfa_write(PFA_REMOTE_START, (uint64_t)write << 63 | id);
    while (pfa_remote_busy()) {}
    check(pfa_read(PFA_REMOTE_STATUS) == 2);
    pager_figures.transfer_cycles += cycle() - begin;
}

static void unmap(unsigned page) {
    *user_entry(page) = 0;
    fence();
    flush(user_address(page));
}

// Frames may have held code: what instruction caches know of them is forgotten before they get new contents.
static void forget_code(void) { __asm__ volatile("fence.i" ::: "memory"); }

static void serve_in_software(unsigned page) {
    uint64_t frame;
    if (free_count) {
        frame = free_frames[--free_count];
    } else {
        unsigned victim = oldest();
        frame = frame_of[victim];
        unmap(victim);
        transfer(true, frame, id_of(victim));
        pager_figures.evicted++;
    }
    forget_code();
    transfer(false, frame, id_of(page));
    frame_of[page] = frame;
    *user_entry(page) = local_entry(frame, USER_BITS);
    fence();
    flush(user_address(page));
    remember(page);
    pager_figures.fetched++;
}

static void keep_books(void) {
    for (;;) {
        uint64_t word = pfa_read(PFA_NEW_POP);
        if (!word_valid(word)) return;
        unsigned page = (unsigned)(new_id(word) - id_of(0));
        check(page < page_count && user_address(page) == new_address(word));
        frame_of[page] = entry_frame(*user_entry(page));
        remember(page);
        pager_figures.fetched++;
    }
}

// The NewQ is drained first, then the FreeQ is filled. Evictions run together, as many as the EvictQ takes.
static void refill(void) {
    keep_books();
    while (pfa_free_count() + free_count < batch) {
        unsigned wanted = batch - pfa_free_count() - free_count;
        unsigned places = pfa_evict_depth();
        unsigned count = wanted < places ? wanted : places;
        uint64_t begin = cycle();
        for (unsigned i = 0; i < count; i++) {
            unsigned victim = oldest();
            send_away(victim, frame_of[victim], id_of(victim), USER_BITS);
        }
        for (unsigned i = 0; i < count; i++) {
            uint64_t word;
            do word = pfa_read(PFA_EVICT_POP); while (!word_valid(word));
            check(!evicted_failed(word));
            free_frames[free_count++] = frame_of[evicted_id(word) - id_of(0)];
            pager_figures.evicted++;
        }
        pager_figures.transfer_cycles += cycle() - begin;
    }
    forget_code();
    while (free_count && pfa_free_count() < batch) give_frame(free_frames[--free_count]);
}

void pager_start(enum pager_mode chosen, unsigned pages, unsigned frames, const void *image, size_t image_bytes) {
    mode = chosen;
    page_count = pages;
    check(pages <= USER_PAGES);
    // Not more than what is left for resident pages, so that the pages of one instruction fit.
    batch = frames / 4;
    if (mode == PAGER_ACCELERATED && batch > pfa_free_depth()) batch = pfa_free_depth();
    if (batch < 1) batch = 1;
    uint64_t work = frame_take();
    for (unsigned page = 0; page < pages; page++) {
        if (mode == PAGER_LOCAL) work = frame_take();
        size_t offset = page * PAGE_BYTES;
        size_t bytes = offset >= image_bytes ? 0 : image_bytes - offset;
        if (bytes > PAGE_BYTES) bytes = PAGE_BYTES;
        memset((void *)work, 0, PAGE_BYTES);
        memcpy((void *)work, (const uint8_t *)image + offset, bytes);
        if (mode == PAGER_LOCAL) {
            *user_entry(page) = local_entry(work, USER_BITS);
        } else {
            check(evict(work, id_of(page)));
            *user_entry(page) = mode == PAGER_ACCELERATED ? remote_entry(id_of(page), USER_BITS) : 0;
        }
    }
    if (mode != PAGER_LOCAL) {
        free_frames[free_count++] = work;
        while (free_count < frames) free_frames[free_count++] = frame_take();
    }
    fence();
    flush_all();
    forget_code();
    if (mode == PAGER_ACCELERATED) refill();
}

bool pager_fault(uint64_t cause, uint64_t address) {
    if (cause != CAUSE_FETCH_FAULT && cause != CAUSE_LOAD_FAULT && cause != CAUSE_STORE_FAULT) return false;
    unsigned page = (unsigned)((address - USER_BASE) / PAGE_BYTES);
    if (mode == PAGER_LOCAL || page >= page_count) return false;
    uint64_t begin = cycle();
    pager_figures.faults++;
    if (mode == PAGER_SOFTWARE) {
        if (*user_entry(page) & PTE_V) return false;
        serve_in_software(page);
    } else {
        unsigned reason = refusal_reason(pfa_read(PFA_REFUSAL));
        check(reason == PFA_REFUSED_NO_FRAME || reason == PFA_REFUSED_NEW_FULL);
        pfa_write(PFA_REFUSAL, 0);
        refill();
        flush(address);
    }
    pager_figures.fault_cycles += cycle() - begin;
    return true;
}

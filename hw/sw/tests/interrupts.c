// SPDX-License-Identifier: MIT OR Apache-2.0
// Interrupts during a fetch; the accelerator's own interrupt; TLB flushes in the middle.
#include "os.h"

#define CLINT_TIME_COMPARE ((volatile uint64_t *)0x2004000)
#define CLINT_SOFTWARE ((volatile uint32_t *)0x2000000)
#define PLIC ((volatile uint32_t *)0x0c000000)
enum { PLIC_ENABLE = 0x2000 / 4, PLIC_THRESHOLD = 0x200000 / 4, PLIC_CLAIM = 0x200004 / 4, PFA_SOURCE = 1 };

static volatile unsigned software_interrupts, external_interrupts, drained;
static volatile bool flush_inside;

void handle_trap(struct trap_frame *trap, uint64_t cause, uint64_t value) {
    (void)trap;
    if (cause == (INTERRUPT | 3)) {
        if (flush_inside) flush_all();
        *CLINT_SOFTWARE = 0;
        software_interrupts++;
        return;
    }
    if (cause == (INTERRUPT | 11)) {
        check(PLIC[PLIC_CLAIM] == PFA_SOURCE);
        while (word_valid(pfa_read(PFA_NEW_POP))) drained++;
        external_interrupts++;
        PLIC[PLIC_CLAIM] = PFA_SOURCE;
        return;
    }
    panic("trap", cause ^ value);
}

int main(void) {
    paging_start();
    pfa_start(1000000);
    for (unsigned p = 0; p < 6; p++) {
        make_remote(p, 300 + p);
        give_frame(frame_take());
    }
    csr_set(mie, MIE_SOFTWARE);
    for (unsigned p = 0; p < 4; p++) {
        flush_inside = p & 1;
        // The interrupt is raised just before the access that fetches, and comes while the page travels.
        __asm__ volatile("" ::: "memory");
        *CLINT_SOFTWARE = 1;
        csr_set(mstatus, 8);
        check_page(p, 300 + p);
        csr_clear(mstatus, 8);
        check(software_interrupts == p + 1);
    }
    check(pfa_read(PFA_FETCHES) == 4);
    for (unsigned p = 0; p < 4; p++) check(take_new() == 300 + p);

    // Two new pages raise the accelerator's interrupt.
    PLIC[PFA_SOURCE] = 1;
    PLIC[PLIC_ENABLE] = 1 << PFA_SOURCE;
    PLIC[PLIC_THRESHOLD] = 0;
    pfa_write(PFA_NEW_THRESHOLD, 2);
    pfa_write(PFA_INTERRUPT_ENABLE, PFA_IRQ_NEW);
    csr_set(mie, MIE_EXTERNAL);
    csr_set(mstatus, 8);
    check_page(4, 304);
    check(external_interrupts == 0);
    check_page(5, 305);
    for (unsigned i = 0; i < 1000 && !external_interrupts; i++) __asm__ volatile("nop");
    check(external_interrupts == 1 && drained == 2);
    check(!(pfa_read(PFA_INTERRUPT_PENDING) & PFA_IRQ_NEW));
    check_quiet();
    return 0;
}

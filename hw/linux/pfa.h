/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The Page-Fault Accelerator in the kernel: pages of swap area 0 lie on a blade, and processes that ask for it have
 * their pages fetched by the accelerator. For one hart without preemption.
 */
#ifndef _LINUX_PFA_H
#define _LINUX_PFA_H

#include <linux/mm.h>
#include <linux/swap.h>
#include <linux/swapops.h>

/*
 * Entries of pages that were swapped out (asm/pgtable.h has the layout) become remote entries by bits that the kernel ignores:
 * bit 1, and the page's protection in 9:3. Bit 5 would be X; it is also the kernel's PROT_NONE, and never set.
 */
#define PFA_ENTRY_BITS	0xffeUL

#ifdef CONFIG_PFA
/* How many processes have their pages fetched. */
extern unsigned int pfa_clients;

static inline bool pfa_is_remote(pte_t pte) { return (pte_val(pte) & 3) == 2; }
static inline pte_t pfa_plain(pte_t pte) { return pfa_is_remote(pte) ? __pte(pte_val(pte) & ~PFA_ENTRY_BITS) : pte; }

/* A page of the process was replaced by a swap entry. */
void pfa_unmapped(struct vm_area_struct *vma, unsigned long address, swp_entry_t entry, bool exclusive);
/* A page left the swap cache, its contents are on the blade: from now on the accelerator may fetch it. */
void pfa_evicted(swp_entry_t entry);
/* Before frames of evicted pages are freed: their evictions have ended. */
unsigned int pfa_evictions_under_way(void);
void __pfa_evictions_settle(void);
static inline void pfa_evictions_settle(void) { if (pfa_evictions_under_way()) __pfa_evictions_settle(); }
/* A fault on a remote entry. True: go on, the accelerator will fetch it. False: the entry has become a plain swap entry. */
bool pfa_serve(struct vm_fault *vmf);
/* What the accelerator has fetched becomes known. Whoever changes a range of page tables calls it first, with the mmap lock held. */
void __pfa_settle(struct mm_struct *mm);
static inline void pfa_settle(struct mm_struct *mm) { if (unlikely(pfa_clients)) __pfa_settle(mm); }
/* The process's last thread is gone. */
void pfa_exit(struct mm_struct *mm);
/* Around a fault, for the figures. */
void pfa_fault_enter(void);
void pfa_fault_leave(void);
/* Around the reclaim of a memory group, for the figures. */
void pfa_reclaim_enter(void);
void pfa_reclaim_leave(void);
#else
static inline bool pfa_is_remote(pte_t pte) { return false; }
static inline pte_t pfa_plain(pte_t pte) { return pte; }
static inline void pfa_unmapped(struct vm_area_struct *vma, unsigned long address, swp_entry_t entry, bool exclusive) { }
static inline void pfa_evicted(swp_entry_t entry) { }
static inline void pfa_evictions_settle(void) { }
static inline bool pfa_serve(struct vm_fault *vmf) { return false; }
static inline void pfa_settle(struct mm_struct *mm) { }
static inline void pfa_exit(struct mm_struct *mm) { }
static inline void pfa_fault_enter(void) { }
static inline void pfa_fault_leave(void) { }
static inline void pfa_reclaim_enter(void) { }
static inline void pfa_reclaim_leave(void) { }
#endif
#endif

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The Page-Fault Accelerator: a frontswap backend for the blade behind it, and remote page-table entries.
 *
 * Without the accelerator (the baseline), frontswap's loads and stores move pages by the client's registers, and every touch of a
 * page that is not here is a fault of the kernel.
 *
 * With it, processes are attached. Their pages are evicted by the kernel's own path; when a page has left the swap cache, its swap
 * entry is made a remote one. From then on the accelerator may fetch it into a frame of the FreeQ, without a fault. The kernel hears
 * of it from the NewQ: when the FreeQ is empty (a fault comes then), when the NewQ has reached its threshold (an interrupt, if that
 * is wanted), when kpfad looks (if that is wanted), or when somebody is about to change page tables. Who empties the NewQ finds pages
 * of others, too, and books them for those.
 *
 * A fetch that fails is not tried again by the accelerator: its entry becomes a plain swap entry, and the kernel reads the page, tries
 * several times, and kills whoever touches a page that is lost. The same where the kernel itself wants a page, which no walker asks for.
 *
 * Evictions go on while the kernel prepares the next ones, up to a limit; they are waited for before their frames are freed.
 *
 * Invariants:
 *  1. Only an entry whose page is on the blade, is not in the swap cache, and has no other user is remote.
 *  2. A frame in the FreeQ is charged to the memory group of the process that gave it, and has no other reference. A page is charged
 *     to its own process when it is booked. When a process ends the FreeQ is emptied.
 *  3. A page in the NewQ is mapped, but neither on a list of the kernel's nor in the reverse map: nobody can evict it.
 *  4. One hart, no preemption: from a page's leaving the swap cache to its entry's becoming remote nobody else runs.
 *  5. A remote entry is changed only while no fetch is under way or can begin.
 *  6. The frame of an eviction under way is not free, and no two of them have a frame or an offset in common.
 */
#include <linux/frontswap.h>
#include <linux/highmem.h>
#include <linux/hrtimer.h>
#include <linux/init.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/of.h>
#include <linux/of_irq.h>
#include <linux/pfa.h>
#include <linux/pfa_registers.h>
#include <linux/proc_fs.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/swap.h>
#include <linux/task_work.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <asm/tlbflush.h>

/* Nothing was refused: the kernel itself wants the page. */
#define NO_REFUSAL	0
#define ADDRESS_MASK	0xfffffffff000UL
#define VPN_MASK	0x7ffffffUL
#define WORD_VALID	(1UL << 63)
#define WORD_FAILED	(1UL << 62)
#define ID_MASK		0xfffffffUL
#define NO_ANSWER	10000000UL
#define SIMULATOR_BASE	0x60000000UL
#define SIMULATOR_ARGUMENT	0x80
#define SIMULATOR_BAD_PAGE	0xc0
#define SIMULATOR_ARGUMENTS	8
#define INTERRUPT_NEW		1
#define EVICTIONS_MOST		64
#define CLIENTS_MOST		8
#define TRANSFER_ATTEMPTS		3
/* kpfad's period: where it begins, its bounds, and how it learns from having been early or late. */
#define KPFAD_BEGIN_NS		500000
#define KPFAD_LEAST_NS		20000
#define KPFAD_MOST_NS		100000000
#define kpfad_longer(ns)	((ns) + (ns) / 16)
#define kpfad_shorter(ns)	((ns) - (ns) / 4)

/* What is known of a swap slot. */
struct place {
	/* Where its page was mapped, while that may become a remote entry. */
	struct mm_struct *mm;
	unsigned long address;
	/* The page itself, when the blade would not take it; an error, when there was no frame to keep it in. */
	struct page *kept;
};

static void __iomem *registers;
static struct place *places;
static unsigned long place_count;
static unsigned int batch = 16;
/* Of the NewQ, for an interrupt; 0: none. */
static unsigned int threshold;
static int interrupt;
static unsigned int timeout_cycles = NO_ANSWER;
/* Processes whose pages the accelerator fetches. A place without a process is free. */
static struct client {
	struct mm_struct *mm;
	struct task_struct *task;
	unsigned long root;		/* the frame of its root table, as the NewQ names it */
	struct list_head fetched;	/* pages of it that somebody else took from the NewQ, and could not book */
	struct callback_head work;
} clients[CLIENTS_MOST];
unsigned int pfa_clients;

#define for_each_client(client) \
	for (client = clients; client < clients + CLIENTS_MOST; client++) \
		if (client->mm)

static struct client *client_of(struct mm_struct *mm)
{
	struct client *client;

	for_each_client(client)
		if (client->mm == mm)
			return client;
	return NULL;
}

/* Evictions under way, oldest first; and how many there may be. With 1 each is waited for. */
static struct eviction {
	pgoff_t offset;
	struct page *page;
} evictions[EVICTIONS_MOST];
static unsigned int eviction_first, eviction_count, eviction_limit = 8;
/* Software's paging writes back without waiting, too: so the two can be compared with and without that. */
static bool baseline_asynchronous;

static bool kpfad_wanted;
static unsigned long kpfad_ns;
static DECLARE_WAIT_QUEUE_HEAD(kpfad_wait);

/* Cycles and events since the last reset of the figures. */
static struct figures {
	unsigned long faults;		/* of any kind */
	unsigned long swap_faults;	/* served by a read from the blade */
	unsigned long queue_faults;	/* because a queue needed the kernel */
	unsigned long interrupts;	/* of the NewQ */
	unsigned long kpfad_runs, kpfad_booked;
	unsigned long paging_cycles;	/* in the handler for the last two kinds of fault, for interrupts, and in kpfad */
	unsigned long reclaims, reclaim_cycles;
	unsigned long paging_reclaim_cycles;	/* the part of paging_cycles that was reclaim, evictions and all */
	unsigned long clean_faults;	/* that read a page and had to evict none */
	unsigned long clean_cycles, clean_load_cycles;
	unsigned long loads, load_cycles;
	unsigned long stores, store_cycles;
	unsigned long booked, book_cycles;
	unsigned long given, give_cycles;
	unsigned long degraded;		/* remote entries that became plain, because a fetch failed or the kernel wanted the page */
	unsigned long bus_errors, frames_retired;
	unsigned long handed_over;	/* taken from the NewQ by another process than their own */
} figures;
static unsigned long fetches_before, fetch_cycles_before, travel_cycles_before;
/* The fault that is being served: its beginning, and the figures then. */
static unsigned long fault_began;
static struct figures fault_before;
static bool fault_paged;

static inline unsigned long cycles(void) { return csr_read(CSR_CYCLE); }
static inline u64 get(unsigned int offset) { return readq_relaxed(registers + offset); }
static inline void put(unsigned int offset, u64 value) { writeq(value, registers + offset); }
static unsigned int free_count(void) { return PFA_STATUS_FREE_COUNT(get(PFA_STATUS)); }

/* From here on no fetch is under way, and none begins. */
static void fetches_stop(void)
{
	put(PFA_CONTROL, 0);
	while (PFA_STATUS_FETCHING(get(PFA_STATUS)))
		cpu_relax();
}

static void fetches_go_on(void)
{
	put(PFA_CONTROL, pfa_clients != 0);
}

/* Makes a remote entry a plain one, if it is still what was seen. */
static void degrade(struct mm_struct *mm, unsigned long address, pte_t *pte, pte_t seen)
{
	fetches_stop();
	if (pte_same(*pte, seen))
		set_pte_at(mm, address, pte, pfa_plain(seen));
	fetches_go_on();
}

void pfa_reclaim_enter(void)
{
	figures.reclaims++;
	figures.reclaim_cycles -= cycles();
}

void pfa_reclaim_leave(void)
{
	figures.reclaim_cycles += cycles();
}

void pfa_fault_enter(void)
{
	fault_began = cycles();
	fault_before = figures;
	fault_paged = false;
}

void pfa_fault_leave(void)
{
	unsigned long took = cycles() - fault_began;

	figures.faults++;
	if (!fault_paged)
		return;
	figures.paging_cycles += took;
	figures.paging_reclaim_cycles += figures.reclaim_cycles - fault_before.reclaim_cycles;
	if (figures.loads == fault_before.loads + 1 && figures.stores == fault_before.stores) {
		figures.clean_faults++;
		figures.clean_cycles += took;
		figures.clean_load_cycles += figures.load_cycles - fault_before.load_cycles;
	}
}

/* Moves a page by the client's registers, as software does without an accelerator. */
static int transfer(bool write, pgoff_t offset, struct page *page)
{
	put(PFA_REMOTE_FRAME, page_to_phys(page));
	put(PFA_REMOTE_START, (u64)write << 63 | offset);
	while (PFA_STATUS_TRANSFERRING(get(PFA_STATUS)))
		cpu_relax();
	return get(PFA_REMOTE_STATUS) == 2 ? 0 : -EIO;
}

static int transfer_stubbornly(bool write, pgoff_t offset, struct page *page)
{
	int attempt;

	for (attempt = 0; attempt < TRANSFER_ATTEMPTS; attempt++)
		if (!transfer(write, offset, page))
			return 0;
	return -EIO;
}

static pte_t *entry_of(struct mm_struct *mm, unsigned long address, spinlock_t **lock);

/* The blade does not take a page that has left the swap cache already, perhaps: it stays here, where a fault finds it. */
static void keep(pgoff_t offset, struct page *page)
{
	struct place *place = &places[offset];
	struct page *copy = alloc_page(GFP_ATOMIC | __GFP_HIGHMEM);
	spinlock_t *lock;
	pte_t *pte = place->mm && client_of(place->mm) ? entry_of(place->mm, place->address, &lock) : NULL;

	if (copy)
		copy_highpage(copy, page);
	place->kept = copy ?: ERR_PTR(-EIO);
	if (pte) {
		if (pfa_is_remote(*pte) && (pte_val(*pte) >> PAGE_SHIFT & ID_MASK) == offset)
			degrade(place->mm, place->address, pte, *pte);
		pte_unmap_unlock(pte, lock);
	}
	place->mm = NULL;
}

/* Waits for the oldest eviction. Until a failed one is popped, the accelerator does not fetch its page. */
static void eviction_end(void)
{
	struct eviction *oldest = &evictions[eviction_first];
	u64 outcome;

	while (!((outcome = get(PFA_EVICT_POP)) & WORD_VALID))
		cpu_relax();
	if (outcome & WORD_FAILED) {
		if (transfer_stubbornly(true, oldest->offset, oldest->page))
			keep(oldest->offset, oldest->page);
		put(PFA_EVICT_POP, 0);
	}
	eviction_first = (eviction_first + 1) % EVICTIONS_MOST;
	eviction_count--;
}

static void evictions_end(void)
{
	while (eviction_count)
		eviction_end();
}

static bool under_way(pgoff_t offset, struct page *page)
{
	unsigned int i;

	for (i = 0; i < eviction_count; i++) {
		struct eviction *other = &evictions[(eviction_first + i) % EVICTIONS_MOST];

		if (other->offset == offset || other->page == page)
			return true;
	}
	return false;
}

static void evict(pgoff_t offset, struct page *page)
{
	while (eviction_count >= eviction_limit)
		eviction_end();
	evictions[(eviction_first + eviction_count++) % EVICTIONS_MOST] = (struct eviction){ offset, page };
	put(PFA_EVICT_PUSH, (u64)offset << 36 | page_to_pfn(page));
	if (eviction_limit == 1)
		eviction_end();
}

void __pfa_evictions_settle(void)
{
	unsigned long begin = cycles();

	evictions_end();
	figures.store_cycles += cycles() - begin;
}

unsigned int pfa_evictions_under_way(void)
{
	return eviction_count;
}

static void forget_kept(struct place *place)
{
	if (!IS_ERR_OR_NULL(place->kept))
		__free_page(place->kept);
	place->kept = NULL;
}

static int blade_store(unsigned int type, pgoff_t offset, struct page *page)
{
	unsigned long begin = cycles();
	int ret = 0;

	if (offset >= place_count)
		return -ENOSPC;
	/* An earlier eviction that fails keeps its page here: that is over before this one begins, or the older page would be found. */
	if (under_way(offset, page))
		evictions_end();
	forget_kept(&places[offset]);
	if (pfa_clients || baseline_asynchronous)
		evict(offset, page);
	else
		ret = transfer_stubbornly(true, offset, page);
	figures.stores++;
	figures.store_cycles += cycles() - begin;
	return ret;
}

static int blade_load(unsigned int type, pgoff_t offset, struct page *page)
{
	unsigned long begin = cycles();
	struct page *kept;
	int ret = 0;

	if (under_way(offset, page))
		evictions_end();
	kept = places[offset].kept;
	if (IS_ERR(kept))
		ret = PTR_ERR(kept);
	else if (kept)
		copy_highpage(page, kept);
	else
		ret = transfer_stubbornly(false, offset, page);
	figures.loads++;
	figures.load_cycles += cycles() - begin;
	figures.swap_faults++;
	fault_paged = true;
	return ret;
}

static void blade_invalidate(unsigned int type, pgoff_t offset)
{
	if (offset >= place_count)
		return;
	places[offset].mm = NULL;
	forget_kept(&places[offset]);
}

static void blade_invalidate_area(unsigned int type)
{
	unsigned long offset;

	for (offset = 0; offset < place_count; offset++)
		forget_kept(&places[offset]);
	vfree(places);
	places = NULL;
	place_count = 0;
}

static void blade_init(unsigned int type)
{
	if (type)
		return;
	place_count = total_swap_pages + 4096;
	places = vzalloc(place_count * sizeof(*places));
	if (!places)
		place_count = 0;
}

static const struct frontswap_ops blade = {
	.init = blade_init,
	.store = blade_store,
	.load = blade_load,
	.invalidate_page = blade_invalidate,
	.invalidate_area = blade_invalidate_area,
};

static bool ours(swp_entry_t entry) { return swp_type(entry) == 0 && swp_offset(entry) < place_count; }

void pfa_unmapped(struct vm_area_struct *vma, unsigned long address, swp_entry_t entry, bool exclusive)
{
	if (!ours(entry))
		return;
	/* What the accelerator maps is writable and not code; anything else goes the kernel's way. */
	if (!client_of(vma->vm_mm) || !exclusive || !(vma->vm_flags & VM_WRITE) || (vma->vm_flags & (VM_EXEC | VM_LOCKED)))
		return;
	places[swp_offset(entry)].mm = vma->vm_mm;
	places[swp_offset(entry)].address = address;
}

/* The entry for an address, or NULL where there is no table. */
static pte_t *entry_of(struct mm_struct *mm, unsigned long address, spinlock_t **lock)
{
	pgd_t *pgd = pgd_offset(mm, address);
	p4d_t *p4d;
	pud_t *pud;
	pmd_t *pmd;

	if (pgd_none_or_clear_bad(pgd))
		return NULL;
	p4d = p4d_offset(pgd, address);
	if (p4d_none_or_clear_bad(p4d))
		return NULL;
	pud = pud_offset(p4d, address);
	if (pud_none_or_clear_bad(pud))
		return NULL;
	pmd = pmd_offset(pud, address);
	if (pmd_none_or_clear_bad(pmd))
		return NULL;
	return pte_offset_map_lock(mm, pmd, address, lock);
}

void pfa_evicted(swp_entry_t entry)
{
	struct place place;
	spinlock_t *lock;
	pte_t *pte;

	if (!ours(entry))
		return;
	place = places[swp_offset(entry)];
	if (!place.mm || !client_of(place.mm) || __swap_count(entry) != 1)
		return;
	pte = entry_of(place.mm, place.address, &lock);
	if (!pte)
		return;
	if (pte_val(*pte) == pte_val(swp_entry_to_pte(entry))) {
		/* A and D are set: this core faults on entries without them, and the copy on the blade is not kept. */
		unsigned long bits = _PAGE_READ | _PAGE_WRITE | _PAGE_USER | _PAGE_ACCESSED | _PAGE_DIRTY;

		set_pte_at(place.mm, place.address, pte, __pte(pte_val(*pte) | bits << 2 | 2));
	}
	pte_unmap_unlock(pte, lock);
}

/* What do_swap_page does after the page has been read, without the fault. */
static void book(struct mm_struct *mm, unsigned long address, pgoff_t offset)
{
	struct vm_area_struct *vma = find_vma(mm, address);
	struct mem_cgroup *group = get_mem_cgroup_from_mm(mm);
	spinlock_t *lock;
	struct page *page;
	pte_t *pte = entry_of(mm, address, &lock);

	BUG_ON(!vma || address < vma->vm_start || !pte || !pte_present(*pte));
	page = pte_page(*pte);
	/* The frame was another process's gift. */
	if (folio_memcg(page_folio(page)) != group) {
		mem_cgroup_uncharge(page_folio(page));
		mem_cgroup_charge(page_folio(page), mm, GFP_ATOMIC | __GFP_NOFAIL);
	}
	mem_cgroup_put(group);
	__SetPageUptodate(page);
	inc_mm_counter(mm, MM_ANONPAGES);
	dec_mm_counter(mm, MM_SWAPENTS);
	page_add_new_anon_rmap(page, vma, address);
	lru_cache_add_inactive_or_unevictable(page, vma);
	pte_unmap_unlock(pte, lock);
	swap_free(swp_entry(0, offset));
	figures.booked++;
}

/* A page of another process is booked for it, unless that one is changing its mappings: then the page waits for it. Nobody else knows
 * such a page: its list and its words are free. */
static void book_for(struct client *client, unsigned long address, pgoff_t offset)
{
	spinlock_t *lock;
	struct page *page;
	pte_t *pte;

	figures.handed_over++;
	if (mmap_read_trylock(client->mm)) {
		book(client->mm, address, offset);
		mmap_read_unlock(client->mm);
		return;
	}
	pte = entry_of(client->mm, address, &lock);
	BUG_ON(!pte || !pte_present(*pte));
	page = pte_page(*pte);
	page->index = address;
	set_page_private(page, offset);
	list_add_tail(&page->lru, &client->fetched);
	pte_unmap_unlock(pte, lock);
}

static struct client *client_by_root(unsigned long root)
{
	struct client *client;

	for_each_client(client)
		if (client->root == root)
			return client;
	return NULL;
}

void __pfa_settle(struct mm_struct *mm)
{
	unsigned long begin = cycles();
	struct client *own = client_of(mm), *client = own;
	u64 word, context = 0;

	if (!own)
		return;
	while (!list_empty(&own->fetched)) {
		struct page *page = list_first_entry(&own->fetched, struct page, lru);
		unsigned long address = page->index;
		pgoff_t offset = page_private(page);

		list_del(&page->lru);
		set_page_private(page, 0);
		book(mm, address, offset);
	}
	for (;;) {
		/* With one process there is nothing to be told apart. */
		if (pfa_clients > 1)
			context = get(PFA_NEW_CONTEXT);
		word = get(PFA_NEW_POP);
		if (!(word & WORD_VALID))
			break;
		if (pfa_clients > 1)
			client = client_by_root(context & ~WORD_VALID);
		BUG_ON(!client);
		if (client == own)
			book(mm, PFA_NEW_POP_VPN(word) << PAGE_SHIFT, PFA_NEW_POP_ID(word));
		else
			book_for(client, PFA_NEW_POP_VPN(word) << PAGE_SHIFT, PFA_NEW_POP_ID(word));
	}
	figures.book_cycles += cycles() - begin;
}

/* Fills the FreeQ to the batch. The frames count as the process's own. */
static void give(struct mm_struct *mm)
{
	unsigned long begin = cycles();
	unsigned int wanted = min(batch, 1U << PFA_IDENTITY_FREE_DEPTH(get(PFA_IDENTITY)));

	while (free_count() < wanted) {
		struct folio *folio = folio_alloc(GFP_HIGHUSER_MOVABLE, 0);

		if (!folio)
			break;
		/* Reclaim may let others run, who give, too. */
		if (mem_cgroup_charge(folio, mm, GFP_KERNEL) || free_count() >= wanted) {
			folio_put(folio);
			break;
		}
		put(PFA_FREE_PUSH, PFN_PHYS(folio_pfn(folio)));
		figures.given++;
	}
	figures.give_cycles += cycles() - begin;
}

static void serve(struct mm_struct *mm)
{
	__pfa_settle(mm);
	give(mm);
}

/* The same where no fault is measured around it. */
static void serve_and_count(struct mm_struct *mm)
{
	unsigned long begin = cycles(), reclaimed = figures.reclaim_cycles;

	serve(mm);
	figures.paging_cycles += cycles() - begin;
	figures.paging_reclaim_cycles += figures.reclaim_cycles - reclaimed;
}

/* An interrupt of the NewQ is served when a process is about to go on: in its own context, where page tables may be changed. */
static void serve_interrupt(struct callback_head *unused)
{
	struct mm_struct *mm = current->mm;

	if (!mm || !client_of(mm))
		return;
	mmap_read_lock(mm);
	serve_and_count(mm);
	mmap_read_unlock(mm);
	put(PFA_INTERRUPT_ENABLE, INTERRUPT_NEW);
}

static irqreturn_t pfa_interrupt(int irq, void *unused)
{
	struct client *client = current->mm ? client_of(current->mm) : NULL, *any;

	put(PFA_INTERRUPT_ENABLE, 0);
	figures.interrupts++;
	for_each_client(any)
		client = client ?: any;
	/* A process that exits settles by itself. */
	if (client)
		task_work_add(client->task, &client->work, TWA_RESUME);
	return IRQ_HANDLED;
}

/*
 * kpfad keeps the books while the processor has nothing better to do. It looks a little later each time, and earlier after a process
 * had to be interrupted because a queue was exhausted: so it finds out how long the queues last.
 */
static int kpfad(void *unused)
{
	for (;;) {
		ktime_t period;
		struct client *client;

		wait_event_idle(kpfad_wait, kpfad_wanted && pfa_clients);
		period = ns_to_ktime(kpfad_ns);
		set_current_state(TASK_IDLE);
		schedule_hrtimeout_range(&period, 0, HRTIMER_MODE_REL);
		for_each_client(client) {
			struct mm_struct *mm = client->mm;

			if (!mmget_not_zero(mm))
				continue;
			if (mmap_read_trylock(mm)) {
				unsigned long booked = figures.booked;

				serve_and_count(mm);
				mmap_read_unlock(mm);
				figures.kpfad_runs++;
				figures.kpfad_booked += figures.booked - booked;
			}
			mmput(mm);
		}
		kpfad_ns = min(kpfad_longer(kpfad_ns), (unsigned long)KPFAD_MOST_NS);
	}
}

/*
 * Memory did not take a block of a frame: that frame is nobody's any more. Others keep their order. False: the error was another one, and
 * the walker may meet it again.
 */
static bool bus_error(void)
{
	u64 error = get(PFA_BUS_ERROR), word;
	unsigned long retired = figures.frames_retired;
	unsigned int left;

	put(PFA_BUS_ERROR, 0);
	figures.bus_errors++;
	if (!(error & WORD_VALID) || PFA_BUS_ERROR_ACCESS(error) != PFA_BUS_FRAME_WRITE)
		return false;
	fetches_stop();
	for (left = free_count(); left && (word = get(PFA_FREE_POP)) & WORD_VALID; left--) {
		if ((word & ADDRESS_MASK) == (error & ADDRESS_MASK)) {
			mem_cgroup_uncharge(page_folio(phys_to_page(word & ADDRESS_MASK)));
			figures.frames_retired++;
		} else {
			put(PFA_FREE_PUSH, word & ADDRESS_MASK);
		}
	}
	fetches_go_on();
	return figures.frames_retired > retired;
}

/* Why the walk that led to this fault was refused. A kernel that wants a page by itself has asked no walker. */
static unsigned int refusal_of(unsigned long address)
{
	u64 word = get(PFA_REFUSAL);

	put(PFA_REFUSAL, 0);
	if (!(word & WORD_VALID) || PFA_REFUSAL_VPN(word) != (address >> PAGE_SHIFT & VPN_MASK))
		return NO_REFUSAL;
	return PFA_REFUSAL_REASON(word);
}

/* Whether the walker may ask again, with a better prospect. */
static bool mended(struct mm_struct *mm, unsigned int reason)
{
	switch (reason) {
	case PFA_REFUSED_NO_FRAME:
	case PFA_REFUSED_NEW_FULL:
		figures.queue_faults++;
		fault_paged = true;
		kpfad_ns = max(kpfad_shorter(kpfad_ns), (unsigned long)KPFAD_LEAST_NS);
		serve(mm);
		return free_count() != 0;
	case PFA_REFUSED_EVICTION_FAILED:
		/* Each that failed is tried anew, or its page kept here under a plain entry. */
		evictions_end();
		return true;
	case PFA_REFUSED_BUS_ERROR:
		return bus_error() && free_count() != 0;
	default:
		return false;
	}
}

bool pfa_serve(struct vm_fault *vmf)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	unsigned int reason = refusal_of(vmf->address);
	spinlock_t *lock;
	pte_t *pte;

	if (client_of(mm) && mended(mm, reason)) {
		/* The TLB remembers that the entry was not valid. */
		local_flush_tlb_page(vmf->address);
		return true;
	}
	pte = entry_of(mm, vmf->address, &lock);
	if (!pte || !pte_same(*pte, vmf->orig_pte)) {
		/* It is something else by now, and so is the next fault. */
		if (pte)
			pte_unmap_unlock(pte, lock);
		local_flush_tlb_page(vmf->address);
		return true;
	}
	degrade(mm, vmf->address, pte, vmf->orig_pte);
	figures.degraded++;
	vmf->orig_pte = pfa_plain(vmf->orig_pte);
	pte_unmap_unlock(pte, lock);
	return false;
}

/* Frames that wait in the FreeQ are given back: they are charged to whoever gave them. The others give new ones. */
static void take_frames_back(void)
{
	u64 word;

	while ((word = get(PFA_FREE_POP)) & WORD_VALID)
		put_page(phys_to_page(word & ADDRESS_MASK));
}

void pfa_exit(struct mm_struct *mm)
{
	struct client *client = client_of(mm);

	if (!client)
		return;
	fetches_stop();
	__pfa_settle(mm);
	evictions_end();
	/* An eviction that failed may have let fetches go on. */
	fetches_stop();
	take_frames_back();
	client->mm = NULL;
	put_task_struct(client->task);
	if (!--pfa_clients)
		put(PFA_INTERRUPT_ENABLE, 0);
	fetches_go_on();
	mmdrop(mm);
}

static int pfa_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "faults %lu\nswap_faults %lu\nqueue_faults %lu\npaging_cycles %lu\n", figures.faults, figures.swap_faults,
		   figures.queue_faults, figures.paging_cycles);
	seq_printf(file, "interrupts %lu\nkpfad_runs %lu\nkpfad_booked %lu\nkpfad_ns %lu\nreclaims %lu\nreclaim_cycles %lu\n"
		   "paging_reclaim_cycles %lu\n",
		   figures.interrupts, figures.kpfad_runs, figures.kpfad_booked, kpfad_ns, figures.reclaims, figures.reclaim_cycles,
		   figures.paging_reclaim_cycles);
	seq_printf(file, "clean_faults %lu\nclean_cycles %lu\nclean_load_cycles %lu\n", figures.clean_faults, figures.clean_cycles,
		   figures.clean_load_cycles);
	seq_printf(file, "loads %lu\nload_cycles %lu\nstores %lu\nstore_cycles %lu\n", figures.loads, figures.load_cycles,
		   figures.stores, figures.store_cycles);
	seq_printf(file, "booked %lu\nbook_cycles %lu\ngiven %lu\ngive_cycles %lu\n", figures.booked, figures.book_cycles,
		   figures.given, figures.give_cycles);
	seq_printf(file, "fetches %llu\nfetch_cycles %llu\ntravel_cycles %llu\nfetch_longest %llu\n", get(PFA_FETCHES) - fetches_before,
		   get(PFA_FETCH_CYCLES) - fetch_cycles_before, get(PFA_TRAVEL_CYCLES) - travel_cycles_before, get(PFA_FETCH_LONGEST));
	seq_printf(file, "queued %u\nclients %u\ndegraded %lu\nbus_errors %lu\nframes_retired %lu\nhanded_over %lu\n", free_count(),
		   pfa_clients, figures.degraded, figures.bus_errors, figures.frames_retired, figures.handed_over);
	return 0;
}

static int attach(void)
{
	struct client *client;

	if (client_of(current->mm))
		return 0;
	for (client = clients; client->mm; )
		if (++client == clients + CLIENTS_MOST)
			return -ENOSPC;
	client->mm = current->mm;
	mmgrab(client->mm);
	client->task = get_task_struct(current);
	client->root = virt_to_pfn(client->mm->pgd);
	client->work.func = serve_interrupt;
	INIT_LIST_HEAD(&client->fetched);
	pfa_clients++;
	kpfad_ns = KPFAD_BEGIN_NS;
	wake_up(&kpfad_wait);
	put(PFA_NEW_THRESHOLD, threshold);
	put(PFA_INTERRUPT_ENABLE, threshold && interrupt ? INTERRUPT_NEW : 0);
	put(PFA_TIMEOUT, timeout_cycles);
	put(PFA_CONTROL, 1);
	return 0;
}

static int simulator_put(unsigned int offset, unsigned long value)
{
	void __iomem *simulator = ioremap(SIMULATOR_BASE, PAGE_SIZE);

	if (!simulator)
		return -ENOMEM;
	writeq(value, simulator + offset);
	iounmap(simulator);
	return 0;
}

/* For tests: memory does not take the frame any more that is used next. */
static int spoil(void)
{
	u64 word, next = 0;
	unsigned int left;

	fetches_stop();
	for (left = free_count(); left && (word = get(PFA_FREE_POP)) & WORD_VALID; left--) {
		next = next ?: word & ADDRESS_MASK;
		put(PFA_FREE_PUSH, word & ADDRESS_MASK);
	}
	fetches_go_on();
	return next ? simulator_put(SIMULATOR_BAD_PAGE, next) : -ENOENT;
}

/*
 * "attach": the accelerator fetches for this process. Before that: "batch N": frames in the FreeQ; "evictions N": at once;
 * "threshold N": pages in the NewQ for an interrupt, 0 for none; "kpfad 0", "kpfad 1"; "timeout N": cycles after which a request to
 * the blade has failed; "asynchronous 0", "asynchronous 1": how processes write back that are not attached. "reset": the figures
 * begin again. "spoil": for tests, see there.
 */
static ssize_t pfa_write(struct file *file, const char __user *text, size_t bytes, loff_t *at)
{
	char command[32];
	unsigned int number;

	if (bytes >= sizeof(command))
		return -EINVAL;
	if (copy_from_user(command, text, bytes))
		return -EFAULT;
	command[bytes] = 0;
	if (!strncmp(command, "attach", 6)) {
		int failed = attach();

		if (failed)
			return failed;
	} else if (sscanf(command, "batch %u", &number) == 1 && number >= 1 && number <= 64) {
		batch = number;
	} else if (sscanf(command, "evictions %u", &number) == 1 && number >= 1 && number <= 1U << PFA_IDENTITY_EVICT_DEPTH(get(PFA_IDENTITY))) {
		eviction_limit = number;
	} else if (sscanf(command, "threshold %u", &number) == 1 && number <= 64) {
		threshold = number;
	} else if (sscanf(command, "timeout %u", &number) == 1 && number >= 1) {
		timeout_cycles = number;
		put(PFA_TIMEOUT, number);
	} else if (sscanf(command, "asynchronous %u", &number) == 1 && number <= 1) {
		evictions_end();
		baseline_asynchronous = number;
	} else if (sscanf(command, "kpfad %u", &number) == 1 && number <= 1) {
		kpfad_wanted = number;
	} else if (!strncmp(command, "spoil", 5)) {
		int failed = spoil();

		if (failed)
			return failed;
	} else if (!strncmp(command, "reset", 5)) {
		memset(&figures, 0, sizeof(figures));
		fetches_before = get(PFA_FETCHES);
		fetch_cycles_before = get(PFA_FETCH_CYCLES);
		travel_cycles_before = get(PFA_TRAVEL_CYCLES);
	} else {
		return -EINVAL;
	}
	return bytes;
}

/* What the simulator was told to run: its argument registers, one on each line. */
static int settings_show(struct seq_file *file, void *unused)
{
	void __iomem *simulator = ioremap(SIMULATOR_BASE, PAGE_SIZE);
	int i;

	if (!simulator)
		return -ENOMEM;
	for (i = 0; i < SIMULATOR_ARGUMENTS; i++)
		seq_printf(file, "%llu\n", readq(simulator + SIMULATOR_ARGUMENT + 8 * i));
	iounmap(simulator);
	return 0;
}

static int pfa_open(struct inode *inode, struct file *file) { return single_open(file, pfa_show, NULL); }

/* "OFFSET VALUE": a register of the simulator, for tests. */
static ssize_t settings_write(struct file *file, const char __user *text, size_t bytes, loff_t *at)
{
	char command[32];
	unsigned int offset;
	unsigned long value;
	int failed;

	if (bytes >= sizeof(command))
		return -EINVAL;
	if (copy_from_user(command, text, bytes))
		return -EFAULT;
	command[bytes] = 0;
	if (sscanf(command, "%u %lu", &offset, &value) != 2 || offset >= PAGE_SIZE || offset % 8)
		return -EINVAL;
	failed = simulator_put(offset, value);
	return failed ?: bytes;
}

static int settings_open(struct inode *inode, struct file *file) { return single_open(file, settings_show, NULL); }

static const struct proc_ops settings_proc = {
	.proc_open = settings_open,
	.proc_read = seq_read,
	.proc_write = settings_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static const struct proc_ops pfa_proc = {
	.proc_open = pfa_open,
	.proc_read = seq_read,
	.proc_write = pfa_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int __init pfa_init(void)
{
	struct device_node *node;
	struct task_struct *thread;

	registers = ioremap(PFA_BASE, PAGE_SIZE);
	if (!registers)
		return -ENOMEM;
	if (!proc_create("pfa", 0600, NULL, &pfa_proc) || !proc_create("pfa_settings", 0600, NULL, &settings_proc))
		return -ENOMEM;
	node = of_find_compatible_node(NULL, NULL, "farmem,pfa");
	if (node)
		interrupt = irq_of_parse_and_map(node, 0);
	of_node_put(node);
	if (interrupt && request_irq(interrupt, pfa_interrupt, 0, "pfa", NULL))
		interrupt = 0;
	thread = kthread_run(kpfad, NULL, "kpfad");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	set_user_nice(thread, MAX_NICE);
	return frontswap_register_ops(&blade);
}
device_initcall(pfa_init);

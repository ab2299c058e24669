//! What a move says that it has moved: exactly what has arrived, even when pages change at that very moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use farmem_page::{PAGE_BYTES, PageCount, PageIndex, PageRange, VirtAddr};
use farmem_sys::pagemap::{Pagemap, Runs};
use farmem_sys::uffd::{Uffd, UffdError};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

const PAGES: u64 = 64;
const ROUNDS: u64 = 20_000;
/// `UFFD_FEATURE_MOVE`.
const CAN_MOVE: u64 = 1 << 16;
const WORDS_PER_PAGE: usize = PAGE_BYTES / size_of::<AtomicU64>();

/// Memory of its own, which stays for as long as the test runs.
fn map() -> (PageRange, &'static [AtomicU64]) {
    let bytes = PAGES as usize * PAGE_BYTES;
    // SAFETY: a new mapping, of which nobody knows.
    let start = unsafe {
        mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .unwrap();
    // SAFETY: the mapping is never undone, is aligned to pages and as long as the slice, and zeros are valid
    // words. It is only reached as atomics, and a page that is missing is brought back by this test, or its
    // thread waits for ever.
    let words = unsafe { core::slice::from_raw_parts(start.cast(), bytes / size_of::<AtomicU64>()) };
    (PageRange::at(VirtAddr::new(start as u64).page(), PageCount::new(PAGES)), words)
}

fn is_there(pagemap: &Pagemap, page: PageIndex) -> bool {
    let mut runs = Runs::empty();
    pagemap.resident(PageRange::at(page, PageCount::new(1)), &mut runs).unwrap();
    runs.iter().next().is_some()
}

fn that_can_move() -> Option<Uffd> {
    let Ok(uffd) = Uffd::create(None) else {
        eprintln!("skipped: this user may not use userfaultfd");
        return None;
    };
    if uffd.handshake(CAN_MOVE).is_err() {
        eprintln!("skipped: this kernel can't move pages");
        return None;
    }
    Some(uffd)
}

fn first(range: PageRange, pages: u64) -> PageRange {
    PageRange::at(range.start, PageCount::new(pages))
}

/// Linux 6.18 moves the kernel's page of zeros without counting it.
#[test]
fn pages_of_zeros_that_have_arrived_count() {
    let Some(uffd) = that_can_move() else { return };
    let pagemap = Pagemap::open().unwrap();
    let ((from, words), (to, _)) = (map(), map());
    // Read, and never written; the one between has a frame of its own.
    (0..3).for_each(|page| assert_eq!(words[page * WORDS_PER_PAGE].load(Ordering::Relaxed), 0));
    words[WORDS_PER_PAGE].store(1, Ordering::Relaxed);
    uffd.register(from).unwrap();
    uffd.register(to).unwrap();

    let mut moved = 0;
    // It may stop at each.
    while moved < 3 {
        let rest = PageRange::new(from.start + PageCount::new(moved), first(from, 3).end);
        let done = uffd.move_pages(rest, to.start + PageCount::new(moved), &pagemap).done.get();
        assert!(done > 0, "page {moved} has arrived without being counted, or not at all");
        moved += done;
    }

    assert_eq!(moved, 3);
    let (mut left, mut arrived) = (Runs::empty(), Runs::empty());
    pagemap.present(first(from, 3), &mut left).unwrap();
    pagemap.present(first(to, 3), &mut arrived).unwrap();
    assert!(
        from.iter().take(3).all(|page| !left.hold(page)) && to.iter().take(3).all(|page| arrived.hold(page))
    );
}

#[test]
fn a_page_of_zeros_that_was_there_before_is_in_the_way() {
    let Some(uffd) = that_can_move() else { return };
    let pagemap = Pagemap::open().unwrap();
    let ((from, words), (to, targets)) = (map(), map());
    words[0].store(1, Ordering::Relaxed);
    assert_eq!(targets[0].load(Ordering::Relaxed), 0);
    uffd.register(from).unwrap();
    uffd.register(to).unwrap();

    let progress = uffd.move_pages(first(from, 1), to.start, &pagemap);

    assert_eq!((progress.done, progress.stopped), (PageCount::ZERO, Some(UffdError::Exists)));
    assert!(is_there(&pagemap, from.start));
}

/// The processor notes in a page's entry that the page is in use. When that happens while the kernel is about
/// to move the page, Linux 6.18 moves it, and those behind it, without counting them.
#[test]
fn what_a_move_counts_is_what_has_arrived() {
    let Some(uffd) = that_can_move() else { return };
    let pagemap = Pagemap::open().unwrap();
    let ((from, words), (to, _)) = (map(), map());
    let of_page = |page: u64| &words[page as usize * WORDS_PER_PAGE];
    (0..PAGES).for_each(|page| of_page(page).store(page + 1, Ordering::Relaxed));
    uffd.register(from).unwrap();
    uffd.register(to).unwrap();
    let has_ended = AtomicBool::new(false);
    // Told at the end: until then a page that is missing has a thread that waits for it.
    let mut wrong = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                for page in 0..PAGES {
                    assert_eq!(of_page(page).load(Ordering::Relaxed), page + 1);
                }
            }
        });
        for _ in 0..ROUNDS {
            // SAFETY: only a hint, which changes nothing of what the memory holds.
            unsafe {
                madvise(from.start.addr().get() as *mut _, PAGES as usize * PAGE_BYTES, Advice::LinuxCold)
            }
            .unwrap();
            let done = uffd.move_pages(from, to.start, &pagemap).done;
            for (source, target) in from.iter().zip(to.iter()) {
                let has_arrived = is_there(&pagemap, target);
                wrong += u64::from(has_arrived != (target < to.start + done));
                if has_arrived {
                    while uffd.move_pages(PageRange::at(target, PageCount::new(1)), source, &pagemap).done
                        == PageCount::ZERO
                    {}
                }
            }
            uffd.wake(from);
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong, 0, "pages that have arrived and don't count, or the other way round");
}

//! What a userfaultfd answers when it is only asked.

use farmem_page::{PAGE_BYTES, PageCount, PageIndex, PageRange, VirtAddr};
use farmem_sys::uffd::Uffd;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

const NOWHERE: PageIndex = VirtAddr::new((1 << 47) - 2 * PAGE_BYTES as u64).page();

/// `UFFD_FEATURE_MOVE`.
const CAN_MOVE: u64 = 1 << 16;

/// A userfaultfd, and two pages of which it knows the first.
fn half_registered() -> Option<(Uffd, PageRange)> {
    let uffd = Uffd::create(None).ok().filter(|uffd| uffd.handshake(CAN_MOVE).is_ok());
    let Some(uffd) = uffd else {
        eprintln!("skipped: this user may not use userfaultfd");
        return None;
    };
    // SAFETY: a new mapping, of which nobody knows.
    let start = unsafe {
        mmap_anonymous(
            core::ptr::null_mut(),
            2 * PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .unwrap();
    let first = VirtAddr::new(start as u64).page();
    uffd.register_missing(PageRange::at(first, PageCount::new(1))).unwrap();
    Some((uffd, PageRange::at(first, PageCount::new(2))))
}

#[test]
fn a_registered_page_is_known_whether_or_not_it_is_there() {
    let Some((uffd, pages)) = half_registered() else { return };

    let missing = uffd.is_registered(pages.start);
    assert_eq!(uffd.zero_in(PageRange::at(pages.start, PageCount::new(1))).stopped, None);
    let present = uffd.is_registered(pages.start);

    assert_eq!((missing, present), (Some(true), Some(true)));
}

#[test]
fn a_page_that_is_not_registered_or_not_mapped_is_not_known() {
    let Some((uffd, pages)) = half_registered() else { return };

    let second = PageIndex::new(pages.start.get() + 1);

    assert_eq!((uffd.is_registered(second), uffd.is_registered(NOWHERE)), (Some(false), Some(false)));
}

//! Where this process keeps its mailbox: a page that a forked child finds empty, so that it makes a mailbox
//! of its own.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use farmem_mailbox::{BYTES, Mailbox, WORDS};

use crate::kernel::{call, number};

const PAGE_BYTES: usize = 4096;

/// What is in the page.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Home {
    /// Null before the first hint; the home itself where no mailbox can be made.
    mailbox: AtomicPtr<AtomicU64>,
    /// Of the program's own prefetcher.
    pub(crate) callback: AtomicPtr<c_void>,
    pub(crate) context: AtomicPtr<c_void>,
    pub(crate) state: AtomicU32,
    pub(crate) percent: AtomicU32,
    pub(crate) thread: AtomicU32,
}
const _: () = assert!(size_of::<Home>() <= PAGE_BYTES);

/// Null until the first hint.
static HOME: AtomicPtr<Home> = AtomicPtr::new(null_mut());

/// Of this process; `None` where the kernel has no such memory. Also in handlers of signals.
pub(crate) fn home() -> Option<&'static Home> {
    let known = HOME.load(Ordering::Acquire);
    let home = if known.is_null() { make_home()? } else { known };
    // SAFETY: the page is never unmapped, and zeros are a valid `Home`, of which every part may be changed by
    // any thread.
    Some(unsafe { &*home })
}

fn make_home() -> Option<*mut Home> {
    const READ_AND_WRITE: usize = 3;
    const PRIVATE_AND_ANONYMOUS: usize = 0x22;
    const WIPE_ON_FORK: usize = 18;
    // SAFETY: maps a page where there is nothing; only this function knows it until it is published.
    unsafe {
        let arguments = [0, PAGE_BYTES, READ_AND_WRITE, PRIVATE_AND_ANONYMOUS, usize::MAX, 0];
        let page = call(number::MMAP, arguments)?;
        let is_wiped = call(number::MADVISE, [page, PAGE_BYTES, WIPE_ON_FORK, 0, 0, 0]).is_some();
        let made = std::ptr::with_exposed_provenance_mut(page);
        let published = HOME.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        if is_wiped && published.is_ok() {
            return Some(made);
        }
        if published.is_ok() {
            // Without that a child would take its parent's mailbox for its own.
            HOME.store(null_mut(), Ordering::Release);
        }
        call(number::MUNMAP, [page, PAGE_BYTES, 0, 0, 0, 0]);
        published.err()
    }
}

/// Of this process, made when it is asked for first; `None` where none can be made. Also in handlers of
/// signals.
pub(crate) fn mailbox() -> Option<Mailbox<'static>> {
    let home = home()?;
    let nothing = std::ptr::from_ref(home).cast_mut().cast::<AtomicU64>();
    let mut base = home.mailbox.load(Ordering::Acquire);
    if base.is_null() {
        let made = make_mailbox().unwrap_or(nothing);
        match home.mailbox.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => base = made,
            Err(other) => {
                if made != nothing {
                    // SAFETY: nobody else knows it.
                    unsafe { call(number::SHMDT, [made.addr(), 0, 0, 0, 0, 0]) };
                }
                base = other;
            }
        }
    }
    if base == nothing {
        return None;
    }
    // SAFETY: so many words, which stay mapped for as long as the process lives, and which nobody here
    // reaches but as atomics.
    Mailbox::over(unsafe { std::slice::from_raw_parts(base, WORDS) })
}

/// A segment that goes with its last mapping, that no child gets, and that has no name.
fn make_mailbox() -> Option<*mut AtomicU64> {
    const NEW_AND_OWN: usize = 0o1600;
    const REMOVE: usize = 0;
    const DONT_FORK: usize = 10;
    const DONT_DUMP: usize = 16;
    // SAFETY: makes a segment and maps it where there is nothing.
    let base = unsafe {
        let segment = call(number::SHMGET, [0, BYTES, NEW_AND_OWN, 0, 0, 0])?;
        let base = call(number::SHMAT, [segment, 0, 0, 0, 0, 0]);
        call(number::SHMCTL, [segment, REMOVE, 0, 0, 0, 0]);
        let base = base?;
        if call(number::MADVISE, [base, BYTES, DONT_FORK, 0, 0, 0]).is_none() {
            call(number::SHMDT, [base, 0, 0, 0, 0, 0]);
            return None;
        }
        call(number::MADVISE, [base, BYTES, DONT_DUMP, 0, 0, 0]);
        std::ptr::with_exposed_provenance_mut::<AtomicU64>(base)
    };
    // SAFETY: the segment has so many words, zeros, and stays mapped.
    let words = unsafe { std::slice::from_raw_parts(base, WORDS) };
    Mailbox::over(words)?.begin();
    Some(base)
}

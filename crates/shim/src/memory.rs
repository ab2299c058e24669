//! What the program tells the kernel about its memory, where that concerns the pager.

use core::ffi::{c_int, c_ulong, c_void};
use core::ptr::NonNull;

use farmem_pager::Engine;
use farmem_sys::thread;

use crate::{libc, program, real};

const MADV_DONTNEED: c_int = 4;
const MADV_FREE: c_int = 8;
const MADV_WIPEONFORK: c_int = 18;
const MADV_POPULATE_READ: c_int = 22;
const MADV_GUARD_INSTALL: c_int = 102;

const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
const PAGE_BYTES: usize = 4096;
const ENOMEM: c_int = 12;

/// Where a userfaultfd is to be told of faults: the beginning of the kernel's `struct uffdio_register`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Registration {
    start: u64,
    length: u64,
}

/// A lazily freed page goes later, when the kernel needs memory, and tells nobody. Until then it would count as the
/// program's, and might be paged out for nothing. So where the kernel allows pages to be freed lazily, which is in
/// private anonymous memory only, managed ones go at once: nobody may rely on when they do.
///
/// Guards take the place of pages without a word to whoever manages these, too (Linux 6.13). What is stored of them must go, or it would come
/// back when the guards do.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    let Some(next) = real::MADVISE.get() else { return real::missing() };
    let engine = program::engine().filter(|engine| engine.is_managing());
    // A process that isn't managed yet may be when it forks.
    if advice == MADV_WIPEONFORK
        && let Some(engine) = program::engine()
    {
        engine.note_wiped();
    }
    // SAFETY: passed on as it came.
    let answer = unsafe { next(address, length, advice) };
    // A range with holes has guards wherever it is mapped.
    let is_guarded = advice == MADV_GUARD_INSTALL && (answer == 0 || libc::error() == ENOMEM);
    if engine.is_some() && (is_guarded || advice == MADV_FREE && answer == 0) {
        let before = libc::error();
        // SAFETY: the kernel has just agreed that the content of these pages may go, or has taken it. Guards stay.
        unsafe { next(address, length, MADV_DONTNEED) };
        libc::set_error(before);
    }
    answer
}

/// Locking everything at once would fill the whole pool, which is mapped here too, with memory. So pages are locked as they
/// are touched.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    const MCL_ONFAULT: c_int = 4;
    let Some(next) = real::MLOCKALL.get() else { return real::missing() };
    let flags = if program::engine().is_some() { flags | MCL_ONFAULT } else { flags };
    // SAFETY: passed on, with one more flag.
    unsafe { next(flags) }
}

/// A page has one userfaultfd. Where the program wants its own, the pager gives way first.
///
/// # Safety
/// As the C library's. That one is variadic; its only further argument travels as it does here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let Some(next) = real::IOCTL.get() else { return real::missing() };
    // Some programs hand the number over as an int, whose upper half is then anything.
    if request & 0xffff_ffff == UFFDIO_REGISTER
        && let Some(engine) = program::engine().filter(|engine| engine.is_managing())
        && let Some(registration) = NonNull::new(argument.cast::<Registration>())
    {
        // SAFETY: the request's argument is such a structure.
        let asked = unsafe { registration.read_unaligned() };
        give_way(engine, asked);
    }
    // SAFETY: passed on as it came.
    unsafe { next(fd, request, argument) }
}

/// Makes memory the program's own again. What can't be brought back (memory that nobody may read) stays managed, and
/// the program's registration fails.
fn give_way(engine: &Engine, asked: Registration) {
    let (start, length) = (asked.start as usize, asked.length as usize);
    let Some(end) = start.checked_add(length) else { return };
    // The kernel refuses any other.
    if length == 0 || !start.is_multiple_of(PAGE_BYTES) || !length.is_multiple_of(PAGE_BYTES) {
        return;
    }
    let Some(advise) = real::MADVISE.get() else { return };
    if !engine.let_go(start, length) {
        return;
    }
    let mut is_back = true;
    for address in (start..end).step_by(PAGE_BYTES).filter(|&address| engine.is_far(address)) {
        // SAFETY: reads a page in, as a touch would, but fails where a touch would end the program.
        let answer = unsafe {
            advise(core::ptr::with_exposed_provenance_mut(address), PAGE_BYTES, MADV_POPULATE_READ)
        };
        is_back &= answer == 0 && comes_back(engine, address);
    }
    if is_back {
        engine.finish_let_go(start, length);
    }
}

/// Waits until the pager knows a page to be local: the thread that touched it goes on a little earlier.
fn comes_back(engine: &Engine, address: usize) -> bool {
    const LOOKS: usize = 5000;
    const LOOK_NS: u64 = 20_000;
    (0..LOOKS).any(|look| {
        if look > 0 {
            thread::sleep(LOOK_NS);
        }
        !engine.is_far(address)
    })
}

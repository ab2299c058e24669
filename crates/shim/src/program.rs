//! The pager of this process, as the program's threads see it.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use farmem_pager::{Engine, Failure, NAME_BYTES, Start, Started};
use farmem_sys::process;

use crate::environment::Own;
use crate::{fork, libc};

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(core::ptr::null_mut());
static NAME: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static NAME_LENGTH: AtomicUsize = AtomicUsize::new(0);
static STACK: AtomicUsize = AtomicUsize::new(0);
/// Something in the library's own writable data, which must not be managed. Its middle is more than a page behind the beginning of what begins
/// as zeros: that page is the file's, and so of another mapping.
static DATA: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
const _: () = assert!(size_of_val(&DATA) >= 2 * 4096, "half of it is a page");

/// Connects this process to its supervisor. A program whose supervisor has gone runs on unmanaged.
pub(crate) fn start(own: Own, stack: usize) {
    NAME.store(own.supervisor.as_ptr().cast_mut(), Ordering::Release);
    NAME_LENGTH.store(own.supervisor.len(), Ordering::Release);
    STACK.store(stack, Ordering::Release);
    if let Some(order) = order()
        && order.in_program(publish).is_ok()
    {
        // SAFETY: the handlers live as long as the library, which is never unloaded.
        unsafe {
            libc::__register_atfork(
                Some(fork::before),
                Some(fork::in_parent),
                Some(fork::in_child),
                core::ptr::null(),
            )
        };
    }
}

/// Connects a process again that had a pager before. Where that isn't allowed any more, it goes on unmanaged.
pub(crate) fn start_again() {
    if let Some(order) = order() {
        let _ = order.in_program(publish);
    }
}

/// What the start of a pager in this process is told.
pub(crate) fn order() -> Option<Start> {
    let name = NAME.load(Ordering::Acquire);
    if name.is_null() {
        return None;
    }
    // SAFETY: set in `start` to a string that lives as long as the process.
    let name = unsafe { core::slice::from_raw_parts(name, NAME_LENGTH.load(Ordering::Acquire)) };
    let mut order = Start {
        name: [0; NAME_BYTES],
        name_length: name.len(),
        stack: STACK.load(Ordering::Acquire),
        data: (&raw const DATA[DATA.len() / 2]).addr(),
    };
    order.name.get_mut(..name.len())?.copy_from_slice(name);
    Some(order)
}

/// Makes a pager this process's.
pub(crate) fn publish(engine: Started) {
    ENGINE.store(core::ptr::from_ref(engine).cast_mut(), Ordering::Release);
}

/// Forgets the pager: in a forked child it is the parent's.
pub(crate) fn forget() {
    ENGINE.store(core::ptr::null_mut(), Ordering::Release);
}

/// This process's pager, if it has one. A process that was made by a bare `clone` has its parent's pager in its memory, without the threads
/// that would answer it.
pub(crate) fn engine() -> Option<&'static Engine> {
    inherited().filter(|engine| engine.is_of_this_process())
}

/// The pager that is in this process's memory: in a forked child at first its parent's.
pub(crate) fn inherited() -> Option<&'static Engine> {
    // SAFETY: null, or what `publish` was given: a reference that lives for ever.
    unsafe { ENGINE.load(Ordering::Acquire).as_ref() }
}

/// A thread of the runtime has found itself in a state that can't be.
pub(crate) fn panicked() -> ! {
    match engine() {
        Some(engine) => engine.fail(Failure::Panic),
        None => process::kill_self(),
    }
}

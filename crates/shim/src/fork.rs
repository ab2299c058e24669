//! What happens around a fork, on the forking thread.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use farmem_pager::StartError;
use farmem_sys::process;

use crate::{global, libc, prefetcher, program};

/// The thread that forks with the pager's part in it, by the address of its `errno`, which is the same in the child; 0 while none does. Only one announced fork runs at a time.
static ANNOUNCED: AtomicUsize = AtomicUsize::new(0);
/// Whether a process without a pager of its own is forking, perhaps a child before its own [`in_child`].
static IS_UNMANAGED: AtomicBool = AtomicBool::new(false);

pub(crate) extern "C" fn before() {
    match program::engine() {
        Some(engine) if engine.before_fork() => ANNOUNCED.store(calling_thread(), Ordering::Release),
        Some(_) => {}
        None => IS_UNMANAGED.store(true, Ordering::Release),
    }
}

pub(crate) extern "C" fn in_parent() {
    match program::engine() {
        // The thread goes on with the announced one when the handler of the signal that has made this one returns.
        Some(engine) if engine.after_fork_within() => {}
        Some(engine) if ends_announcement() => engine.after_fork_in_parent(),
        Some(_) => {}
        None => IS_UNMANAGED.store(false, Ordering::Release),
    }
}

/// Whether the calling thread's fork is, or was in the parent, the announced one.
fn ends_announcement() -> bool {
    ANNOUNCED.compare_exchange(calling_thread(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn calling_thread() -> usize {
    // SAFETY: only tells an address.
    unsafe { libc::__errno_location() }.addr()
}

pub(crate) extern "C" fn in_child() {
    // SAFETY: a forked child has one thread, this one.
    unsafe { global::settle_in_child() };
    prefetcher::forget();
    let parent = program::inherited();
    program::forget();
    let is_parents = !IS_UNMANAGED.swap(false, Ordering::AcqRel);
    let is_announced = ends_announcement();
    let Some(order) = program::order() else { return };
    let started = match parent {
        Some(parent) if is_parents && is_announced && !parent.was_fork_within() => {
            order.in_child(parent, program::publish)
        }
        // Nothing of it is far, or its parent keeps it: what it has of its parent it can't manage then.
        _ => order.in_program(program::publish),
    };
    // After any other error the child is served by its parent, as long as that lives.
    if started == Err(StartError::Orphaned) {
        process::kill_self();
    }
}

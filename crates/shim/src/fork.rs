//! What happens around a fork, on the forking thread.

use core::sync::atomic::{AtomicBool, Ordering};

use farmem_pager::StartError;
use farmem_sys::process;

use crate::{global, prefetcher, program};

/// Whether the pager took part in the fork that is under way. Only one announced fork runs at a time.
static IS_ANNOUNCED: AtomicBool = AtomicBool::new(false);

pub(crate) extern "C" fn before() {
    if let Some(engine) = program::engine()
        && engine.before_fork()
    {
        IS_ANNOUNCED.store(true, Ordering::Release);
    }
}

pub(crate) extern "C" fn in_parent() {
    if IS_ANNOUNCED.swap(false, Ordering::AcqRel)
        && let Some(engine) = program::engine()
    {
        engine.after_fork_in_parent();
    }
}

pub(crate) extern "C" fn in_child() {
    // SAFETY: a forked child has one thread, this one.
    unsafe { global::settle_in_child() };
    prefetcher::forget();
    let parent = program::engine();
    program::forget();
    let Some(order) = program::order() else { return };
    let started = match parent {
        Some(parent) if IS_ANNOUNCED.swap(false, Ordering::AcqRel) => {
            order.in_child(parent, program::publish)
        }
        // Nothing of it is far.
        _ => order.in_program(program::publish),
    };
    // After any other error the child is served by its parent, as long as that lives.
    if started == Err(StartError::Orphaned) {
        process::kill_self();
    }
}

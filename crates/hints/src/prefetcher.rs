//! A prefetcher of the program's own.

use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe};

use farmem_mailbox::Fault as RawFault;

use crate::{Error, observer, told};

/// A fault on a page that had to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The address that was touched.
    pub address: usize,
    /// The kernel's number of the thread.
    pub thread: u32,
    /// Whether it was written.
    pub is_write: bool,
}

type Follow = dyn FnMut(Fault) + Send;

thread_local! {
    /// Whether this thread is inside the function.
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// A function that is called with the faults as they come, until this is dropped.
pub struct Prefetcher {
    /// Twice boxed: one plain pointer is passed on.
    follow: *mut Box<Follow>,
}

// SAFETY: the function is Send, and is only reached by the observer's thread until this value, wherever it is
// then, takes it away.
unsafe impl Send for Prefetcher {}

impl Prefetcher {
    /// Has `follow` called with each fault as it comes, oldest first, on a thread of its own, which takes at
    /// most `share_percent` (0: 10) of a processor. It may call [`prefetch`](crate::prefetch). A panic in it
    /// ends the program.
    ///
    /// # Errors
    /// [`Error::Registered`] when there is one already; a number of `errno.h` for more than 100 percent, or
    /// when no thread can be made.
    pub fn register(follow: impl FnMut(Fault) + Send + 'static, share_percent: u32) -> Result<Self, Error> {
        let follow: Box<Box<Follow>> = Box::new(Box::new(follow));
        let follow = Box::into_raw(follow);
        // SAFETY: `call` takes such a pointer, which stays valid until `drop` has taken the function away.
        let answer = unsafe { observer::register(Some(call), follow.cast(), share_percent) };
        let registered = told(answer);
        if registered.is_err() {
            // SAFETY: it was refused, so nobody else has the pointer.
            drop(unsafe { Box::from_raw(follow) });
        }
        registered.map(|()| Self { follow })
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        // SAFETY: nothing is registered by this.
        unsafe { observer::register(None, std::ptr::null_mut(), 0) };
        // The function itself may drop this; then it is still running, and stays where it is for ever.
        if !IS_CALLING.get() {
            // SAFETY: made by `register`, and called no more.
            drop(unsafe { Box::from_raw(self.follow) });
        }
    }
}

impl std::fmt::Debug for Prefetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prefetcher")
    }
}

unsafe extern "C" fn call(faults: *const RawFault, count: usize, context: *mut c_void) {
    // SAFETY: so many faults are passed.
    let faults = unsafe { std::slice::from_raw_parts(faults, count) };
    // SAFETY: what `register` passed; only this thread uses it until it is taken away.
    let follow = unsafe { &mut *context.cast::<Box<Follow>>() };
    IS_CALLING.set(true);
    let called = panic::catch_unwind(AssertUnwindSafe(|| {
        for fault in faults {
            follow(Fault {
                address: fault.address as usize,
                thread: fault.thread,
                is_write: fault.is_write != 0,
            });
        }
    }));
    IS_CALLING.set(false);
    if called.is_err() {
        std::process::abort();
    }
}

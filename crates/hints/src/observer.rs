//! The thread that calls a prefetcher of the program's own with faults that the pager leaves in the mailbox.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::time::Duration;

use farmem_mailbox::{Fault, Mailbox, at};

use crate::home::{self, Home};
use crate::kernel;

/// Is called with some faults, how many there are, and what was registered with it.
pub(crate) type Callback = unsafe extern "C" fn(*const Fault, usize, *mut c_void);

const EAGAIN: c_int = 11;
const EBUSY: c_int = 16;
const EINVAL: c_int = 22;

/// Faults in one call at most.
const MOST: usize = 256;
/// The share of a processor that a prefetcher gets if it doesn't say.
const USUAL_PERCENT: c_uint = 10;
/// The shortest rest between two calls: faults come together meanwhile, and need not wake anybody.
const REST_NS: u64 = 100_000;
/// A sleep without faults ends so soon in any case.
const NAP_NS: u64 = 10_000_000_000;
/// How often whoever takes a prefetcher away looks whether its thread has ended.
const LOOK_NS: u64 = 100_000_000;

/// Nobody is registered.
const NOBODY: u32 = 0;
const REGISTERED: u32 = 1;
/// The thread is to end.
const ENDING: u32 = 2;

/// Registers a prefetcher, or takes it away, without a callback. Before a pager comes it is called with
/// nothing.
///
/// # Safety
/// The function must be callable from another thread until it is taken away.
pub(crate) unsafe fn register(callback: Option<Callback>, context: *mut c_void, percent: c_uint) -> c_int {
    if percent > 100 {
        return EINVAL;
    }
    let (Some(home), Some(mailbox)) = (home::home(), home::mailbox()) else { return 0 };
    let Some(callback) = callback else { return take_away(home, mailbox) };
    if home.state.compare_exchange(NOBODY, REGISTERED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return EBUSY;
    }
    home.callback.store(callback as *mut c_void, Ordering::Release);
    home.context.store(context, Ordering::Release);
    home.percent.store(if percent == 0 { USUAL_PERCENT } else { percent }, Ordering::Release);
    let builder = std::thread::Builder::new().name("farmem-observer".to_owned());
    // Signals are for the program's other threads.
    match kernel::with_signals_blocked(|| builder.spawn(move || run(home, mailbox))) {
        Ok(_) => 0,
        Err(error) => {
            home.state.store(NOBODY, Ordering::Release);
            error.raw_os_error().unwrap_or(EAGAIN)
        }
    }
}

/// Returns when the function won't be called any more; called by the function itself, at once.
fn take_away(home: &Home, mailbox: Mailbox<'_>) -> c_int {
    let _ = home.state.compare_exchange(REGISTERED, ENDING, Ordering::AcqRel, Ordering::Relaxed);
    if home.thread.load(Ordering::Acquire) == kernel::thread() {
        return 0;
    }
    while home.state.load(Ordering::Acquire) == ENDING {
        let is_asleep = mailbox.word(at::IS_ASLEEP);
        is_asleep.store(0, Ordering::SeqCst);
        kernel::wake(is_asleep);
        kernel::wait_small(&home.state, ENDING, LOOK_NS);
    }
    0
}

fn run(home: &Home, mailbox: Mailbox<'_>) {
    let number = kernel::thread();
    home.thread.store(number, Ordering::Release);
    let mut tail = mailbox.faults();
    mailbox.word(at::READER).store(u64::from(number), Ordering::Release);
    let mut faults = [Fault::default(); MOST];
    while home.state.load(Ordering::SeqCst) == REGISTERED {
        let count = mailbox.read(&mut tail, &mut faults);
        if count == 0 {
            wait_for_faults(home, mailbox, tail);
            continue;
        }
        let began_ns = kernel::thread_ns();
        // SAFETY: the program's function, as it was given to `register`; it is called before the state says
        // that nobody is registered.
        unsafe {
            let callback =
                std::mem::transmute::<*mut c_void, Callback>(home.callback.load(Ordering::Acquire));
            callback(faults.as_ptr(), count, home.context.load(Ordering::Acquire));
        }
        let used_ns = kernel::thread_ns() - began_ns;
        let percent = u64::from(home.percent.load(Ordering::Acquire).max(1));
        let rest_ns = (used_ns * (100 - percent) / percent).max(REST_NS);
        std::thread::sleep(Duration::from_nanos(rest_ns));
    }
    mailbox.word(at::READER).store(0, Ordering::Release);
    home.thread.store(0, Ordering::Release);
    home.state.store(NOBODY, Ordering::Release);
    kernel::wake_small(&home.state);
}

fn wait_for_faults(home: &Home, mailbox: Mailbox<'_>, tail: u64) {
    if mailbox.faults() != tail {
        // One is being written.
        std::thread::sleep(Duration::from_nanos(REST_NS));
        return;
    }
    let is_asleep = mailbox.word(at::IS_ASLEEP);
    is_asleep.store(1, Ordering::SeqCst);
    if mailbox.faults() == tail && home.state.load(Ordering::SeqCst) == REGISTERED {
        kernel::wait(is_asleep, 1, NAP_NS);
    }
    is_asleep.store(0, Ordering::Relaxed);
}

//! A prefetcher of the program's own: a function that is called with the faults as they come.
//!
//! It is the program's code, which faults, waits and takes locks as it likes. So it runs on an ordinary thread of the program's, never on the
//! pager's, and nobody waits for it. Between two calls the thread rests in proportion to the processor time that the call took.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use farmem_pager::ObservedFault;
use farmem_sys::thread;
use farmem_sys::wait::{self, Scope, Sleepers};

use crate::{libc, program};

/// What is called: faults, how many, and what was registered with it.
type Callback = unsafe extern "C" fn(*const ObservedFault, usize, *mut c_void);

const EBUSY: c_int = 16;
const EINVAL: c_int = 22;

/// Faults in one call at most: 4 KiB of the thread's stack.
const MOST: usize = 256;
/// The share of a processor that a prefetcher gets if it doesn't say.
const USUAL_PERCENT: c_uint = 10;
/// The shortest rest between two calls: faults come together meanwhile, and need not wake anybody.
const REST_NS: u64 = 100_000;
/// How often a thread that has nothing to do looks whether it is wanted no more.
const LOOK_NS: u64 = 100_000_000;

/// Nobody is registered.
const NOBODY: u32 = 0;
const REGISTERED: u32 = 1;
/// The thread is to end.
const ENDING: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(NOBODY);
static CALLBACK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static CONTEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static PERCENT: AtomicU32 = AtomicU32::new(USUAL_PERCENT);
/// The thread that calls it.
static THREAD: AtomicU32 = AtomicU32::new(0);

/// Registers a prefetcher, which may use `percent` of a processor (0: 10); or takes it away, without a callback.
///
/// # Safety
/// The function must be callable from another thread until it is taken away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farmem_register_prefetcher(
    callback: Option<Callback>,
    context: *mut c_void,
    percent: c_uint,
) -> c_int {
    if percent > 100 {
        return EINVAL;
    }
    if program::engine().is_none() {
        return 0;
    }
    let Some(callback) = callback else { return take_away() };
    if STATE.compare_exchange(NOBODY, REGISTERED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return EBUSY;
    }
    CALLBACK.store(callback as *mut c_void, Ordering::Release);
    CONTEXT.store(context, Ordering::Release);
    PERCENT.store(if percent == 0 { USUAL_PERCENT } else { percent }, Ordering::Release);
    let mut number = 0;
    // Signals are for the program's own threads.
    let answer = thread::with_signals_blocked(|| {
        // SAFETY: `run` takes no argument, and the number is written before the call returns.
        unsafe {
            crate::thread::pthread_create(
                (&raw mut number).cast(),
                core::ptr::null(),
                Some(run),
                core::ptr::null_mut(),
            )
        }
    });
    if answer == 0 {
        // SAFETY: the thread was just made, and nobody else knows its number.
        unsafe { libc::pthread_detach(number) };
    } else {
        STATE.store(NOBODY, Ordering::Release);
    }
    answer
}

/// Returns when the function won't be called any more; called by the function itself, at once.
fn take_away() -> c_int {
    let _ = STATE.compare_exchange(REGISTERED, ENDING, Ordering::AcqRel, Ordering::Relaxed);
    if THREAD.load(Ordering::Acquire) == thread::current() {
        return 0;
    }
    while STATE.load(Ordering::Acquire) == ENDING {
        wait::wait(&STATE, ENDING, Some(LOOK_NS), Scope::Process);
    }
    0
}

/// In a forked child: the thread is the parent's.
pub(crate) fn forget() {
    THREAD.store(0, Ordering::Release);
    STATE.store(NOBODY, Ordering::Release);
}

unsafe extern "C" fn run(_nothing: *mut c_void) -> *mut c_void {
    thread::name(c"farmem-observer");
    THREAD.store(thread::current(), Ordering::Release);
    if let Some(engine) = program::engine() {
        let mut tail = engine.observe(thread::current());
        let mut faults = [ObservedFault::default(); MOST];
        while STATE.load(Ordering::Acquire) == REGISTERED {
            let count = engine.observed(&mut tail, &mut faults);
            if count == 0 {
                engine.wait_for_faults(tail, LOOK_NS);
                continue;
            }
            let began_ns = thread::cpu_ns();
            // SAFETY: the program's function, as it was given to `farmem_register_prefetcher`; it is called before the state says that nobody
            // is registered.
            unsafe {
                let callback =
                    core::mem::transmute::<*mut c_void, Callback>(CALLBACK.load(Ordering::Acquire));
                callback(faults.as_ptr(), count, CONTEXT.load(Ordering::Acquire));
            }
            let used_ns = thread::cpu_ns() - began_ns;
            let percent = u64::from(PERCENT.load(Ordering::Acquire));
            thread::sleep((used_ns * (100 - percent) / percent).max(REST_NS));
        }
        engine.observe(0);
    }
    THREAD.store(0, Ordering::Release);
    STATE.store(NOBODY, Ordering::Release);
    wait::wake(&STATE, Sleepers::All, Scope::Process);
    core::ptr::null_mut()
}

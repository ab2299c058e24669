//! Threads of the program. The kernel writes to an ending thread's control block when nobody can wait for a page any
//! more; so the block is marked before the thread's first own instruction.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::real::{self, Routine};
use crate::{jvm, program};

/// Threads that can be about to begin at a time. More are started as they are; the pager's scanner finds their control
/// blocks soon after.
const MOST_BEGINNING: usize = 1024;

/// What a thread that is about to begin shall run.
///
/// Invariant 1: `routine` is null if and only if nobody owns the record; who changes it from null owns it, until a
/// thread that began with it, or whose start failed, changes it back.
struct Record {
    routine: AtomicPtr<c_void>,
    argument: AtomicPtr<c_void>,
}

static RECORDS: [Record; MOST_BEGINNING] = [const {
    Record { routine: AtomicPtr::new(core::ptr::null_mut()), argument: AtomicPtr::new(core::ptr::null_mut()) }
}; MOST_BEGINNING];
/// Where the next search for a free record begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Record {
    /// A record of the caller's own, if one is free. Lock-free, for use on any thread.
    fn take(routine: *mut c_void, argument: *mut c_void) -> Option<&'static Self> {
        let first = NEXT.fetch_add(1, Ordering::Relaxed);
        (0..MOST_BEGINNING).map(|step| &RECORDS[first.wrapping_add(step) % MOST_BEGINNING]).find(|record| {
            let is_mine = record
                .routine
                .compare_exchange(core::ptr::null_mut(), routine, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
            if is_mine {
                record.argument.store(argument, Ordering::Release);
            }
            is_mine
        })
    }

    /// Gives the record back. Returns what was in it.
    fn give_back(&self) -> (*mut c_void, *mut c_void) {
        let argument = self.argument.load(Ordering::Acquire);
        (self.routine.swap(core::ptr::null_mut(), Ordering::AcqRel), argument)
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    routine: Option<Routine>,
    argument: *mut c_void,
) -> c_int {
    const EAGAIN: c_int = 11;
    let Some(next) = real::PTHREAD_CREATE.get() else { return EAGAIN };
    let engine = program::engine().inspect(|engine| jvm::look(engine));
    let record = routine
        .filter(|_| engine.is_some())
        .and_then(|routine| Record::take(routine as *mut c_void, argument));
    let Some(record) = record else {
        // SAFETY: passed on as it came.
        return unsafe { next(thread, attributes, routine, argument) };
    };
    let record_address = core::ptr::from_ref(record).cast_mut().cast();
    // SAFETY: passed on with a function that calls the program's.
    let answer = unsafe { next(thread, attributes, Some(begin), record_address) };
    if answer != 0 {
        record.give_back();
    }
    answer
}

/// What a thread runs first. When the program's function begins, nothing is held here: it may end the thread, or be
/// cancelled, without returning.
unsafe extern "C" fn begin(record: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` passes a record of its own, which lives as long as the process.
    let (routine, argument) = unsafe { &*record.cast::<Record>() }.give_back();
    if let Some(engine) = program::engine() {
        engine.keep_control_block();
    }
    // SAFETY: the program's function, as it was given to `pthread_create`, which takes no null.
    unsafe { core::mem::transmute::<*mut c_void, Routine>(routine)(argument) }
}

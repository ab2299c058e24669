//! The global environment of the C library, with the runtime's variables in it while `system` or `popen` runs: they
//! hand it on and take no other.
//!
//! Several threads may be in such calls at a time. The first puts a list of the runtime's own in place of the
//! program's, the last takes it away again; those between only count. The list lies in memory of the runtime's own,
//! since a thread that reads the environment may come upon it at any time. A thread that is cancelled inside a call is
//! never counted off: then the list stays in place, which later calls can live with.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use farmem_sys::lock::Lock;
use farmem_sys::memory;

use crate::environment::{self, Needs};
use crate::libc;

type List = *mut *mut c_char;

/// Lists that one process makes at most, so that no program can use up the runtime's memory with them. Each is at
/// least twice as long as the last, unless a program exchanges its environment during a call.
const MOST_LISTS: usize = 64;

/// The runtime's list. Null until there is one.
static LIST: AtomicPtr<*mut c_char> = AtomicPtr::new(core::ptr::null_mut());
/// The program's list, from which the runtime's was made.
static BEFORE: AtomicPtr<*mut c_char> = AtomicPtr::new(core::ptr::null_mut());

static USERS: Users = Users(UnsafeCell::new(Lock::new(Global::NEW)));

/// Overwritten in a forked child, where the thread that held the lock may not exist.
struct Users(UnsafeCell<Lock<Global>>);

// SAFETY: the lock can be shared; it is overwritten only in `settle_in_child`, while there is one thread.
unsafe impl Sync for Users {}

struct Global {
    /// Calls under way.
    count: usize,
    /// Elements that the runtime's list has room for.
    elements: usize,
    text: Option<&'static mut [u8]>,
    /// The program's own `LD_PRELOAD=`, if `text` stands for it.
    replaced: Option<*const c_char>,
    lists: usize,
}

// SAFETY: the pointer is to a string of the environment, which belongs to no thread.
unsafe impl Send for Global {}

/// The global variable itself, which the program changes as it likes.
fn environ() -> &'static AtomicPtr<*mut c_char> {
    // SAFETY: aligned, and there for as long as the process lives.
    unsafe { AtomicPtr::from_ptr(&raw mut libc::environ) }
}

/// Calls `body` with the global environment replaced by one that holds the runtime's variables.
pub(crate) fn with_own<R>(body: impl FnOnce() -> R) -> R {
    if !environment::can_be_handed_on() {
        return body();
    }
    // SAFETY: see `Users`.
    let users = unsafe { &*USERS.0.get() };
    // SAFETY: the global is null or a list that ends with null.
    unsafe { users.lock().enter() };
    let result = body();
    // SAFETY: as above.
    unsafe { users.lock().leave() };
    result
}

/// In a forked child: calls of the parent's other threads are over, and their environment goes.
///
/// # Safety
/// The calling thread must be the process's only one.
pub(crate) unsafe fn settle_in_child() {
    // SAFETY: as the caller promises, nobody else has a reference.
    let users = unsafe { &mut *USERS.0.get() };
    if users.try_lock().is_some_and(|global| global.count == 0) {
        return;
    }
    let list = LIST.swap(core::ptr::null_mut(), Ordering::AcqRel);
    let before = BEFORE.load(Ordering::Acquire);
    let _ = environ().compare_exchange(list, before, Ordering::AcqRel, Ordering::Relaxed);
    *users = Lock::new(Global::NEW);
}

impl Global {
    const NEW: Self = Self { count: 0, elements: 0, text: None, replaced: None, lists: 0 };

    /// # Safety
    /// The global environment must be null or a list of strings that ends with null.
    unsafe fn enter(&mut self) {
        let is_used = self.count > 0;
        self.count += 1;
        let now = environ().load(Ordering::Acquire);
        let is_ours = core::ptr::eq(now, LIST.load(Ordering::Acquire)) && !now.is_null();
        // SAFETY: as the caller promises.
        unsafe {
            // A program that sets a variable during a call goes on with a copy of the runtime's list.
            if is_used && (is_ours || strings(now).any(environment::is_own)) {
                return;
            }
            if !self.reserve(environment::needs(now.cast_const().cast()), is_used || is_ours) {
                return;
            }
            let list = LIST.load(Ordering::Acquire);
            BEFORE.store(now, Ordering::Release);
            let elements = core::slice::from_raw_parts_mut(list.cast::<*const c_char>(), self.elements);
            self.replaced = environment::fill(
                now.cast_const().cast(),
                elements,
                self.text.as_deref_mut().unwrap_or_default(),
            );
            environ().store(list, Ordering::Release);
        }
    }

    /// # Safety
    /// As [`Global::enter`], and `enter` must have been called before.
    unsafe fn leave(&mut self) {
        self.count -= 1;
        if self.count > 0 {
            return;
        }
        let list = LIST.load(Ordering::Acquire);
        let before = BEFORE.load(Ordering::Acquire);
        let now = environ().load(Ordering::Acquire);
        // SAFETY: as the caller promises; the runtime's list ends with null, and the program's is as it was, since a
        // program that exchanges it would have exchanged the global, too.
        unsafe {
            if core::ptr::eq(now, list) && !list.is_null() {
                self.strip(list);
                bring_up_to_date(list, before);
                environ().store(before, Ordering::Release);
            } else {
                self.strip(now);
            }
        }
    }

    /// Takes the runtime's strings out of a list.
    ///
    /// # Safety
    /// `list` must be null or end with null.
    unsafe fn strip(&self, list: List) {
        let mut at = 0;
        // SAFETY: as the caller promises; `remove` moves the end down with the rest.
        unsafe {
            while !list.is_null() && !(*list.add(at)).is_null() {
                let text = (*list.add(at)).cast_const();
                match self.replaced {
                    Some(own)
                        if self.text.as_ref().is_some_and(|own| core::ptr::eq(own.as_ptr(), text.cast())) =>
                    {
                        *list.add(at) = own.cast_mut();
                        at += 1;
                    }
                    _ if environment::is_own(text) => environment::remove(list, at),
                    _ => at += 1,
                }
            }
        }
    }

    fn text_bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.len())
    }

    /// Makes sure of a list and a text that are long enough, new ones if others are in use. Says whether it could.
    fn reserve(&mut self, needs: Needs, is_used: bool) -> bool {
        let is_enough = self.elements >= needs.elements && self.text_bytes() >= needs.text_bytes;
        if is_enough && !is_used {
            return true;
        }
        if self.lists == MOST_LISTS {
            return false;
        }
        let elements = needs.elements.next_power_of_two().max(512);
        let text_bytes = needs.text_bytes.next_power_of_two().max(4096);
        let (Ok(list), Ok(text)) =
            (memory::table_mut::<usize>(elements), memory::table_mut::<u8>(text_bytes))
        else {
            return false;
        };
        LIST.store(list.as_mut_ptr().cast::<c_void>().cast(), Ordering::Release);
        self.elements = elements;
        self.text = Some(text);
        self.lists += 1;
        true
    }
}

/// # Safety
/// As [`environment::strings`].
unsafe fn strings(list: List) -> impl Iterator<Item = *const c_char> {
    // SAFETY: as the caller promises.
    unsafe { environment::strings(list.cast_const().cast()) }
}

/// Brings what the program changed in `list` during a call to its own list. It can have exchanged values and removed
/// variables there: a longer list would be another.
///
/// # Safety
/// Both must be null or lists of strings that end with null.
unsafe fn bring_up_to_date(list: List, before: List) {
    // SAFETY: as the caller promises; nothing is written behind the end of `before`.
    unsafe {
        let is_others = |&text: &*const c_char| !environment::is_of_ours(text);
        if strings(list).filter(is_others).eq(strings(before).filter(is_others)) {
            return;
        }
        let room = strings(before).count();
        let mut count = 0;
        for text in strings(list).take(room) {
            *before.add(count) = text.cast_mut();
            count += 1;
        }
        if !before.is_null() {
            *before.add(count) = core::ptr::null_mut();
        }
    }
}

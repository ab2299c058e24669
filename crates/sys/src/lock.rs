//! A lock of the runtime's own: a word and a futex, so that it works on threads without libc and can be taken
//! over by a forked child.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::sync::wait::{self, Scope, Sleepers};
use crate::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Protects `T`. Not re-entrant.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of the lock, one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to the value; lets go when dropped.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// It is shared and sent as the reference that it stands for.
    value: PhantomData<&'a mut T>,
}

impl<'a, T> Guard<'a, T> {
    fn new(lock: &'a Lock<T>) -> Self {
        Self { lock, value: PhantomData }
    }
}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// The value, unless somebody else has it at this moment.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Guard::new(self))
    }

    /// Whether nobody has the value at this moment. Whoever takes it later sees what the caller did before:
    /// for threads that must not hold it.
    pub fn is_free(&self) -> bool {
        // A change, though of nothing: what takes the lock next follows it.
        self.state.fetch_or(0, Ordering::AcqRel) == FREE
    }

    /// The value, as soon as nobody else has it.
    pub fn lock(&self) -> Guard<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
                wait::wait(&self.state, CONTENDED, None, Scope::Process);
            }
        }
        Guard::new(self)
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.state.load(Ordering::Relaxed) == FREE { "Lock(free)" } else { "Lock(held)" })
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only right to the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only right to the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.lock.state.swap(FREE, Ordering::Release) == CONTENDED {
            wait::wake(&self.lock.state, Sleepers::One, Scope::Process);
        }
    }
}

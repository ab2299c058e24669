//! A list that grows, in memory of the pager's own.
//!
//! That memory is never given back: what a list has outgrown stays, less than it has now, and one that is
//! emptied keeps its room.

use core::mem::{MaybeUninit, needs_drop, replace, size_of, swap};
use core::ops::{Deref, DerefMut};
use core::slice;

use farmem_page::PAGE_BYTES;

use crate::{Errno, memory};

/// Values in a row, the first `count` of the room that there is. The list never drops them.
pub(crate) struct List<T: 'static> {
    room: &'static mut [MaybeUninit<T>],
    count: usize,
}

impl<T> List<T> {
    pub(crate) const fn new() -> Self {
        const { assert!(!needs_drop::<T>() && size_of::<T>() <= PAGE_BYTES) };
        Self { room: &mut [], count: 0 }
    }

    /// # Errors
    /// No memory; the list is as it was.
    pub(crate) fn push(&mut self, value: T) -> Result<(), Errno> {
        if self.count == self.room.len() {
            let room = (2 * self.count).max(PAGE_BYTES / size_of::<T>());
            let before = replace(&mut self.room, memory::table_mut(room)?);
            self.room.iter_mut().zip(before).for_each(|(to, from)| swap(to, from));
        }
        self.room[self.count].write(value);
        self.count += 1;
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.count = self.count.checked_sub(1)?;
        // SAFETY: the value was written when `count` passed it, and it is behind `count` now, so that nobody
        // reads it again before another is written there.
        Some(unsafe { self.room[self.count].assume_init_read() })
    }

    /// Keeps the values for which that is true, in their order.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        let mut kept = 0;
        for at in 0..self.count {
            if is_kept(&self[at]) {
                self.room.swap(kept, at);
                kept += 1;
            }
        }
        self.count = kept;
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }
}

impl<T: Copy> List<T> {
    /// Takes on the values of another list in the place of its own.
    ///
    /// # Errors
    /// No memory; it holds only some of them then.
    pub(crate) fn copy_from(&mut self, other: &[T]) -> Result<(), Errno> {
        self.clear();
        other.iter().try_for_each(|&value| self.push(value))
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `count` values have been written, and have the layout of `T`.
        unsafe { slice::from_raw_parts(self.room.as_ptr().cast(), self.count) }
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the list is the only reference to its room.
        unsafe { slice::from_raw_parts_mut(self.room.as_mut_ptr().cast(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_beyond_any_number_and_keeps_what_is_to_be_kept() {
        let mut list = List::new();
        assert!(list.is_empty() && list.pop().is_none());
        (0..5000_u64).for_each(|value| list.push(value).unwrap());
        assert!(list.iter().copied().eq(0..5000));
        list.retain(|value| value % 2 == 1);
        assert!(list.iter().copied().eq((0..5000).filter(|value| value % 2 == 1)));
        assert_eq!((list.pop(), list.len()), (Some(4999), 2499));
        list[0] = 7;
        let mut other = List::new();
        other.push(9).unwrap();
        other.copy_from(&list).unwrap();
        assert_eq!(other[..2], [7, 3]);
        list.clear();
        assert!(list.is_empty() && other.len() == 2499);
    }
}

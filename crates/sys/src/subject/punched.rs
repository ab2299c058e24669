//! Whether a program punches a hole in an object.
//!
//! The kernel reports a discard before it does it, and doesn't say which: `MADV_REMOVE` punches a hole,
//! `MADV_DONTNEED` only takes pages out of the process's sight. The thread that asks for it waits in its call
//! until the message is read, so what it asks for is looked up before.

use core::mem::MaybeUninit;

use farmem_page::{PageRange, VirtAddr};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawDir, open, openat};

const MADVISE: u64 = linux_raw_sys::general::__NR_madvise as u64;
const REMOVE: u64 = 9;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Ranges that threads are punching holes in at a moment: as many as are told apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Punches {
    ranges: [Option<PageRange>; 8],
}

impl Punches {
    /// What the threads of a process are in, one of which has that number; of all processes when that isn't
    /// known, or that thread has ended.
    pub(crate) fn of(thread: Option<u32>) -> Self {
        let mut punches = Self::default();
        let Ok(all) = open(c"/proc", FOLDER, Mode::empty()) else { return punches };
        let mut name = [0; 24];
        let name = thread.and_then(|thread| crate::process::name_of(thread, &mut name));
        match name.and_then(|name| openat(&all, name, FOLDER, Mode::empty()).ok()) {
            Some(process) => punches.add_of(&process),
            None => each_number(&all, |name| {
                if let Ok(process) = openat(&all, name, FOLDER, Mode::empty()) {
                    punches.add_of(&process);
                }
            }),
        }
        punches
    }

    /// Those of the threads of one process, by its folder or that of one of its threads.
    fn add_of(&mut self, process: &OwnedFd) {
        let Ok(threads) = openat(process, c"task", FOLDER, Mode::empty()) else { return };
        each_number(&threads, |thread| {
            let Ok(thread) = openat(&threads, thread, FOLDER, Mode::empty()) else { return };
            let file = openat(&thread, c"syscall", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let mut text = [0; 256];
            let length = file.and_then(|file| rustix::io::read(&file, &mut text)).unwrap_or(0);
            if let Some(range) = punched_by(&text[..length])
                && let Some(place) = self.ranges.iter_mut().find(|place| place.is_none())
            {
                *place = Some(range);
            }
        });
    }

    /// What they punch of a range that is discarded.
    pub(crate) fn within(&self, range: PageRange) -> impl Iterator<Item = PageRange> + '_ {
        self.ranges.iter().flatten().map(move |punched| punched.intersect(range))
    }
}

/// Calls `visit` with the name of each entry that is a number.
fn each_number(folder: &OwnedFd, mut visit: impl FnMut(&core::ffi::CStr)) {
    let mut buffer = [const { MaybeUninit::uninit() }; 4096];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        if entry.file_name().to_bytes().first().is_some_and(u8::is_ascii_digit) {
            visit(entry.file_name());
        }
    }
}

/// The pages that a thread punches out, of which the kernel says `text`.
fn punched_by(text: &[u8]) -> Option<PageRange> {
    let mut words = core::str::from_utf8(text).ok()?.split(' ');
    if words.next()?.parse::<u64>().ok()? != MADVISE {
        return None;
    }
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (start, bytes, advice) = (next()?, next()?, next()?);
    let end = VirtAddr::new(start.saturating_add(bytes)).page_up();
    (advice == REMOVE).then(|| PageRange::new(VirtAddr::new(start).page(), end))
}

#[cfg(test)]
mod tests {
    use farmem_page::PageIndex;

    use super::*;

    #[test]
    fn who_punches_is_told_from_who_only_looks_away() {
        let punched = |text: &[u8]| punched_by(text).map(|range| (range.start, range.end));
        let range = (PageIndex::new(0x11), PageIndex::new(0x13));
        assert_eq!(punched(b"28 0x11000 0x1001 0x9 0x0 0x0 0x0 0x7ff 0x7f\n"), Some(range));
        assert_eq!(punched(b"28 0x11000 0x1000 0x4 0x0 0x0 0x0 0x7ff 0x7f\n"), None);
        assert_eq!(punched(b"11 0x11000 0x1000 0x9 0x0 0x0 0x0 0x7ff 0x7f\n"), None);
        assert_eq!(punched(b"running\n"), None);
        assert_eq!(punched(b""), None);
    }
}

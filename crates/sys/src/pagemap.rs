//! Which pages are local, asked of the kernel's page table (PAGEMAP_SCAN, Linux 6.7).

use farmem_page::{PageCount, PageIndex, PageRange, VirtAddr};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, ioctl, opcode};

use crate::subject;
use crate::subject::objects::{self, Objects};

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const SCAN: Opcode = opcode::read_write::<ScanArgument>(b'f', 16);
/// For anonymous memory: not protected.
const IS_WRITTEN: u64 = 1 << 1;
const IS_PRESENT: u64 = 1 << 3;
const IS_PFNZERO: u64 = 1 << 5;

/// Pages that one call of [`Pagemap::resident`] finds, at most, and those that one of the kernel's page
/// tables holds.
pub const SCAN_PAGES: usize = 512;
/// Runs that one call finds, at most: among [`SCAN_PAGES`] pages every second may start one.
const MAX_RUNS: usize = SCAN_PAGES / 2;

/// The runs of local pages in a range, in order.
#[derive(Debug)]
pub struct Runs {
    runs: [(u64, u64); MAX_RUNS],
    count: usize,
}

impl Runs {
    /// No runs.
    pub const fn empty() -> Self {
        Self { runs: [(0, 0); MAX_RUNS], count: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// `false` when there is no room for another one.
    pub(crate) fn push(&mut self, run: PageRange) -> bool {
        let Some(place) = self.runs.get_mut(self.count) else { return false };
        *place = (run.start.addr().get(), run.end.addr().get());
        self.count += 1;
        true
    }

    /// The runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = PageRange> + '_ {
        self.runs[..self.count]
            .iter()
            .map(|&(start, end)| PageRange::new(VirtAddr::new(start).page(), VirtAddr::new(end).page()))
    }

    /// Whether one of them has that page.
    pub fn hold(&self, page: PageIndex) -> bool {
        self.iter().any(|run| run.contains(page))
    }
}

/// A process's page table, or what there is of shared memory ([`subject::objects`]).
#[derive(Debug)]
pub struct Pagemap {
    file: OwnedFd,
    objects: Option<&'static Objects>,
}

impl Pagemap {
    /// Opens the program's page table.
    ///
    /// # Errors
    /// When /proc isn't there.
    pub fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = subject::open_memory_file(c"/proc/self/pagemap", c"pagemap", flags)?;
        Ok(Self { file, objects: objects::objects() })
    }

    /// Opens the page table of the calling process, whatever program is managed.
    ///
    /// # Errors
    /// When /proc isn't there.
    pub fn open_own() -> Result<Self, Errno> {
        let file = open(c"/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { file, objects: None })
    }

    /// Opens that of the process whose folder of the kernel's that is.
    ///
    /// # Errors
    /// When it has ended, or may not be looked at.
    pub fn of(folder: impl AsFd) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, c"pagemap", flags, Mode::empty())?;
        Ok(Self { file, objects: None })
    }

    /// Whether that page is there, and protected ([`crate::uffd::Uffd::protect`]).
    pub fn is_protected(&self, page: PageIndex) -> bool {
        const IS_PROTECTED: u64 = 1 << 57;
        let mut bytes = [0; size_of::<u64>()];
        let offset = page.get() * size_of::<u64>() as u64;
        rustix::io::pread(&self.file, &mut bytes, offset) == Ok(bytes.len())
            && u64::from_ne_bytes(bytes) & IS_PROTECTED != 0
    }

    /// The pages of `range` that have a frame of their own (not the shared page of zeros), as runs, and where
    /// the kernel stopped looking: the end of a range of at most [`SCAN_PAGES`], or where so many were found.
    ///
    /// Pages of files count as well: whether a page is one the kernel reads in what it knows of each frame,
    /// which takes three times as long as all the rest.
    ///
    /// # Errors
    /// What the kernel returns; [`Errno::NOTTY`] before 6.7.
    pub fn resident(&self, range: PageRange, runs: &mut Runs) -> Result<PageIndex, Errno> {
        if let Some(objects) = self.objects {
            return objects.present(range, runs);
        }
        self.scan(range, IS_PFNZERO | IS_PRESENT, IS_PFNZERO, runs)
    }

    /// As [`Pagemap::resident`], and those where the shared page of zeros is.
    ///
    /// # Errors
    /// As [`Pagemap::resident`].
    pub fn present(&self, range: PageRange, runs: &mut Runs) -> Result<PageIndex, Errno> {
        if let Some(objects) = self.objects {
            return objects.present(range, runs);
        }
        self.scan(range, IS_PRESENT, 0, runs)
    }

    /// The pages of `range` where the shared page of zeros is, unless they are protected
    /// ([`crate::uffd::Uffd::protect`]): the kernel gives them frames of their own when they are written, and
    /// tells nobody. As runs, and how far the kernel has looked.
    ///
    /// # Errors
    /// As [`Pagemap::resident`].
    pub fn open_zeros(&self, range: PageRange, runs: &mut Runs) -> Result<PageIndex, Errno> {
        if self.objects.is_some() {
            // Each page of shared memory has a frame of its own.
            runs.clear();
            return Ok(range.end);
        }
        self.scan(range, IS_PFNZERO | IS_WRITTEN, 0, runs)
    }

    /// The pages of `range` that have all of `categories`, those in `inverted` by not having them.
    fn scan(
        &self,
        range: PageRange,
        categories: u64,
        inverted: u64,
        runs: &mut Runs,
    ) -> Result<PageIndex, Errno> {
        let mut regions = [PageRegion::default(); MAX_RUNS];
        runs.count = 0;
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            flags: 0,
            start: range.start.addr().get(),
            end: range.end.addr().get(),
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: MAX_RUNS as u64,
            max_pages: SCAN_PAGES as u64,
            category_inverted: inverted,
            category_mask: categories,
            category_anyof_mask: 0,
            return_mask: 0,
        };
        // SAFETY: the opcode is paired with its structure; `vec` points to `vec_len` regions that outlive the
        // call.
        let count = unsafe { ioctl(self.file.as_fd(), CountUpdater(&mut argument)) }?;
        for region in regions.iter().take(count) {
            runs.runs[runs.count] = (region.start, region.end);
            runs.count += 1;
        }
        Ok(VirtAddr::new(argument.walk_end).page())
    }
}

/// Entries read at once.
const ENTRIES: usize = 64;

impl Pagemap {
    /// How many pages of `range` are protected ([`crate::uffd::Uffd::protect`]) and there for other
    /// processes, too: a write to them makes the kernel copy them. What can't be read counts as so.
    pub fn shared(&self, range: PageRange) -> PageCount {
        if self.objects.is_some() {
            return PageCount::ZERO;
        }
        const IS_EXCLUSIVE: u64 = 1 << 56;
        const IS_PROTECTED: u64 = 1 << 57;
        const IS_PRESENT: u64 = 1 << 63;
        let mut count = 0;
        let mut at = range.start;
        while at < range.end {
            let rest = PageRange::new(at, range.end).count().get().min(ENTRIES as u64);
            let mut bytes = [0; ENTRIES * size_of::<u64>()];
            let wanted = rest as usize * size_of::<u64>();
            let offset = at.get() * size_of::<u64>() as u64;
            let read = rustix::io::pread(&self.file, &mut bytes[..wanted], offset).unwrap_or(0);
            let (entries, _) = bytes[..read].as_chunks();
            let shared = entries.iter().filter(|&&entry| {
                let entry = u64::from_ne_bytes(entry);
                entry & (IS_PRESENT | IS_PROTECTED | IS_EXCLUSIVE) == IS_PRESENT | IS_PROTECTED
            });
            count += shared.count() as u64 + (rest - entries.len() as u64);
            at = at + PageCount::new(rest);
        }
        PageCount::new(count)
    }
}

/// What the page table has where pages are to come, one bit for each page of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vacancies {
    /// Nothing but a marker ([`crate::uffd::Uffd::mark`]).
    pub marked: u128,
    /// A page.
    pub present: u128,
    /// Something that isn't a page: no page may come there, for the program has said so
    /// (`MADV_GUARD_INSTALL`).
    pub barred: u128,
}

impl Vacancies {
    /// Pages of a range that is asked about, at most.
    pub const MOST: usize = u128::BITS as usize;
}

impl Pagemap {
    /// What there is in the first [`Vacancies::MOST`] pages of `range`; `None` when the kernel doesn't say.
    pub fn vacancies(&self, range: PageRange) -> Option<Vacancies> {
        if let Some(objects) = self.objects {
            return objects.vacancies(range);
        }
        const IS_MARKED: u64 = 1 << 57;
        const IS_SOMETHING: u64 = 1 << 62;
        const IS_PRESENT: u64 = 1 << 63;
        let mut bytes = [0; Vacancies::MOST * size_of::<u64>()];
        let count = (range.count().get() as usize).min(Vacancies::MOST);
        let wanted = &mut bytes[..count * size_of::<u64>()];
        let offset = range.start.get() * size_of::<u64>() as u64;
        if rustix::io::pread(&self.file, &mut *wanted, offset) != Ok(count * size_of::<u64>()) {
            return None;
        }
        let mut vacancies = Vacancies::default();
        let (entries, _) = wanted.as_chunks();
        for (at, &entry) in entries.iter().enumerate() {
            match u64::from_ne_bytes(entry) & (IS_PRESENT | IS_SOMETHING | IS_MARKED) {
                found if found == IS_SOMETHING | IS_MARKED => vacancies.marked |= 1 << at,
                IS_SOMETHING => vacancies.barred |= 1 << at,
                found if found & IS_PRESENT != 0 => vacancies.present |= 1 << at,
                _ => {}
            }
        }
        Some(vacancies)
    }
}

/// An [`Updater`] that also returns the call's result.
struct CountUpdater<'a>(&'a mut ScanArgument);

// SAFETY: PAGEMAP_SCAN reads and writes one ScanArgument and returns how many regions it wrote.
unsafe impl rustix::ioctl::Ioctl for CountUpdater<'_> {
    type Output = usize;
    const IS_MUTATING: bool = true;
    fn opcode(&self) -> Opcode {
        SCAN
    }
    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        core::ptr::from_mut(self.0).cast()
    }
    unsafe fn output_from_ptr(
        output: rustix::ioctl::IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> rustix::io::Result<usize> {
        Ok(output as usize)
    }
}

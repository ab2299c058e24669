//! The mappings of the program, asked one by one (PROCMAP_QUERY, Linux 6.11), and what that doesn't tell of
//! them.

use farmem_page::{PageRange, VirtAddr};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, major, minor};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::subject;
use crate::subject::objects::{self, Objects};

/// One mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Its pages.
    pub range: PageRange,
    /// Whether the program may write it now.
    pub writable: bool,
    /// Whether the program may run what is there.
    pub executable: bool,
    /// Private and of no file: the kind that can be managed.
    pub anonymous: bool,
    /// Shared with whoever else maps the same.
    pub shared: bool,
}

/// The program's list of mappings, or that of objects that are shared ([`subject::objects`]).
#[derive(Debug)]
pub struct Maps {
    file: OwnedFd,
    objects: Option<&'static Objects>,
}

#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

impl ProcmapQuery {
    /// Whether what was found is private and of no file.
    fn is_anonymous(&self) -> bool {
        let is_of_file = self.inode != 0 || self.dev_major != 0 || self.dev_minor != 0;
        self.vma_flags & VMA_SHARED == 0 && !is_of_file
    }
}

const QUERY: Opcode = opcode::read_write::<ProcmapQuery>(b'f', 17);
const VMA_WRITABLE: u64 = 2;
const VMA_EXECUTABLE: u64 = 4;
const VMA_SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 16;

/// The program's list of mappings with their flags.
#[derive(Debug)]
pub struct Flags {
    file: OwnedFd,
}

impl Flags {
    /// Opens the list.
    ///
    /// # Errors
    /// When /proc isn't there.
    pub fn open() -> Result<Self, Errno> {
        let file =
            subject::open_memory_file(c"/proc/self/smaps", c"smaps", OFlags::RDONLY | OFlags::CLOEXEC)?;
        Ok(Self { file })
    }

    /// Calls `visit` with each mapping that a forked child finds empty (MADV_WIPEONFORK). Costs the kernel a
    /// walk over all resident pages.
    ///
    /// # Errors
    /// What `pread` returns.
    pub fn wiped_on_fork(&self, mut visit: impl FnMut(PageRange)) -> Result<(), Errno> {
        let mut text = [0; 1024];
        let mut lines = Lines::new();
        let mut range = None;
        let mut offset = 0;
        loop {
            let length = rustix::io::pread(&self.file, &mut text, offset)?;
            if length == 0 {
                return Ok(());
            }
            offset += length as u64;
            lines.take(&text[..length], |line| {
                if let Some(header) = mapping_of(line) {
                    range = Some(header);
                } else if is_wiped_on_fork(line)
                    && let Some(range) = range
                {
                    visit(range);
                }
            });
        }
    }
}

/// Lines of a text that comes in pieces, as far as they matter: their beginnings.
struct Lines {
    line: [u8; Self::LONGEST],
    length: usize,
}

impl Lines {
    /// All flags of a mapping.
    const LONGEST: usize = 256;

    fn new() -> Self {
        Self { line: [0; Self::LONGEST], length: 0 }
    }

    fn take(&mut self, text: &[u8], mut each: impl FnMut(&[u8])) {
        for &byte in text {
            if byte == b'\n' {
                each(&self.line[..self.length]);
                self.length = 0;
            } else if let Some(place) = self.line.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
    }
}

/// The pages of a mapping, if the line is the first about one.
fn mapping_of(line: &[u8]) -> Option<PageRange> {
    let range = line.split(|&byte| byte == b' ').next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let page = |digits: &[u8]| {
        let digits = core::str::from_utf8(digits).ok()?;
        Some(VirtAddr::new(u64::from_str_radix(digits, 16).ok()?).page())
    };
    Some(PageRange::new(page(&range[..dash])?, page(&range[dash + 1..])?))
}

fn is_wiped_on_fork(line: &[u8]) -> bool {
    line.strip_prefix(b"VmFlags:")
        .is_some_and(|flags| flags.split(|&byte| byte == b' ').any(|flag| flag == b"wf"))
}

impl Maps {
    /// Opens the list.
    ///
    /// # Errors
    /// When /proc isn't there.
    pub fn open() -> Result<Self, Errno> {
        let file = subject::open_memory_file(c"/proc/self/maps", c"maps", OFlags::RDONLY | OFlags::CLOEXEC)?;
        Ok(Self { file, objects: objects::objects() })
    }

    /// The mapping that holds `from`, or the next one behind it; `None` behind the last.
    ///
    /// # Errors
    /// [`Errno::NOTTY`] on kernels before 6.11.
    pub fn next(&self, from: VirtAddr) -> Result<Option<Mapping>, Errno> {
        if let Some(objects) = self.objects {
            return Ok(objects.next(from.page()));
        }
        let mut nothing = [];
        match self.query(from, COVERING_OR_NEXT, &mut nothing) {
            Ok(query) => Ok(Some(Mapping {
                range: PageRange::new(
                    VirtAddr::new(query.vma_start).page(),
                    VirtAddr::new(query.vma_end).page(),
                ),
                writable: query.vma_flags & VMA_WRITABLE != 0,
                executable: query.vma_flags & VMA_EXECUTABLE != 0,
                anonymous: query.is_anonymous(),
                shared: query.vma_flags & VMA_SHARED != 0,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The number of the segment of System V that is mapped at `address`, if one is. The kernel keeps them on
    /// `device`, with that number.
    ///
    /// # Errors
    /// [`Errno::NOTTY`] on kernels before 6.11.
    pub fn segment(&self, address: VirtAddr, device: u64) -> Result<Option<u64>, Errno> {
        /// What all of them are called; nothing else on that device is.
        const NAME: &[u8] = b"/SYSV";
        let mut name = [0; 64];
        let query = match self.query(address, 0, &mut name) {
            Ok(query) => query,
            // Longer names are others'.
            Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let is_there = (query.dev_major, query.dev_minor) == (major(device), minor(device));
        let is_one = is_there && query.vma_name_size > 0 && name.starts_with(NAME);
        Ok(is_one.then_some(query.inode))
    }

    fn query(&self, address: VirtAddr, flags: u64, name: &mut [u8]) -> Result<ProcmapQuery, Errno> {
        query(self.file.as_fd(), address, flags, name)
    }
}

/// Whether a process has private memory of no file that it may both write and run. `maps` is its
/// `/proc/PID/maps`.
///
/// # Errors
/// [`Errno::NOTTY`] on kernels before 6.11; [`Errno::SRCH`] when the process has ended.
pub fn has_executable_data(maps: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut from = VirtAddr::new(0);
    loop {
        match query(maps, from, COVERING_OR_NEXT | VMA_WRITABLE | VMA_EXECUTABLE, &mut []) {
            Ok(found) if found.is_anonymous() => return Ok(true),
            Ok(found) => from = VirtAddr::new(found.vma_end),
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
}

fn query(
    maps: BorrowedFd<'_>,
    address: VirtAddr,
    flags: u64,
    name: &mut [u8],
) -> Result<ProcmapQuery, Errno> {
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: flags,
        query_addr: address.get(),
        vma_name_size: name.len() as u32,
        vma_name_addr: if name.is_empty() { 0 } else { name.as_mut_ptr().expose_provenance() as u64 },
        ..ProcmapQuery::default()
    };
    // SAFETY: the opcode is paired with the structure that the kernel reads and writes for it, and the name's
    // place has the room that is said.
    unsafe { ioctl(maps, Updater::<QUERY, _>::new(&mut query)) }?;
    Ok(query)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use farmem_page::PageCount;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::*;

    #[test]
    fn a_mapping_is_wiped_on_fork_from_when_that_is_asked_until_it_is_taken_back() {
        const BYTES: usize = 3 << 12;
        let is_wiped = |memory: *mut core::ffi::c_void| {
            let page = VirtAddr::new(memory.addr() as u64).page();
            let mut wiped = Vec::new();
            Flags::open().unwrap().wiped_on_fork(|range| wiped.push(range)).unwrap();
            wiped.contains(&PageRange::at(page, PageCount::new(3)))
        };
        // SAFETY: the mapping is this test's own.
        unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let memory = mmap_anonymous(core::ptr::null_mut(), BYTES, protection, MapFlags::PRIVATE).unwrap();
            assert!(!is_wiped(memory));
            madvise(memory, BYTES, Advice::LinuxWipeOnFork).unwrap();
            assert!(is_wiped(memory));
            madvise(memory, BYTES, Advice::LinuxKeepOnFork).unwrap();
            assert!(!is_wiped(memory));
            munmap(memory, BYTES).unwrap();
        }
    }

    #[test]
    fn lines_are_put_together_and_long_ones_lose_their_ends() {
        let mut lines = Lines::new();
        let mut seen = Vec::new();
        let long = [b'x'; 2 * Lines::LONGEST];
        for piece in [&b"Vm"[..], b"Flags: wf\n", &long, b"\n\nab", b"\n"] {
            lines.take(piece, |line| seen.push(line.to_vec()));
        }
        let expected = [&b"VmFlags: wf"[..], &long[..Lines::LONGEST], b"", b"ab"];
        assert_eq!(seen, expected);
    }

    #[test]
    fn only_the_first_line_about_a_mapping_names_it() {
        let range = PageRange::new(VirtAddr::new(0x1000).page(), VirtAddr::new(0x3000).page());
        assert_eq!(mapping_of(b"1000-3000 rw-p 00000000 00:00 0 "), Some(range));
        for other in
            [&b""[..], b"Anonymous:     4 kB", b"AnonHugePages: 0 kB", b"a-g rw-p", b"VmFlags: rd wf"]
        {
            assert_eq!(mapping_of(other), None);
        }
        assert!(is_wiped_on_fork(b"VmFlags: rd wr wf ") && !is_wiped_on_fork(b"VmFlags: rd wr wfx "));
    }
}

//! The mappings of the calling process, asked one by one (PROCMAP_QUERY, Linux 6.11).

use farmem_page::{PageRange, VirtAddr};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// One mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Its pages.
    pub range: PageRange,
    /// Whether the program may write it now.
    pub writable: bool,
    /// Private and of no file: the kind that can be managed.
    pub anonymous: bool,
}

/// The calling process's list of mappings.
#[derive(Debug)]
pub struct Maps {
    file: OwnedFd,
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

const QUERY: Opcode = opcode::read_write::<ProcmapQuery>(b'f', 17);
const VMA_WRITABLE: u64 = 2;
const VMA_SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 16;

impl Maps {
    /// Opens the list.
    ///
    /// # Errors
    /// When /proc isn't there.
    pub fn open() -> Result<Self, Errno> {
        let file = open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { file })
    }

    /// The mapping that holds `from`, or the next one behind it; `None` behind the last.
    ///
    /// # Errors
    /// [`Errno::NOTTY`] on kernels before 6.11.
    pub fn next(&self, from: VirtAddr) -> Result<Option<Mapping>, Errno> {
        let mut query = ProcmapQuery {
            size: size_of::<ProcmapQuery>() as u64,
            query_flags: COVERING_OR_NEXT,
            query_addr: from.get(),
            ..ProcmapQuery::default()
        };
        // SAFETY: the opcode is paired with the structure that the kernel reads and writes for it; no names asked.
        match unsafe { ioctl(self.file.as_fd(), Updater::<QUERY, _>::new(&mut query)) } {
            Ok(()) => Ok(Some(Mapping {
                range: PageRange::new(
                    VirtAddr::new(query.vma_start).page(),
                    VirtAddr::new(query.vma_end).page(),
                ),
                writable: query.vma_flags & VMA_WRITABLE != 0,
                anonymous: query.vma_flags & VMA_SHARED == 0
                    && query.inode == 0
                    && query.dev_major == 0
                    && query.dev_minor == 0,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

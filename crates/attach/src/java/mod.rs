//! How a Java VM in the program writes its references, read from outside.
//!
//! A heap of less than 32 GiB has references of four bytes, of which nobody but the VM knows the base and the
//! shift. Its library exports a table of its own fields, for debuggers: where they lie is read there, not
//! guessed. So nothing has to be loaded into the VM, and no option of its be set.
//!
//! 1. [`mappings`]: where the program has mapped a VM's library.
//! 2. [`library`]: what that exports, by its file.
//! 3. [`fields`]: which fields the table has, and what is in them, by the program's memory.
//!
//! Parts of that memory are managed: the library's variables that begin as zeros, and the object of the heap,
//! which is allocated like any other. All this is done by the pager's first thread, which must not wait for
//! the pager. So memory is read in the kernel's file `mem`, which refuses a page that is far at once, where
//! `process_vm_readv` would wait for whoever serves faults. The refused page is called for, as the program
//! could do, and read the next time.
//!
//! Whatever is read may be made up by a program that wants no good: it is bounded, and where it is wrong the
//! wrong pages come ahead.

mod fields;
mod library;
mod mappings;

use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use farmem_pager::{Engine, Hint};
use farmem_sys::subject::Attached;
use farmem_sys::{AsRawFd, OwnedFd};
use object::ReadCache;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};

use fields::{Fields, Memory, Missing};
use library::{Bounded, Exported};
use mappings::Mapped;

/// Looks for a VM: a program that has mapped none by then, eleven minutes after its pager came, is hardly
/// going to.
const LOOKS: u32 = 16;
/// Looks at a VM that isn't ready, or of which something is far: some three quarters of a minute.
const LOOKS_AT_VM: u32 = 64;
/// The first pause between two looks; each other is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause while a VM is there. It makes its heap before anything of it can be far.
const LONGEST_AT_VM: Duration = Duration::from_millis(640);
/// Until a page that was called for is there, most likely.
const PAGE_COMES: Duration = Duration::from_millis(20);

/// The search for a VM in one program.
#[derive(Debug)]
pub(crate) struct Search {
    known: Known,
    looks_left: u32,
    pause: Duration,
    next: Instant,
}

/// What is known of the VM. None of it changes while the library is mapped.
#[derive(Clone, Copy, Debug)]
enum Known {
    Nothing,
    Library(Exported),
    Fields(Fields),
}

impl Search {
    pub(crate) fn new() -> Self {
        Self { known: Known::Nothing, looks_left: LOOKS, pause: FIRST_PAUSE, next: Instant::now() }
    }

    /// Looks, if it is time: once there is a VM with a heap, the pager learns how its references are written.
    /// The program's memory must be that of its puppet.
    pub(crate) fn step(&mut self, engine: &Engine, attached: &Attached) {
        if self.looks_left == 0 || Instant::now() < self.next || !engine.follows_references() {
            return;
        }
        self.looks_left -= 1;
        let folder = &attached.memory_folder;
        if matches!(self.known, Known::Nothing)
            && let Some(exported) = find(folder)
        {
            *self = Self { known: Known::Library(exported), looks_left: LOOKS_AT_VM, ..Self::new() };
        }
        let has_vm = !matches!(self.known, Known::Nothing);
        let missing = self.read(engine, folder);
        let pause = match missing {
            Some(Missing::Page(address)) => {
                // Where the queue of hints is full, it is called for the next time.
                let _ = engine.hint(Hint::Prefetch, address as usize, 1);
                PAGE_COMES
            }
            Some(Missing::Content) => {
                let pause = self.pause;
                self.pause = pause * 2;
                if has_vm {
                    self.pause = self.pause.min(LONGEST_AT_VM);
                }
                pause
            }
            None => {
                self.looks_left = 0;
                return;
            }
        };
        self.next = Instant::now() + pause;
    }

    /// `None` when all is read.
    fn read(&mut self, engine: &Engine, folder: &OwnedFd) -> Option<Missing> {
        let memory = openat(folder, c"mem", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let Ok(memory) = memory.map(|memory| ProgramMemory(File::from(memory))) else {
            return Some(Missing::Content);
        };
        let fields = match self.known {
            Known::Nothing => return Some(Missing::Content),
            Known::Library(exported) => match Fields::read(&memory, &exported) {
                Ok(fields) => fields,
                Err(missing) => return Some(missing),
            },
            Known::Fields(fields) => fields,
        };
        self.known = Known::Fields(fields);
        match fields.heap(&memory) {
            Ok(heap) => {
                if let Some(compression) = heap.compression() {
                    engine.understand(compression);
                }
                None
            }
            Err(missing) => Some(missing),
        }
    }
}

/// The program's memory, by the kernel's file, which waits for nobody.
struct ProgramMemory(File);

impl Memory for ProgramMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Missing> {
        let mut done = 0;
        while done < into.len() {
            let at = address.wrapping_add(done as u64);
            match self.0.read_at(&mut into[done..], at) {
                Ok(count) if count > 0 => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return Err(Missing::Page(at)),
            }
        }
        Ok(())
    }
}

/// What a VM's library exports in the process of that folder, where one is mapped.
fn find(folder: &OwnedFd) -> Option<Exported> {
    let maps = openat(folder, c"maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    mappings::of_a_virtual_machine(BufReader::new(File::from(maps))).into_iter().find_map(|mapped| {
        let file = ReadCache::new(open_mapped(folder, &mapped)?);
        let left = Cell::new(library::MOST_BYTES);
        library::exported(Bounded { file: &file, left: &left }, mapped.start)
    })
}

/// Opens the file that is mapped there: by the mapping itself, which also leads to one that is deleted, but
/// may be forbidden; or by its name, in the program's namespace or, for a program in another folder as its
/// root, in the pager's.
fn open_mapped(folder: &OwnedFd, mapped: &Mapped) -> Option<File> {
    let mapping = format!("map_files/{:x}-{:x}", mapped.start, mapped.end);
    let path = OFlags::PATH | OFlags::CLOEXEC;
    if let Some(file) = openat(folder, mapping.as_str(), path, Mode::empty()).ok().and_then(open_regular) {
        return Some(file);
    }
    let name = Path::new(std::ffi::OsStr::from_bytes(&mapped.path));
    let root = openat(folder, c"root", path | OFlags::DIRECTORY, Mode::empty()).ok();
    let own_root = openat(CWD, c"/", path | OFlags::DIRECTORY, Mode::empty()).ok();
    [root, own_root].into_iter().flatten().find_map(|root| {
        // No link of the program's leads out of its root, or to what the pager has open.
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(&root, name, path, Mode::empty(), within).ok()?;
        let is_same = fstat(&file).is_ok_and(|status| status.st_ino == mapped.inode);
        is_same.then(|| open_regular(file)).flatten()
    })
}

/// To open something else could wait, or do something.
fn open_regular(path: OwnedFd) -> Option<File> {
    let status = fstat(&path).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return None;
    }
    let again = format!("/proc/self/fd/{}", path.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(again.as_str(), flags, Mode::empty()).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn own_folder() -> OwnedFd {
        open(c"/proc/self", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn a_mapped_file_is_opened_by_its_name_where_the_mapping_leads_nowhere_and_only_if_it_is_the_same() {
        let path = std::env::current_exe().unwrap();
        let inode = path.metadata().unwrap().ino();
        let mapped =
            |inode| Mapped { start: 0x1000, end: 0x2000, inode, path: path.as_os_str().as_bytes().to_vec() };

        let opened = open_mapped(&own_folder(), &mapped(inode)).unwrap();

        assert_eq!(opened.metadata().unwrap().ino(), inode);
        assert!(open_mapped(&own_folder(), &mapped(inode + 1)).is_none());
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let null = open(c"/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();

        assert!(open_regular(null).is_none());
    }

    #[test]
    fn memory_that_is_not_there_is_missing_from_where_it_begins() {
        let memory = ProgramMemory(File::open("/proc/self/mem").unwrap());
        let word = 0x0123_4567_89ab_cdef_u64;
        let mut bytes = [0; 8];

        memory.read((&raw const word).addr() as u64, &mut bytes).unwrap();

        assert_eq!(u64::from_ne_bytes(bytes), word);
        assert_eq!(memory.read(0x10, &mut bytes), Err(Missing::Page(0x10)));
        assert_eq!(memory.read(u64::MAX - 3, &mut bytes), Err(Missing::Page(u64::MAX - 3)));
    }
}

//! The pager of memory that processes of an application share: finds it, takes on all processes that map it,
//! and goes on until none does any more.
//!
//! Anonymous shared memory (`MAP_SHARED | MAP_ANONYMOUS`) is reached by its mappings alone, which only forks
//! multiply. So once each process that maps an object has a userfaultfd for it, no process can miss a page of
//! it and find zeros. Objects that have names or descriptors (`memfd`, POSIX and System V shared memory,
//! files on tmpfs) anybody may read by a call that asks nobody: those stay local.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use farmem_machine::process;
use farmem_page::{ByteCount, PageCount, PageRange};
use farmem_sys::subject::objects::{self, Objects};
use farmem_sys::subject::share_memory;
use farmem_sys::uffd::{SHARED_FEATURES, Uffd};
use farmem_sys::{AsFd, BorrowedFd, OwnedFd};
use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::children::processes;
use crate::pager::{self, engine, publish};
use crate::puppet::{self, Made};
use crate::unfinished::Stay;
use crate::{AttachError, end, told, unfinished};

/// How often it is looked which processes have ended.
const LOOK: Duration = Duration::from_millis(50);
/// When it has found no object for so long the pager ends. There will be another one if there is one.
const IDLE: Duration = Duration::from_secs(2);
/// Smaller ones stay as they are.
const LEAST: ByteCount = ByteCount::new(1 << 20);
/// How long an object that could not be taken on is left alone at first, for what forks meanwhile can't be,
/// and later; and how often it is tried.
const SHORTEST_REST: Duration = Duration::from_millis(10);
const LONGEST_REST: Duration = Duration::from_secs(1);
const MOST_ATTEMPTS: u32 = 40;

/// Which object, by its file's device and number.
type Name = (u64, u64);

/// Manages what the processes share whose numbers come on standard input, a line at a time, until there is
/// nothing left of it.
///
/// # Errors
/// No pager begins.
pub fn run(supervisor: &[u8]) -> Result<(), AttachError> {
    let start = pager::begin(supervisor, 0)?;
    let objects = objects::begin(keep).map_err(AttachError::refused("memory"))?;
    let messages = objects.messages().map_err(AttachError::refused("a descriptor"))?;
    start.for_shared(messages, publish).map_err(|_| AttachError::Pager("the supervisor refuses"))?;
    let mut shared = Shared {
        objects,
        known: HashMap::new(),
        taken: HashMap::new(),
        handles: HashMap::new(),
        refused: HashMap::new(),
    };
    // Without one there may be some later.
    let has_had_any = shared.see_through(&numbers());
    unfinished::finish();
    if has_had_any { Ok(()) } else { Err(AttachError::Busy) }
}

/// The supervisor keeps what the kernel must not forget.
fn keep(uffd: BorrowedFd<'_>) {
    if let Some(engine) = engine() {
        engine.keep_mapper(uffd);
    }
}

/// Lines of standard input, each with the numbers of processes between `=` and `.`: what is cut off, or
/// joined to what was cut off, counts as what it is.
fn numbers() -> Receiver<Vec<u32>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(std::io::stdin()).lines().map_while(Result::ok) {
            let whole = line.rsplit_once('=').and_then(|(_, rest)| rest.strip_suffix('.'));
            let Some(whole) = whole else { continue };
            let numbers = whole.split(' ').filter_map(|word| word.parse().ok()).collect();
            if sender.send(numbers).is_err() {
                break;
            }
        }
    });
    receiver
}

/// What is managed.
struct Shared {
    objects: &'static Objects,
    /// Objects that are managed.
    known: HashMap<Name, PageRange>,
    /// Processes that were taken on, by number and when they began.
    taken: HashMap<(u32, u64), u64>,
    /// Descriptors that stand for the processes that were named last.
    handles: HashMap<u32, OwnedFd>,
    /// Objects that were not: how often that was tried, and from when on it may be again.
    refused: HashMap<Name, (u32, Instant)>,
}

impl Shared {
    /// Until no object is left; whether there was one.
    fn see_through(&mut self, numbers: &Receiver<Vec<u32>>) -> bool {
        let (began, mut has_had_any) = (Instant::now(), false);
        let (mut is_told, mut stay) = (true, Stay::default());
        loop {
            let told = if is_told {
                numbers.recv_timeout(LOOK)
            } else {
                std::thread::sleep(LOOK);
                Err(RecvTimeoutError::Timeout)
            };
            match told {
                Ok(numbers) => {
                    self.hold(&numbers);
                    self.take_on(&numbers);
                }
                Err(RecvTimeoutError::Disconnected) => is_told = false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.objects.sweep();
            puppet::see_to_seized();
            let Some(engine) = engine() else { return has_had_any };
            stay.step(engine);
            if engine.has_withdrawn() {
                unfinished::end_all();
                engine.note_withdrawn();
                return true;
            }
            if self.objects.has_any() {
                has_had_any = true;
            } else if has_had_any || began.elapsed() > IDLE || !is_told {
                engine.note_end();
                return has_had_any;
            }
        }
    }

    /// Holds on to these processes, so that nobody else can be ended in their place.
    fn hold(&mut self, numbers: &[u32]) {
        let mut before = std::mem::take(&mut self.handles);
        for &number in numbers {
            let known = before.remove(&number).filter(|handle| !farmem_sys::process::has_ended(handle));
            let pid = Pid::from_raw(number as i32);
            let opened = known.or_else(|| pidfd_open(pid?, PidfdFlags::empty()).ok());
            self.handles.extend(opened.map(|handle| (number, handle)));
        }
        let said = self.handles.iter().map(|(&number, handle)| (number, handle.as_fd()));
        // Those that aren't known for want of memory would meet poisoned pages instead of being ended.
        let _ = self.objects.set_processes(said);
    }

    /// Looks for objects that these processes map and that aren't managed yet.
    fn take_on(&mut self, numbers: &[u32]) {
        let mut found: HashMap<Name, HashMap<u32, Vec<MemoryMap>>> = HashMap::new();
        for &number in numbers {
            for map in mappings(number) {
                found.entry(name_of(&map)).or_default().entry(number).or_default().push(map);
            }
        }
        self.known.retain(|_, &mut pages| self.objects.has(pages));
        for (name, mappers) in found {
            let is_refused = self
                .refused
                .get(&name)
                .is_some_and(|&(attempts, until)| attempts >= MOST_ATTEMPTS || Instant::now() < until);
            if self.known.contains_key(&name) || is_refused {
                continue;
            }
            match self.adopt(name, mappers) {
                Some(pages) => drop(self.known.insert(name, pages)),
                None => {
                    let attempts = self.refused.get(&name).map_or(0, |refused| refused.0) + 1;
                    let rest = (SHORTEST_REST * (1 << attempts.min(10))).min(LONGEST_REST);
                    self.refused.insert(name, (attempts, Instant::now() + rest));
                }
            }
        }
    }

    /// Takes on an object with all processes that map it. `None` when it stays as it is.
    fn adopt(&mut self, name: Name, mappers: HashMap<u32, Vec<MemoryMap>>) -> Option<PageRange> {
        let file = open(mappers.iter().next()?)?;
        let bytes = ByteCount::new(file.metadata().ok()?.len());
        let of = |number: u32| -> Vec<MemoryMap> {
            mappings(number).into_iter().filter(|map| name_of(map) == name).collect()
        };
        // Puppets have what their programs have.
        let is_mapper = |number| mappers.keys().any(|&mapper| share_memory(mapper, number) == Some(true));
        let is_foreign =
            |number| !mappers.contains_key(&number) && !of(number).is_empty() && !is_mapper(number);
        let has_foreign_mappers = || processes().into_iter().any(is_foreign);
        if bytes < LEAST || has_foreign_mappers() || mappers.keys().any(|&number| has_other_ways(number)) {
            return None;
        }
        let pages = self.objects.add_object(OwnedFd::from(file), bytes.pages_up())?;
        // Of processes that share their memory one speaks for all.
        let mut speakers: Vec<u32> = Vec::new();
        let is_taken = mappers.iter().all(|(&number, maps)| {
            if speakers.iter().any(|&speaker| share_memory(speaker, number) == Some(true)) {
                return true;
            }
            speakers.push(number);
            self.take_on_process(number, maps, pages).is_some()
        });
        // Forks of processes that were not taken on yet may have brought others, which the kernel has told
        // nobody of. And what has come to be in the place of a mapping since it was found is registered now.
        let has_ended = |number| process::living(number).is_none();
        let is_whole = is_taken
            && mappers.iter().all(|(&number, maps)| have_stayed(maps, &of(number)) || has_ended(number))
            && processes().into_iter().all(|number| {
                let own = of(number);
                // Between two looks it may have ended.
                own.is_empty() || are_registered(number, &own) || of(number).is_empty()
            });
        if !is_whole {
            self.objects.give_up(pages);
            return None;
        }
        self.objects.open(pages);
        Some(pages)
    }

    fn take_on_process(&mut self, number: u32, maps: &[MemoryMap], pages: PageRange) -> Option<()> {
        let began = process::identity(number)?.began;
        let process = match self.taken.get(&(number, began)) {
            Some(&process) => process,
            None => {
                let uffd = userfaultfd_of(number)?;
                keep(uffd.as_fd());
                let process = self.objects.add_process(uffd).ok()?;
                self.taken.insert((number, began), process);
                process
            }
        };
        for map in maps {
            let first = PageCount::new(map.offset / farmem_page::PAGE_BYTES as u64);
            if self.objects.add_mapping(process, told::range_of(map), pages.start + first).is_err() {
                // Perhaps it runs another program by now.
                self.taken.remove(&(number, began));
                return None;
            }
        }
        Some(())
    }
}

/// A userfaultfd of a process's memory. What has made it in the process is gone.
fn userfaultfd_of(number: u32) -> Option<Uffd> {
    if told::has_page_table_open(number as i32) {
        return None;
    }
    let Made { attached, uffd, tracee } = puppet::make(number, None).ok()?;
    if tracee.resume(0).is_ok() {
        puppet::clear(&tracee, &attached);
    }
    end::see_end(&tracee);
    uffd.handshake(SHARED_FEATURES).ok()?;
    Some(uffd)
}

/// The mappings of anonymous shared memory that a process has.
fn mappings(number: u32) -> Vec<MemoryMap> {
    told::maps(number as i32).unwrap_or_default().into_iter().filter(is_object).collect()
}

/// Whether a mapping is one of anonymous shared memory.
fn is_object(map: &MemoryMap) -> bool {
    let is_anonymous =
        matches!(&map.pathname, MMapPath::Path(path) if path.to_string_lossy() == "/dev/zero (deleted)");
    map.perms.contains(MMPermissions::SHARED) && is_anonymous
}

fn name_of(map: &MemoryMap) -> Name {
    let (major, minor) = map.dev;
    ((major as u64) << 32 | minor as u64, map.inode)
}

/// The addresses of a mapping, as the kernel names it.
fn addresses(map: &MemoryMap) -> String {
    let (start, end) = map.address;
    format!("{start:x}-{end:x}")
}

/// The object's file, by one of its mappings.
fn open((number, maps): (&u32, &Vec<MemoryMap>)) -> Option<File> {
    let map = maps.first()?;
    let path = format!("/proc/{number}/map_files/{}", addresses(map));
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    (file.metadata().ok()?.ino() == map.inode).then_some(file)
}

/// Whether all mappings that were found before are found again.
fn have_stayed(before: &[MemoryMap], now: &[MemoryMap]) -> bool {
    let which = |map: &MemoryMap| (map.address, map.offset, name_of(map));
    before.iter().all(|map| now.iter().any(|other| which(other) == which(map)))
}

/// Whether all these mappings are registered, for missing and for protected pages.
fn are_registered(number: u32, maps: &[MemoryMap]) -> bool {
    let flags = flags_of(number);
    maps.iter().all(|map| {
        flags
            .get(&addresses(map))
            .is_some_and(|flags| ["um", "uw"].iter().all(|&wanted| flags.iter().any(|flag| flag == wanted)))
    })
}

/// The kernel's flags of all mappings, by their addresses.
fn flags_of(number: u32) -> HashMap<String, Vec<String>> {
    let mut flags = HashMap::new();
    let mut range = String::new();
    for line in told::of_memory(number as i32, "smaps").unwrap_or_default().lines() {
        if let Some(words) = line.strip_prefix("VmFlags:") {
            flags.insert(range.clone(), words.split_whitespace().map(str::to_owned).collect());
        } else if let Some((first, _)) = line.split_once(' ')
            && first.contains('-')
            && first.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        {
            range = first.split('-').map(|part| part.trim_start_matches('0')).collect::<Vec<_>>().join("-");
        }
    }
    flags
}

/// Whether the kernel or a device may write to memory of that process without asking for its pages: what they
/// have got hold of before would be written for nobody. Such a process has a ring of requests to the kernel,
/// or a file open past the cache.
fn has_other_ways(number: u32) -> bool {
    const DIRECT: u32 = 0o40000;
    let is_ring = |map: &MemoryMap| {
        matches!(&map.pathname, MMapPath::Other(name) if name.contains("aio"))
            || matches!(&map.pathname, MMapPath::Path(path) if path.to_string_lossy().contains("[aio]"))
    };
    let is_locked =
        |flags: &Vec<String>| flags.iter().any(|flag| flag == "lo" || flag == "io" || flag == "ht");
    let (maps, flags) = (told::maps(number as i32).unwrap_or_default(), flags_of(number));
    let is_locked_object =
        |map: &MemoryMap| is_object(map) && flags.get(&addresses(map)).is_some_and(is_locked);
    if maps.iter().any(|map| is_ring(map) || is_locked_object(map)) {
        return true;
    }
    let descriptors = fs::read_dir(format!("/proc/{number}/fdinfo")).into_iter().flatten().flatten();
    descriptors.into_iter().any(|descriptor| {
        let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
        let flags =
            text.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        let link = fs::read_link(format!("/proc/{number}/fd/{}", descriptor.file_name().to_string_lossy()));
        let is_device = link.is_ok_and(|link| {
            let link = link.to_string_lossy().into_owned();
            ["io_uring", "/dev/vfio", "/dev/infiniband", "/dev/dri", "/dev/kvm", "/dev/vhost"]
                .iter()
                .any(|name| link.contains(name))
        });
        is_device || flags.is_some_and(|flags| flags & DIRECT != 0)
    })
}

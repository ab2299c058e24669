//! Which process a userfaultfd is of: the kernel reports a fork by a descriptor alone.
//!
//! A page that is there is protected by that descriptor for an instant, or the other way round. The process
//! in whose page table it shows, there and back, is the one.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::sync::{Mutex, PoisonError};

use farmem_machine::process::{self, PAGER_NAME, PUPPET_NAME};
use farmem_page::{PageCount, PageIndex, PageRange};
use farmem_sys::OwnedFd;
use farmem_sys::pagemap::{Pagemap, Runs, SCAN_PAGES};
use farmem_sys::subject::share_memory;
use farmem_sys::uffd::Uffd;
use procfs::process::{MMPermissions, MMapPath};

use crate::told;

/// Mappings of a process that are tried.
const MOST_MAPPINGS: usize = 64;

/// Children that are remembered to have pagers.
const MOST_PARTED: usize = 1024;

/// The number of the process whose memory that is, which `parent` may have made; `None` when it is none that
/// can be seen, or can't be told at this moment. `may_have_marker` says for which pages the process may have
/// only a marker ([`farmem_sys::uffd::Uffd::mark`]): those are left alone.
///
/// Each look costs hundreds of microseconds, and a program may have hundreds of children. Those of them that
/// have no pager come first, the oldest before the others, as pagers are made in that order.
pub(crate) fn find(parent: u32, uffd: &Uffd, may_have_marker: impl Fn(PageIndex) -> bool) -> Option<u32> {
    let parted = PARTED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let likely: Vec<u32> =
        process::children(parent).into_iter().filter(|number| !parted.contains(number)).collect();
    let others = processes().into_iter().filter(|number| !likely.contains(number));
    likely.iter().copied().chain(others).find(|&number| is_of(number, uffd, &may_have_marker))
}

/// Children of this pager's program that have pagers of their own. Some may have ended, and their numbers be
/// others' by now: those come later than they might.
static PARTED: Mutex<VecDeque<u32>> = Mutex::new(VecDeque::new());

/// That process has a pager of its own from now on.
pub(crate) fn note_parted(number: u32) {
    let mut parted = PARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if parted.len() == MOST_PARTED {
        parted.pop_front();
    }
    parted.push_back(number);
}

/// The youngest first: those with the largest numbers, except those that began again from the smallest.
pub(crate) fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut processes: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    processes.sort_unstable_by(|one, other| other.cmp(one));
    processes
}

/// Whether another process has the memory of that puppet: one that the program made to share it, and that
/// goes on. Another pager's puppet is none: each would wait for the other's end.
pub(crate) fn is_shared(puppet: u32) -> bool {
    let is_puppet = |number: u32| has_another_pager(number) && process::is_named(number, &[PUPPET_NAME]);
    sharing(puppet).any(|number| !is_puppet(number))
}

/// Whether a pager of another application has come to the program before that puppet was made. Of two that
/// come at once one goes on.
pub(crate) fn is_managed_by_another(program: u32, puppet: u32) -> bool {
    sharing(puppet).any(|number| number != program && number < puppet && has_another_pager(number))
}

/// The other processes that have the memory of that puppet.
fn sharing(puppet: u32) -> impl Iterator<Item = u32> {
    let shares = move |number: &u32| *number != puppet && share_memory(*number, puppet) == Some(true);
    processes().into_iter().filter(shares)
}

/// Whether another pager than the calling one traces that process: it is a puppet, or makes one.
fn has_another_pager(number: u32) -> bool {
    let tracer = told::status(number as i32).map_or(0, |status| status.tracerpid);
    tracer != 0 && tracer as u32 != std::process::id() && process::is_named(tracer as u32, &[PAGER_NAME])
}

fn is_of(number: u32, uffd: &Uffd, may_have_marker: &impl Fn(PageIndex) -> bool) -> bool {
    let folder = format!("/proc/{number}");
    let (Ok(folder), Some(maps)) = (File::open(&folder), told::maps(number as i32)) else { return false };
    let Ok(pagemap) = Pagemap::of(OwnedFd::from(folder)) else { return false };
    let is_anonymous = |path: &MMapPath| {
        !matches!(path, MMapPath::Path(_) | MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall)
    };
    maps.iter()
        .filter(|map| {
            map.perms.contains(MMPermissions::WRITE | MMPermissions::PRIVATE) && is_anonymous(&map.pathname)
        })
        .take(MOST_MAPPINGS)
        .find_map(|map| {
            let range = told::range_of(map);
            // Where it isn't registered, the descriptor is another process's, or the mapping isn't managed.
            if uffd.is_registered(range.start) != Some(true) {
                return None;
            }
            shows(uffd, &pagemap, range, may_have_marker)
        })
        .unwrap_or(false)
}

/// Whether a page of `range` that is there shows what is done to it; `None` when none is there. A child
/// begins with the protection of its parent, so it may be that of all pages. Protection keeps account of
/// copies, so a write that passes in that instant is a copy that nobody counts, and no more. To the kernel a
/// marker is protection, too, and ending that would take the marker away, perhaps of a process that isn't the
/// one that is looked at.
fn shows(
    uffd: &Uffd,
    pagemap: &Pagemap,
    range: PageRange,
    may_have_marker: &impl Fn(PageIndex) -> bool,
) -> Option<bool> {
    let page = first_resident(pagemap, range, may_have_marker)?;
    let one = PageRange::at(page, PageCount::new(1));
    let was_protected = pagemap.is_protected(page);
    if was_protected {
        uffd.unprotect(one).ok()?;
    } else {
        uffd.protect(one).ok()?;
    }
    let shows = pagemap.is_protected(page) != was_protected;
    let restored = if was_protected { uffd.protect(one) } else { uffd.unprotect(one) };
    // Once it may have been somebody else: a write of that process that was let pass just then.
    let shows_again = restored.is_ok() && pagemap.is_protected(page) == was_protected;
    Some(shows && shows_again)
}

fn first_resident(
    pagemap: &Pagemap,
    range: PageRange,
    is_excepted: impl Fn(PageIndex) -> bool,
) -> Option<PageIndex> {
    let mut runs = Runs::empty();
    let mut start = range.start;
    while start < range.end {
        let window = PageRange::at(start, PageCount::new(SCAN_PAGES as u64)).intersect(range);
        start = pagemap.resident(window, &mut runs).ok()?.max(window.start.offset(1)?);
        if let Some(page) = runs.iter().flat_map(|run| run.iter()).find(|&page| !is_excepted(page)) {
            return Some(page);
        }
    }
    None
}

//! The program's pages: what the kernel offers for changing them, what is known of each, and who may change
//! one when.

use core::sync::atomic::AtomicU64;

use farmem_page::{PageBytes, PageIndex};
use farmem_sys::maps::{Flags, Maps};
use farmem_sys::pagemap::{Pagemap, Runs};
use farmem_sys::process::{Statm, Threads};
use farmem_sys::uffd::Uffd;
use farmem_sys::{Errno, memory, sparse};

use crate::address_space::regions::Regions;
use crate::address_space::scan::windows;
use crate::address_space::table::PageTable;
use crate::address_space::zeros::OpenZeros;
use crate::engine::BATCH_PAGES;
use crate::gate::Gate;

/// The kernel's files about the program, opened before the program can forbid it.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) maps: Maps,
    pub(crate) flags: Flags,
    pub(crate) pagemap: Pagemap,
    /// Of the process that the pager is in.
    pub(crate) own_pagemap: Pagemap,
    pub(crate) statm: Statm,
    pub(crate) threads: Threads,
}

/// The pages of a process.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) uffd: Uffd,
    /// A word for each page.
    pub(crate) table: PageTable,
    /// What of the address space is managed.
    pub(crate) regions: Regions,
    pub(crate) gate: Gate,
    pub(crate) files: &'static Files,
    /// What pages of zeros hold.
    pub(crate) zeros: &'static [PageBytes],
    pub(crate) open_zeros: OpenZeros,
    /// Pages that the table's words fill, and those of served children's, when the kernel was last asked.
    pub(crate) table_pages: AtomicU64,
}

impl Pages {
    /// # Errors
    /// No memory, or the kernel tells nothing of the process.
    pub(crate) fn new(uffd: Uffd, table: PageTable, regions: Regions) -> Result<Self, Errno> {
        let files = memory::leak(Files {
            maps: Maps::open()?,
            flags: Flags::open()?,
            pagemap: Pagemap::open()?,
            own_pagemap: Pagemap::open_own()?,
            statm: Statm::open()?,
            threads: Threads::open()?,
        })?;
        Ok(Self {
            uffd,
            table,
            regions,
            gate: Gate::new(),
            files,
            zeros: memory::table(BATCH_PAGES)?,
            open_zeros: OpenZeros::default(),
            table_pages: AtomicU64::new(0),
        })
    }
}

/// Brings the words of a child that was served from elsewhere up to date with its page table; how many pages
/// are far.
pub(crate) fn settle(table: &PageTable, regions: &Regions) -> Result<u64, Errno> {
    let pagemap = Pagemap::open()?;
    let mut runs = Runs::empty();
    let mut far = 0;
    for window in regions.iter().flat_map(windows) {
        pagemap.present(window, &mut runs)?;
        far += table.settle_in(window, |page| runs.hold(page));
    }
    Ok(far)
}

/// What of the program's memory is registered with its userfaultfd.
pub(crate) fn registered(uffd: &Uffd) -> Result<Regions, Errno> {
    let regions = Regions::new()?;
    let maps = Maps::open()?;
    let mut from = PageIndex::new(0);
    while let Some(mapping) = maps.next(from.addr())? {
        from = mapping.range.end;
        // What can't be asked because an event waits is the scanner's to find.
        if mapping.anonymous && from <= sparse::END && uffd.is_registered(mapping.range.start) == Some(true) {
            regions.insert(mapping.range);
        }
    }
    Ok(regions)
}

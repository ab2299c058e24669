//! Single calls, one after the other.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use farmem_page::{PAGE_BYTES, PageCount, PageRange, VirtAddr};
use farmem_sys::pagemap::Pagemap;
use farmem_sys::uffd::{Uffd, Waiters};
use memmap2::{Advice, MmapMut};

/// A system call that does next to nothing.
pub(super) fn system_call(count: usize) -> anyhow::Result<f64> {
    let began = Instant::now();
    for _ in 0..count {
        black_box(rustix::process::getppid());
    }
    Ok(each(began, count))
}

/// New private memory, touched page by page.
pub(super) fn first_touch(count: usize) -> anyhow::Result<f64> {
    let mut memory = new_memory(count)?;
    let began = Instant::now();
    touch(&mut memory);
    Ok(each(began, count))
}

/// Pages put into registered memory that nobody waits for, so many with each call.
pub(super) fn copy(count: usize, neighbours: usize) -> anyhow::Result<f64> {
    let memory = new_memory(count)?;
    let (uffd, range) = registered(&memory)?;
    let content = vec![1; neighbours * PAGE_BYTES];
    let began = Instant::now();
    for page in range.iter().step_by(neighbours) {
        let progress = uffd.copy_in(page, &content, Waiters::Keep);
        ensure!(progress.stopped.is_none(), "the kernel did not copy: {:?}", progress.stopped);
    }
    Ok(each(began, count))
}

/// Pages taken out of memory and put elsewhere, so many with each call.
pub(super) fn move_out(count: usize, neighbours: usize) -> anyhow::Result<f64> {
    let mut from = new_memory(count)?;
    touch(&mut from);
    let to = new_memory(count)?;
    let (uffd, target) = registered(&to)?;
    let source = range_of(&from);
    let pagemap = Pagemap::open().map_err(|errno| anyhow!("no page map: {errno}"))?;
    let run = PageCount::new(neighbours as u64);
    let began = Instant::now();
    for (from, to) in source.iter().zip(target.iter()).step_by(neighbours) {
        let progress = uffd.move_pages(PageRange::at(from, run), to, &pagemap);
        ensure!(progress.stopped.is_none(), "the kernel did not move: {:?}", progress.stopped);
    }
    Ok(each(began, count))
}

/// Private memory that is not there yet, in small pages.
pub(super) fn new_memory(pages: usize) -> anyhow::Result<MmapMut> {
    let memory = MmapMut::map_anon(pages * PAGE_BYTES).context("no memory")?;
    // Where the kernel has no huge pages there is nothing to refuse.
    let _ = memory.advise(Advice::NoHugePage);
    Ok(memory)
}

/// A userfaultfd that this memory is registered with.
pub(super) fn registered(memory: &MmapMut) -> anyhow::Result<(Uffd, PageRange)> {
    let why = |error| anyhow!("no userfaultfd for this user: {error:?}");
    let uffd = Uffd::create(None).map_err(why)?;
    // No events: the memory goes while nobody reads them.
    uffd.handshake(0).map_err(why)?;
    let range = range_of(memory);
    uffd.register(range).map_err(why)?;
    Ok((uffd, range))
}

fn range_of(memory: &MmapMut) -> PageRange {
    let start = VirtAddr::new(memory.as_ptr() as u64).page();
    PageRange::at(start, PageCount::new((memory.len() / PAGE_BYTES) as u64))
}

fn touch(memory: &mut MmapMut) {
    for page in memory.chunks_exact_mut(PAGE_BYTES) {
        page[0] = 1;
        black_box(page);
    }
}

pub(super) fn each(began: Instant, count: usize) -> f64 {
    began.elapsed().as_secs_f64() * 1e6 / count as f64
}

//! A process as the kernel describes it.

use std::collections::HashMap;
use std::fs;

use farmem_machine::process;
use farmem_page::PageCount;

use crate::processes::lineage::Layout;
use crate::processes::newcomers::{anonymous_in, others_in};

/// A process as the kernel describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) number: u32,
    pub(super) resident: PageCount,
    /// Pages besides: of files, or of memory that it may share.
    pub(super) others: PageCount,
}

/// Whether memory of it is registered with somebody's userfaultfd.
pub(super) fn is_registered(number: u32) -> bool {
    process::text(format!("/proc/{number}/smaps"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("VmFlags:"))
        .any(|flags| flags.split(' ').any(|flag| flag == "um"))
}

/// What processes have for certain: those that one has forked have the same layout, and may share all that
/// they have, so that the largest of them counts.
pub(super) fn distinct(found: &[Found], layout: impl Fn(u32) -> Option<Layout>) -> PageCount {
    if let [process] = found {
        return process.resident;
    }
    let mut largest: HashMap<Option<Layout>, PageCount> = HashMap::new();
    for process in found {
        let entry = largest.entry(layout(process.number)).or_default();
        *entry = process.resident.max(*entry);
    }
    PageCount::new(largest.values().map(|pages| pages.get()).sum())
}

/// Resident pages that belong to no file, and the others. Of a process whose first thread has ended the
/// others tell.
pub(super) fn resident(number: u32) -> Option<(PageCount, PageCount)> {
    let own = resident_by(&format!("/proc/{number}/statm"))?;
    if own.0 > PageCount::ZERO {
        return Some(own);
    }
    let threads = fs::read_dir(format!("/proc/{number}/task")).ok()?;
    threads.flatten().filter_map(|thread| resident_by(&thread.path().join("statm").to_string_lossy())).max()
}

fn resident_by(file: &str) -> Option<(PageCount, PageCount)> {
    let text = process::short(file)?;
    Some((anonymous_in(&text)?, others_in(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forked_processes_may_share_counts_once() {
        let found =
            |number, pages| Found { number, resident: PageCount::new(pages), others: PageCount::ZERO };
        let layout = |number: u32| Some([number as u64 / 10, 0, 0]);
        assert_eq!(distinct(&[], layout), PageCount::ZERO);
        assert_eq!(distinct(&[found(10, 7)], layout), PageCount::new(7));
        let family = [found(10, 7), found(11, 9), found(20, 5)];
        assert_eq!(distinct(&family, layout), PageCount::new(14));
        assert_eq!(distinct(&family, |_| None), PageCount::new(9));
    }
}

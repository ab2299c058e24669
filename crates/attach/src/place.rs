//! Where in a program's address space the puppet's memory lies: as far from all that the program has as can
//! be.
//!
//! The kernel gives new mappings the first room that it finds, next to what is there or between. A program
//! takes such room for its own: it may map memory where it has unmapped some, without asking, or grow a
//! mapping in place. In the middle of the largest gap it has never been.

use std::io::{BufRead, BufReader};

use farmem_page::PAGE_BYTES;

use crate::AttachError;

/// Addresses end here, also with five levels of page tables where a program doesn't ask for more.
const USER_END: u64 = 1 << 47;
/// The kernel gives no memory below.
const USER_START: u64 = 1 << 16;

/// The start of `bytes` in the middle of the largest gap between a process's mappings, page-aligned. `None`
/// when none is wide enough.
///
/// # Errors
/// The mappings can't be read.
pub(crate) fn find(process: u32, bytes: u64) -> Result<Option<u64>, AttachError> {
    let maps = BufReader::new(std::fs::File::open(format!("/proc/{process}/maps"))?);
    let mut mappings = Vec::new();
    for line in maps.split(b'\n') {
        // A mapped file's path may be of any bytes.
        mappings.extend(addresses(&line?));
    }
    Ok(middle_of_largest_gap(mappings.into_iter(), bytes))
}

/// The addresses at the beginning of a line.
fn addresses(line: &[u8]) -> Option<(u64, u64)> {
    let range = std::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// The same of mappings in ascending order.
fn middle_of_largest_gap(mappings: impl Iterator<Item = (u64, u64)>, bytes: u64) -> Option<u64> {
    let mut largest = (0, 0);
    let mut free_from = USER_START;
    for (start, end) in mappings.chain([(USER_END, USER_END)]) {
        let gap = start.min(USER_END).saturating_sub(free_from);
        largest = largest.max((gap, free_from));
        free_from = free_from.max(end);
    }
    let (gap, from) = largest;
    let middle = from + gap.checked_sub(bytes)? / 2;
    Some(middle / PAGE_BYTES as u64 * PAGE_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_middle_of_the_largest_gap_is_taken() {
        let mappings = [
            (0x40_0000, 0x50_0000),
            (0x5500_0000_0000, 0x5500_0010_0000),
            (0x7fff_0000_0000, 0x7fff_0001_0000),
        ];
        let start = middle_of_largest_gap(mappings.into_iter(), 4 * MIB);
        assert_eq!(start, Some((0x50_0000 + 0x5500_0000_0000 - 4 * MIB) / 2));
    }

    #[test]
    fn above_all_mappings_and_below_them_is_room_too() {
        let high = [(USER_END / 8, USER_END / 4)].into_iter();
        assert_eq!(middle_of_largest_gap(high, 0), Some(USER_END / 8 * 5));
        let low = [(USER_END / 2, USER_END)].into_iter();
        assert_eq!(middle_of_largest_gap(low, 0), Some((USER_START + USER_END / 2) / 2));
        assert!(middle_of_largest_gap([].into_iter(), MIB).is_some());
    }

    #[test]
    fn without_room_there_is_no_place() {
        assert_eq!(middle_of_largest_gap([(0, USER_END - MIB)].into_iter(), 2 * MIB), None);
        assert_eq!(middle_of_largest_gap([(0, USER_END)].into_iter(), MIB), None);
    }

    #[test]
    fn what_lies_above_the_end_counts_for_nothing() {
        let vsyscall = [(0, USER_END), (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000)].into_iter();
        assert_eq!(middle_of_largest_gap(vsyscall, MIB), None);
    }

    #[test]
    fn a_line_begins_with_addresses() {
        assert_eq!(addresses(b"7f00-8f00 rw-p 00000000 00:00 0 \xff\xfe"), Some((0x7f00, 0x8f00)));
        assert_eq!(addresses(b""), None);
    }

    #[test]
    fn a_place_of_this_process_is_free() {
        let place = find(std::process::id(), MIB).unwrap().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(
            maps.lines()
                .filter_map(|line| addresses(line.as_bytes()))
                .all(|(start, end)| { end <= place || place + MIB <= start })
        );
    }
}

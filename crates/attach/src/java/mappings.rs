//! Where a program has mapped a VM's library, by the kernel's list of its mappings.

use std::io::BufRead;

/// Libraries of one program's that are looked at: it may have mapped another file of that name.
const MOST_LIBRARIES: usize = 4;
/// Lines that are read at most: as many mappings as the kernel allows, and more.
const MOST_LINES: usize = 1 << 17;

/// The beginning of a file, mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mapped {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) inode: u64,
    pub(super) path: Vec<u8>,
}

/// The mappings of the beginning of such a library.
pub(super) fn of_a_virtual_machine(maps: impl BufRead) -> Vec<Mapped> {
    let lines = maps.split(b'\n').take(MOST_LINES).map_while(Result::ok);
    lines.filter_map(|line| of_line(&line)).take(MOST_LIBRARIES).collect()
}

/// A line is `start-end rights offset device inode path`, with blanks before the path.
fn of_line(line: &[u8]) -> Option<Mapped> {
    const LIBRARY: &[u8] = b"/libjvm.so";
    let line = line.strip_suffix(b" (deleted)").unwrap_or(line);
    if !line.ends_with(LIBRARY) {
        return None;
    }
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let mut number = |skipped: usize, radix| {
        let word = words.nth(skipped)?;
        Some((word, core::str::from_utf8(word).ok().and_then(|word| u64::from_str_radix(word, radix).ok())))
    };
    let (range, _) = number(0, 16)?;
    let (_, offset) = number(1, 16)?;
    let (_, inode) = number(1, 10)?;
    let mut ends = core::str::from_utf8(range).ok()?.splitn(2, '-').map(|end| u64::from_str_radix(end, 16));
    let (start, end) = (ends.next()?.ok()?, ends.next()?.ok()?);
    let path = words.next()?.trim_ascii_start();
    (offset == Some(0) && path.starts_with(b"/")).then(|| Mapped {
        start,
        end,
        inode: inode.unwrap_or(0),
        path: path.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginnings_of_libraries_of_that_name_are_found_deleted_ones_and_odd_names_too() {
        let maps = b"55d0-55d1 r--p 00000000 fe:00 7                          /usr/bin/java\n\
            7f00-7f10 r--p 00000000 fe:00 4321                       /opt/a b\xff/libjvm.so\n\
            7f10-7f20 r-xp 00010000 fe:00 4321                       /opt/a b\xff/libjvm.so\n\
            8000-8001 r--p 00000000 00:2a 5                          /gone/libjvm.so (deleted)\n\
            9000-9001 r--p 00000000 00:2a 6                          /opt/notlibjvm.so\n\
            a000-a001 rw-p 00000000 00:00 0 \n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";

        let found = of_a_virtual_machine(&maps[..]);

        let first =
            Mapped { start: 0x7f00, end: 0x7f10, inode: 4321, path: b"/opt/a b\xff/libjvm.so".to_vec() };
        let second = Mapped { start: 0x8000, end: 0x8001, inode: 5, path: b"/gone/libjvm.so".to_vec() };
        assert_eq!(found, [first, second]);
    }

    #[test]
    fn lines_that_are_not_such_are_passed_over() {
        for line in [&b""[..], b"/libjvm.so", b"x-y r--p 0 0 0 /libjvm.so", b"1000 r 0 0 0 /libjvm.so"] {
            assert_eq!(of_line(line), None);
        }
    }

    #[test]
    fn a_program_with_many_such_files_has_some_of_them_looked_at() {
        let maps = b"7f00-7f10 r--p 00000000 fe:00 4321 /libjvm.so\n".repeat(100);

        assert_eq!(of_a_virtual_machine(&maps[..]).len(), MOST_LIBRARIES);
    }
}

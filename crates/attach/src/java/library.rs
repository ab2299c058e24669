//! What a VM's library exports: where its table of fields is, and how that is laid out.

use std::cell::Cell;
use std::ops::Range;

use farmem_page::PAGE_BYTES;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::read::{ReadRef, SectionIndex, StringTable};
use object::{Endianness, elf};

/// What is read of a file, all together: of the library of JDK 25 it is 24 KiB.
pub(super) const MOST_BYTES: u64 = 16 << 20;

/// A file of which no more than so many bytes are read.
#[derive(Debug)]
pub(super) struct Bounded<'a, R> {
    pub(super) file: R,
    pub(super) left: &'a Cell<u64>,
}

impl<R: Copy> Clone for Bounded<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Copy> Copy for Bounded<'_, R> {}

impl<R> Bounded<'_, R> {
    fn take(&self, bytes: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'d, R: ReadRef<'d>> ReadRef<'d> for Bounded<'_, R> {
    fn len(self) -> Result<u64, ()> {
        self.file.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        self.take(size)?;
        self.file.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        let text = self.file.read_bytes_at_until(range, delimiter)?;
        self.take(text.len() as u64)?;
        Ok(text)
    }
}

/// Where in the program's memory the VM says how its table of fields is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Exported {
    /// Of a pointer to the first entry.
    pub(super) first: u64,
    /// Of words that say where in an entry its parts are, in bytes, and how far apart the entries are.
    pub(super) type_name: u64,
    pub(super) field_name: u64,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) stride: u64,
}

/// What the library in `file` exports, whose beginning is mapped at `start`. `None` where it isn't a VM's, or
/// not of the processor's kind.
pub(super) fn exported<'d>(file: impl ReadRef<'d>, start: u64) -> Option<Exported> {
    type Header = elf::FileHeader64<Endianness>;
    let header = Header::parse(file).ok()?;
    let endian = header.endian().ok().filter(|&endian| endian == Endianness::default())?;
    let page = |address: u64| address - address % PAGE_BYTES as u64;
    let segments = header.program_headers(endian, file).ok()?;
    let first = segments.iter().find(|segment| {
        segment.p_type(endian) == elf::PT_LOAD
            && page(segment.p_offset(endian)) == 0
            && segment.p_filesz(endian) > 0
    })?;
    let bias = start.wrapping_sub(page(first.p_vaddr(endian)));
    let sections = header.sections(endian, file).ok()?;
    let (_, section) =
        sections.enumerate().find(|(_, section)| section.sh_type(endian) == elf::SHT_DYNSYM)?;
    let symbols: &[elf::Sym64<Endianness>] = section.data_as_array(endian, file).ok()?;
    let names = sections.section(SectionIndex(section.sh_link(endian) as usize)).ok()?;
    let names = names.data(endian, file).ok()?;
    let names = StringTable::new(names, 0, names.len() as u64);
    let find = |name: &str| {
        let is_so = |symbol: &&elf::Sym64<Endianness>| {
            symbol.name(endian, names).is_ok_and(|found| found == name.as_bytes())
        };
        let symbol = symbols.iter().filter(|symbol| !symbol.is_undefined(endian)).find(is_so)?;
        Some(bias.wrapping_add(symbol.st_value(endian)))
    };
    Some(Exported {
        first: find("gHotSpotVMStructs")?,
        type_name: find("gHotSpotVMStructEntryTypeNameOffset")?,
        field_name: find("gHotSpotVMStructEntryFieldNameOffset")?,
        offset: find("gHotSpotVMStructEntryOffsetOffset")?,
        address: find("gHotSpotVMStructEntryAddressOffset")?,
        stride: find("gHotSpotVMStructEntryArrayStride")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = [
        "gHotSpotVMStructs",
        "gHotSpotVMStructEntryTypeNameOffset",
        "gHotSpotVMStructEntryFieldNameOffset",
        "gHotSpotVMStructEntryOffsetOffset",
        "gHotSpotVMStructEntryAddressOffset",
        "gHotSpotVMStructEntryArrayStride",
    ];
    const HEADER: usize = 64;
    const SEGMENTS: usize = HEADER;
    const SECTIONS: usize = SEGMENTS + 2 * 56;
    const SYMBOLS: usize = SECTIONS + 3 * 64;

    /// A library with two segments, linked to `base`, that exports `names` from `base + 0x5000` on, eight
    /// bytes each; aligned as what is read of a file is.
    fn library(names: &[&str], base: u64) -> Vec<u64> {
        let mut bytes = Vec::new();
        let strings_at = SYMBOLS + 24 * (1 + names.len());
        let mut strings = vec![0];
        let mut symbols = vec![0; 24];
        for (nth, name) in names.iter().enumerate() {
            symbols.extend((strings.len() as u32).to_ne_bytes());
            symbols.extend([0x11, 0, 7, 0]);
            symbols.extend((base + 0x5000 + 8 * nth as u64).to_ne_bytes());
            symbols.extend(8_u64.to_ne_bytes());
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        bytes.extend(*b"\x7fELF\x02");
        bytes.push(if cfg!(target_endian = "little") { 1 } else { 2 });
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for half in [3_u16, 62] {
            bytes.extend(half.to_ne_bytes());
        }
        bytes.extend(1_u32.to_ne_bytes());
        for word in [0, SEGMENTS as u64, SECTIONS as u64] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(0_u32.to_ne_bytes());
        for half in [HEADER as u16, 56, 2, 64, 3, 2] {
            bytes.extend(half.to_ne_bytes());
        }
        for (offset, address) in [(0, base), (0x4f00, base + 0x4f00)] {
            bytes.extend(elf::PT_LOAD.to_ne_bytes());
            bytes.extend(4_u32.to_ne_bytes());
            for word in [offset, address, address, 0x1000, 0x1000, 0x1000_u64] {
                bytes.extend(word.to_ne_bytes());
            }
        }
        let mut section = |kind: u32, at: usize, length: usize, link: u32, entry: u64| {
            bytes.extend(0_u32.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            for word in [0, 0, at as u64, length as u64] {
                bytes.extend(word.to_ne_bytes());
            }
            bytes.extend(link.to_ne_bytes());
            bytes.extend(1_u32.to_ne_bytes());
            for word in [8, entry] {
                bytes.extend(word.to_ne_bytes());
            }
        };
        section(0, 0, 0, 0, 0);
        section(elf::SHT_DYNSYM, SYMBOLS, symbols.len(), 2, 24);
        section(elf::SHT_STRTAB, strings_at, strings.len(), 0, 0);
        bytes.extend(symbols);
        bytes.extend(strings);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word)).collect()
    }

    fn found_in(words: &[u64], start: u64) -> Option<Exported> {
        exported(object::pod::bytes_of_slice(words), start)
    }

    #[test]
    fn names_are_found_where_the_library_was_loaded() {
        for base in [0, 0x10_0000] {
            let found = found_in(&library(&NAMES, base), 0x7f00_0000_0000).unwrap();

            let at = |nth: u64| 0x7f00_0000_5000 + 8 * nth;
            let expected = Exported {
                first: at(0),
                type_name: at(1),
                field_name: at(2),
                offset: at(3),
                address: at(4),
                stride: at(5),
            };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_library_without_one_of_the_names_is_no_virtual_machine() {
        for missing in 0..NAMES.len() {
            let mut names = NAMES.to_vec();
            names.remove(missing);

            assert_eq!(found_in(&library(&names, 0), 0x1000), None);
        }
    }

    #[test]
    fn whatever_is_changed_or_cut_off_of_a_library_nothing_worse_comes_of_it_than_wrong_addresses() {
        let words = library(&NAMES, 0);
        for length in 0..words.len() {
            let _ = found_in(&words[..length], 0x1000);
        }
        for at in 0..words.len() {
            for word in [0, 1, 0xff, 1 << 31, 1 << 32, 1 << 63, u64::MAX] {
                let mut changed = words.clone();
                changed[at] = word;
                let _ = found_in(&changed, u64::MAX);
            }
        }
    }

    #[test]
    fn of_a_library_only_so_much_is_read() {
        let words = library(&NAMES, 0);
        let file = object::pod::bytes_of_slice(&words);
        let found_in = |bytes: u64| {
            let left = Cell::new(bytes);
            exported(Bounded { file, left: &left }, 0x1000)
        };

        assert!(found_in(file.len() as u64).is_some());
        assert_eq!(found_in(file.len() as u64 / 2), None);
    }
}

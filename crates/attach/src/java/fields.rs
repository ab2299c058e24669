//! A VM's table of fields, and what is in those that say how references are written.

use std::collections::HashMap;

use farmem_page::PAGE_BYTES;
use farmem_pager::Compression;

use super::library::Exported;

/// Why something can't be read now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missing {
    /// What is at that address isn't there: it is far, or nothing is mapped.
    Page(u64),
    /// What was read isn't what a VM that has begun has there.
    Content,
}

/// A program's memory.
pub(super) trait Memory {
    /// # Errors
    /// [`Missing::Page`] with the first address that can't be read.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Missing>;

    fn word(&self, address: u64) -> Result<u64, Missing> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// More entries than any VM has, and a stride longer than any: the table of a VM that is none may have no
/// end.
const MOST_ENTRIES: u64 = 1 << 14;
const LONGEST_STRIDE: u64 = 1 << 8;
/// What is read of the table and its names, at most: JDK 25's need a tenth.
const MOST_PAGES: usize = 1 << 11;
/// A name longer than those that are looked for is another one.
const LONGEST_NAME: usize = 32;

/// Memory that is read once, page by page: a table doesn't change, and has thousands of names that are near
/// each other.
struct Pages<'m, M> {
    memory: &'m M,
    pages: HashMap<u64, Box<[u8; PAGE_BYTES]>>,
}

impl<M: Memory> Pages<'_, M> {
    /// The bytes from `address` on, up to the end of its page.
    fn from(&mut self, address: u64) -> Result<&[u8], Missing> {
        let within = address % PAGE_BYTES as u64;
        let start = address - within;
        if !self.pages.contains_key(&start) {
            if self.pages.len() >= MOST_PAGES {
                return Err(Missing::Content);
            }
            let mut page = Box::new([0; PAGE_BYTES]);
            self.memory.read(start, &mut page[..])?;
            self.pages.insert(start, page);
        }
        Ok(&self.pages[&start][within as usize..])
    }

    fn word(&mut self, address: u64) -> Result<u64, Missing> {
        let mut bytes = [0; 8];
        let mut done = 0;
        while done < bytes.len() {
            let there = self.from(address.checked_add(done as u64).ok_or(Missing::Content)?)?;
            let count = there.len().min(bytes.len() - done);
            bytes[done..][..count].copy_from_slice(&there[..count]);
            done += count;
        }
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The string at that address, or as much of it as no name that is looked for is long.
    fn name<'b>(&mut self, address: u64, into: &'b mut [u8; LONGEST_NAME]) -> Result<&'b [u8], Missing> {
        let mut done = 0;
        while done < into.len() {
            let there = self.from(address.checked_add(done as u64).ok_or(Missing::Content)?)?;
            let there = &there[..there.len().min(into.len() - done)];
            let count = there.iter().position(|&byte| byte == 0).unwrap_or(there.len());
            into[done..][..count].copy_from_slice(&there[..count]);
            done += count;
            if count < there.len() {
                break;
            }
        }
        Ok(&into[..done])
    }
}

/// Where a VM keeps what says how its references are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fields {
    /// Addresses of variables: the base, the shift, and a pointer to the heap.
    base: u64,
    shift: u64,
    heap: u64,
    /// From the heap to where it begins, and to how many words it has.
    start: u64,
    words: u64,
}

/// What is looked for in the table. Up to JDK 21 base and shift are in a struct that holds both, in JDK 25 by
/// themselves.
#[derive(Default)]
struct Found {
    base: Option<u64>,
    shift: Option<u64>,
    heap: Option<u64>,
    reserved: Option<u64>,
    start: Option<u64>,
    words: Option<u64>,
}

/// Types with fields that are looked for. The names of others' fields aren't read.
const TYPES: [&[u8]; 4] = [b"CompressedOops", b"Universe", b"CollectedHeap", b"MemRegion"];

impl Found {
    /// Where the field of that name belongs, and whether it is a variable of its own, not part of an object.
    fn place(&mut self, of: &[u8], name: &[u8]) -> Option<(&mut Option<u64>, bool)> {
        let place = match (of, name) {
            (b"CompressedOops", b"_narrow_oop._base" | b"_base") => (&mut self.base, true),
            (b"CompressedOops", b"_narrow_oop._shift" | b"_shift") => (&mut self.shift, true),
            (b"Universe", b"_collectedHeap") => (&mut self.heap, true),
            (b"CollectedHeap", b"_reserved") => (&mut self.reserved, false),
            (b"MemRegion", b"_start") => (&mut self.start, false),
            (b"MemRegion", b"_word_size") => (&mut self.words, false),
            _ => return None,
        };
        Some(place)
    }

    /// `None` where one is missing.
    fn all(&self) -> Option<Fields> {
        let reserved = self.reserved?;
        Some(Fields {
            base: self.base?,
            shift: self.shift?,
            heap: self.heap?,
            start: reserved.wrapping_add(self.start?),
            words: reserved.wrapping_add(self.words?),
        })
    }
}

const fn is_one_of_an_entry(offset: u64, stride: u64) -> bool {
    match offset.checked_add(8) {
        Some(end) => end <= stride,
        None => false,
    }
}

impl Fields {
    /// Reads the table.
    pub(super) fn read(memory: &impl Memory, exported: &Exported) -> Result<Self, Missing> {
        let mut pages = Pages { memory, pages: HashMap::new() };
        let stride = pages.word(exported.stride)?;
        let mut part = |address: u64| {
            let offset = pages.word(address)?;
            if is_one_of_an_entry(offset, stride) { Ok(offset) } else { Err(Missing::Content) }
        };
        let (type_name, field_name) = (part(exported.type_name)?, part(exported.field_name)?);
        let (offset, address) = (part(exported.offset)?, part(exported.address)?);
        if stride > LONGEST_STRIDE {
            return Err(Missing::Content);
        }
        let mut entry = pages.word(exported.first)?;
        if entry == 0 {
            return Err(Missing::Content);
        }
        let (mut of_bytes, mut name_bytes) = ([0; LONGEST_NAME], [0; LONGEST_NAME]);
        let mut found = Found::default();
        for _ in 0..MOST_ENTRIES {
            let mut word = |at: u64| pages.word(entry.checked_add(at).ok_or(Missing::Content)?);
            let of = word(type_name)?;
            if of == 0 {
                break;
            }
            let (name, offset, address) = (word(field_name)?, word(offset)?, word(address)?);
            entry = entry.checked_add(stride).ok_or(Missing::Content)?;
            let of = pages.name(of, &mut of_bytes)?;
            if name == 0 || !TYPES.contains(&of) {
                continue;
            }
            let name = pages.name(name, &mut name_bytes)?;
            if let Some((place, is_variable)) = found.place(of, name) {
                place.get_or_insert(if is_variable { address } else { offset });
            }
        }
        found.all().ok_or(Missing::Content)
    }

    /// Reads what is in them. [`Missing::Content`] before there is a heap.
    pub(super) fn heap(&self, memory: &impl Memory) -> Result<Heap, Missing> {
        let not_zero = |address: u64| match memory.word(address) {
            Ok(0) => Err(Missing::Content),
            word => word,
        };
        let heap = not_zero(self.heap)?;
        let start = not_zero(heap.wrapping_add(self.start))?;
        let words = not_zero(heap.wrapping_add(self.words))?;
        let bytes = words.checked_mul(size_of::<u64>() as u64);
        let end = bytes.and_then(|bytes| start.checked_add(bytes)).ok_or(Missing::Content)?;
        // After the bounds: a VM sets those when it knows how references are written.
        let base = memory.word(self.base)?;
        let mut shift = [0; 4];
        memory.read(self.shift, &mut shift)?;
        Ok(Heap { end, base, shift: u32::from_ne_bytes(shift) })
    }
}

/// A VM's heap, and how references to it are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heap {
    end: u64,
    base: u64,
    shift: u32,
}

impl Heap {
    /// `None` where references are whole addresses: then base and shift are 0, and the heap is further up
    /// than four bytes reach.
    pub(super) fn compression(&self) -> Option<Compression> {
        let compression = Compression::new(self.base, self.shift)?;
        (self.end <= compression.end()).then_some(compression)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Memory with a table in it.
    #[derive(Default)]
    struct MadeUp {
        bytes: BTreeMap<u64, u8>,
        far: RefCell<BTreeSet<u64>>,
        next: u64,
    }

    impl Memory for MadeUp {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Missing> {
            for (nth, byte) in into.iter_mut().enumerate() {
                let at = address.wrapping_add(nth as u64);
                let page = at - at % PAGE_BYTES as u64;
                let is_mapped = self.bytes.range(page..=page + (PAGE_BYTES as u64 - 1)).next().is_some();
                if !is_mapped || self.far.borrow().contains(&page) {
                    return Err(Missing::Page(at));
                }
                *byte = self.bytes.get(&at).copied().unwrap_or(0);
            }
            Ok(())
        }
    }

    const EXPORTED: Exported = Exported {
        first: 0x1000,
        type_name: 0x1008,
        field_name: 0x1010,
        offset: 0x1018,
        address: 0x1020,
        stride: 0x1028,
    };
    /// Straddles pages now and then, as a stride of 56 does.
    const TABLE: u64 = 0x2fc8;
    const STRIDE: u64 = 56;
    const BASE: u64 = 0x9000;
    const SHIFT: u64 = 0x9008;
    const POINTER: u64 = 0xa000;
    const HEAP: u64 = 0xb010;

    impl MadeUp {
        fn put(&mut self, address: u64, bytes: &[u8]) {
            self.bytes.extend(bytes.iter().enumerate().map(|(nth, &byte)| (address + nth as u64, byte)));
        }

        fn put_word(&mut self, address: u64, word: u64) {
            self.put(address, &word.to_ne_bytes());
        }

        fn put_name(&mut self, name: &str) -> u64 {
            let at = self.next;
            self.put(at, name.as_bytes());
            self.put(at + name.len() as u64, &[0]);
            self.next += name.len() as u64 + 1;
            at
        }

        /// A VM whose table has those entries: type, field, offset, address.
        fn new(entries: &[(&str, &str, u64, u64)]) -> Self {
            let mut made = Self { next: 0x10_0ff9, ..Self::default() };
            for (at, word) in [
                (EXPORTED.first, TABLE),
                (EXPORTED.type_name, 0),
                (EXPORTED.field_name, 8),
                (EXPORTED.offset, 32),
                (EXPORTED.address, 40),
                (EXPORTED.stride, STRIDE),
            ] {
                made.put_word(at, word);
            }
            for (nth, &(of, name, offset, address)) in entries.iter().enumerate() {
                let entry = TABLE + STRIDE * nth as u64;
                let of = made.put_name(of);
                let name = if name.is_empty() { 0 } else { made.put_name(name) };
                for (at, word) in [(0, of), (8, name), (32, offset), (40, address)] {
                    made.put_word(entry + at, word);
                }
            }
            // An entry without a name ends it.
            made.put(TABLE + STRIDE * entries.len() as u64, &[0; STRIDE as usize]);
            made
        }

        fn with_heap(mut self, base: u64, shift: u32, start: u64, bytes: u64) -> Self {
            self.put_word(BASE, base);
            self.put(SHIFT, &shift.to_ne_bytes());
            self.put_word(POINTER, HEAP);
            self.put_word(HEAP + 0x30, start);
            self.put_word(HEAP + 0x38, bytes / 8);
            self
        }
    }

    fn entries(base: &'static str, shift: &'static str) -> Vec<(&'static str, &'static str, u64, u64)> {
        vec![
            ("JavaThread", "_threadObj", 0x330, 0),
            ("Universe", "", 0, 0x7777),
            ("Universe", "_collectedHeap", 0, POINTER),
            ("a type with a name that is longer than any that is looked for", "_start", 0, 0x6666),
            ("CompressedOops", base, 0, BASE),
            ("CompressedOops", "_use_implicit_null_checks", 0, 0x9010),
            ("CompressedOops", shift, 0, SHIFT),
            ("CollectedHeap", "_reserved", 0x30, 0),
            ("MemRegion", "_start", 0, 0),
            ("MemRegion", "_word_size", 8, 0),
        ]
    }

    fn of_21() -> MadeUp {
        MadeUp::new(&entries("_narrow_oop._base", "_narrow_oop._shift"))
    }

    fn heap_of(memory: &MadeUp) -> Result<Heap, Missing> {
        Fields::read(memory, &EXPORTED)?.heap(memory)
    }

    #[test]
    fn base_and_shift_are_read_by_the_names_of_each_version() {
        for (base, shift) in [("_narrow_oop._base", "_narrow_oop._shift"), ("_base", "_shift")] {
            let memory = MadeUp::new(&entries(base, shift)).with_heap(16 << 30, 3, 16 << 30, 1 << 30);

            let compression = heap_of(&memory).unwrap().compression().unwrap();

            assert_eq!((compression.base(), compression.shift()), (16 << 30, 3));
        }
    }

    #[test]
    fn a_heap_further_up_than_four_bytes_reach_has_whole_references() {
        let memory = of_21().with_heap(0, 0, 4 << 30, 1 << 30);

        assert_eq!(heap_of(&memory).unwrap().compression(), None);
    }

    #[test]
    fn a_shift_that_no_reference_has_is_none() {
        let memory = of_21().with_heap(0, 63, 1 << 30, 1 << 30);

        assert_eq!(heap_of(&memory).unwrap().compression(), None);
    }

    #[test]
    fn a_heap_without_bounds_or_with_such_as_no_memory_has_is_not_ready() {
        for (start, bytes) in [(0, 1 << 30), (1 << 30, 0), (u64::MAX - 8, 64), (8, u64::MAX)] {
            let mut memory = of_21().with_heap(0, 3, start, bytes);
            if bytes == u64::MAX {
                memory.put_word(HEAP + 0x38, u64::MAX);
            }

            assert_eq!(heap_of(&memory), Err(Missing::Content));
        }
    }

    #[test]
    fn a_virtual_machine_without_a_heap_is_not_ready_and_its_fields_are_known() {
        let memory = of_21().with_heap(0, 3, 1 << 30, 1 << 30);
        let fields = Fields::read(&memory, &EXPORTED).unwrap();
        let mut early = of_21().with_heap(0, 3, 0, 0);
        early.put_word(POINTER, 0);

        assert_eq!(fields.heap(&early), Err(Missing::Content));
        assert!(fields.heap(&memory).is_ok());
    }

    #[test]
    fn a_page_that_is_far_is_named_and_once_it_is_there_all_is_read() {
        let memory = of_21().with_heap(0, 3, 1 << 30, 1 << 30);
        let pages: BTreeSet<u64> =
            memory.bytes.keys().map(|address| address - address % PAGE_BYTES as u64).collect();
        *memory.far.borrow_mut() = pages.clone();
        let mut came = BTreeSet::new();

        let heap = loop {
            match heap_of(&memory) {
                Err(Missing::Page(address)) => {
                    let page = address - address % PAGE_BYTES as u64;
                    assert!(memory.far.borrow_mut().remove(&page), "each is named once");
                    came.insert(page);
                }
                heap => break heap,
            }
        };

        assert!(heap.is_ok());
        assert_eq!(came, pages);
    }

    #[test]
    fn a_table_without_one_of_the_fields_is_not_ready() {
        let all = entries("_base", "_shift");
        for missing in [2, 4, 6, 7, 8, 9] {
            let mut entries = all.clone();
            entries.remove(missing);

            assert_eq!(Fields::read(&MadeUp::new(&entries), &EXPORTED), Err(Missing::Content));
        }
    }

    #[test]
    fn a_table_without_an_end_is_followed_to_where_memory_ends_or_a_bound() {
        const SHORT: u64 = 48;
        let mut memory = MadeUp::new(&[]);
        let of = memory.put_name("MemRegion");
        let table = 0x100_0000;
        let bytes = (MOST_ENTRIES * SHORT).next_multiple_of(PAGE_BYTES as u64);
        for entry in (table..table + bytes).step_by(8) {
            memory.put_word(entry, of);
        }
        memory.put_word(EXPORTED.stride, SHORT);
        memory.put_word(EXPORTED.first, table);
        assert_eq!(Fields::read(&memory, &EXPORTED), Err(Missing::Content));

        memory.put_word(EXPORTED.first, table + bytes - SHORT);
        assert_eq!(Fields::read(&memory, &EXPORTED), Err(Missing::Page(table + bytes)));
    }

    #[test]
    fn strides_and_offsets_that_no_entry_has_are_refused() {
        for stride in [0, 1, 39, LONGEST_STRIDE + 1, 1 << 40, u64::MAX] {
            let mut memory = of_21();
            memory.put_word(EXPORTED.stride, stride);
            assert_eq!(Fields::read(&memory, &EXPORTED), Err(Missing::Content), "{stride}");
        }
        for offset in [STRIDE - 7, STRIDE, 1 << 40, u64::MAX] {
            let mut memory = of_21();
            memory.put_word(EXPORTED.field_name, offset);
            assert_eq!(Fields::read(&memory, &EXPORTED), Err(Missing::Content), "{offset}");
        }
    }

    #[test]
    fn names_and_tables_at_the_end_of_all_addresses_are_read_as_far_as_they_go() {
        for (at, word) in [(EXPORTED.first, u64::MAX - 8), (TABLE, u64::MAX - 8), (TABLE + 8, u64::MAX)] {
            let mut memory = of_21();
            memory.put_word(at, word);
            let _ = Fields::read(&memory, &EXPORTED);
        }
    }
}

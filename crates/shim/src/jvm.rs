//! How a Java VM in this process writes its references, as it says itself.
//!
//! A heap of less than 32 GiB has references of four bytes, of which nobody but the VM knows the base and the shift. Its library exports a table of
//! its own fields, for debuggers: where they lie is read there, not guessed. So nothing has to be loaded into the VM, and no option of its
//! be set.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use farmem_pager::{Compression, Engine};

use crate::libc;

/// Looks left at the table of a VM that isn't ready: it makes fewer threads than that until it is.
static LOOKS_LEFT: AtomicU32 = AtomicU32::new(64);
/// Looks left for a VM. A program that has made so many threads without one is hardly going to have one; and each look takes the loader's
/// lock, for which the C library doesn't wait when it makes a thread.
static MISSES_LEFT: AtomicU32 = AtomicU32::new(16);

/// A thread is about to be made: if it is a Java VM that makes it, and its heap is there, the pager learns how its references are written.
pub(crate) fn look(engine: &Engine) {
    let left = LOOKS_LEFT.load(Ordering::Relaxed);
    let misses_left = MISSES_LEFT.load(Ordering::Relaxed);
    if left == 0 || misses_left == 0 || !engine.follows_references() {
        return;
    }
    // SAFETY: a VM whose library is loaded stays loaded.
    let Some(table) = (unsafe { Table::find() }) else {
        MISSES_LEFT.store(misses_left - 1, Ordering::Relaxed);
        return;
    };
    LOOKS_LEFT.store(left - 1, Ordering::Relaxed);
    // SAFETY: the table is a VM's, and its fields are there as long as its library is.
    if let Some(heap) = unsafe { Heap::of(&table) } {
        LOOKS_LEFT.store(0, Ordering::Relaxed);
        if let Some(compression) = heap.compression() {
            engine.understand(compression);
        }
    }
}

/// The VM's table of fields.
struct Table {
    first: *const u8,
    layout: Layout,
}

/// Where in an entry of the table its parts are, in bytes, and how far apart the entries are.
struct Layout {
    type_name: usize,
    field_name: usize,
    offset: usize,
    address: usize,
    stride: usize,
}

/// A field of the VM's.
struct Field {
    /// Of a field of an object: where in the object.
    offset: usize,
    /// Of a static one: where.
    address: *const u8,
}

/// More entries than any VM has: a table without an end must not be followed out of the library.
const MOST_ENTRIES: usize = 1 << 14;

impl Table {
    /// # Safety
    /// Nobody may unload the library that exports the names of a VM.
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller promises; these names are a pointer and words of 64 bits in every VM that exports them.
        unsafe {
            let first = exported::<*const u8>(c"gHotSpotVMStructs")?;
            let word = |name| exported::<u64>(name).map(|word| word as usize);
            let layout = Layout {
                type_name: word(c"gHotSpotVMStructEntryTypeNameOffset")?,
                field_name: word(c"gHotSpotVMStructEntryFieldNameOffset")?,
                offset: word(c"gHotSpotVMStructEntryOffsetOffset")?,
                address: word(c"gHotSpotVMStructEntryAddressOffset")?,
                stride: word(c"gHotSpotVMStructEntryArrayStride")?,
            };
            (!first.is_null()).then_some(Self { first, layout })
        }
    }

    /// # Safety
    /// The table must be a VM's, whose library is loaded.
    unsafe fn field(&self, type_name: &CStr, field_name: &CStr) -> Option<Field> {
        let Layout { stride, .. } = self.layout;
        for entry in (0..MOST_ENTRIES).map(|at| self.first.wrapping_add(at * stride)) {
            // SAFETY: as the caller promises: entries follow each other up to one without a name; their names are strings.
            unsafe {
                let text = |at: usize| entry.add(at).cast::<*const c_char>().read_unaligned();
                let of = text(self.layout.type_name);
                if of.is_null() {
                    return None;
                }
                let name = text(self.layout.field_name);
                if !name.is_null() && CStr::from_ptr(of) == type_name && CStr::from_ptr(name) == field_name {
                    return Some(Field {
                        offset: entry.add(self.layout.offset).cast::<u64>().read_unaligned() as usize,
                        address: entry.add(self.layout.address).cast::<*const u8>().read_unaligned(),
                    });
                }
            }
        }
        None
    }
}

/// What a library exports under that name, if one does.
///
/// # Safety
/// What is exported must be a `T`.
unsafe fn exported<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: dlsym only reads the name; what it finds is a `T`, as the caller promises.
    unsafe {
        let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast_const().cast::<T>();
        (!address.is_null()).then(|| address.read_unaligned())
    }
}

/// A VM's heap, and how references to it are written.
struct Heap {
    end: u64,
    base: u64,
    shift: u32,
}

impl Heap {
    /// `None` before there is one.
    ///
    /// # Safety
    /// As [`Table::field`].
    unsafe fn of(table: &Table) -> Option<Self> {
        // SAFETY: as the caller promises; the fields are of the sizes that JDK 17, 21 and 25 give them. A pointer to the heap that isn't
        // null is one to a heap; its bounds are set when it is known how references to it are written.
        unsafe {
            let field = |of, name| table.field(of, name);
            let read = |at: *const u8| (!at.is_null()).then(|| at.cast::<u64>().read_unaligned());
            // Up to JDK 21 by the struct that holds both, in JDK 25 by themselves.
            let of_references =
                |names: [&'static CStr; 2]| names.into_iter().find_map(|name| field(c"CompressedOops", name));
            let base = of_references([c"_narrow_oop._base", c"_base"])?.address;
            let shift = of_references([c"_narrow_oop._shift", c"_shift"])?.address;
            let heap = read(field(c"Universe", c"_collectedHeap")?.address)?;
            let heap = core::ptr::with_exposed_provenance::<u8>(heap as usize);
            if heap.is_null() || shift.is_null() {
                return None;
            }
            let reserved = heap.add(field(c"CollectedHeap", c"_reserved")?.offset);
            let start = read(reserved.add(field(c"MemRegion", c"_start")?.offset))?;
            let words = read(reserved.add(field(c"MemRegion", c"_word_size")?.offset))?;
            if start == 0 || words == 0 {
                return None;
            }
            let end = start.checked_add(words.checked_mul(size_of::<*const c_void>() as u64)?)?;
            Some(Self { end, base: read(base)?, shift: shift.cast::<u32>().read_unaligned() })
        }
    }

    /// `None` where references are whole addresses: then base and shift are 0, and the heap is further up than four bytes reach.
    fn compression(&self) -> Option<Compression> {
        let compression = Compression::new(self.base, self.shift)?;
        (self.end <= compression.end()).then_some(compression)
    }
}

//! The runtime's own variables in the environment: taken out when a program begins, put back for those it starts.
//!
//! `LD_PRELOAD` names this library, `FARMEM_SUPERVISOR` whom to connect to. A program sees neither, except for what its
//! user had put in `LD_PRELOAD` beside them.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::libc::{self, Strings};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const SUPERVISOR: &[u8] = b"FARMEM_SUPERVISOR=";
/// Longest value kept: paths are at most 4096 bytes, and the program's own part may come on top.
const TEXT_BYTES: usize = 16 << 10;

/// The name of the supervisor, as it stood in the environment.
pub(crate) struct Own {
    pub(crate) supervisor: &'static [u8],
}

/// Variables as they must stand in a child's environment, written once before the program begins.
struct Kept {
    texts: UnsafeCell<[[u8; TEXT_BYTES]; 3]>,
    is_set: AtomicBool,
}

// SAFETY: written only in `take`, while the process has one thread; read only after `is_set`.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept { texts: UnsafeCell::new([[0; TEXT_BYTES]; 3]), is_set: AtomicBool::new(false) };

/// `LD_PRELOAD=` with this library alone, `FARMEM_SUPERVISOR=`, and the `LD_PRELOAD=` that the program began with.
const LIBRARY: usize = 0;
const NAME: usize = 1;
const REST: usize = 2;

/// Takes the runtime's variables out of the environment. `None` when they aren't there: then this process isn't managed.
///
/// # Safety
/// `environment` must be the process's environment, and the calling thread its only one.
pub(crate) unsafe fn take(environment: *mut *mut c_char) -> Option<Own> {
    // SAFETY: as the caller promises.
    unsafe {
        let (_, name) = find(environment, SUPERVISOR)?;
        let (preload_at, preload) = find(environment, PRELOAD)?;
        let texts = &mut *KEPT.texts.get();
        let value = &preload.to_bytes()[PRELOAD.len()..];
        let (library, rest) = match value.iter().position(|&byte| byte == b':') {
            Some(colon) => (&value[..colon], &value[colon + 1..]),
            None => (value, &[][..]),
        };
        keep(&mut texts[LIBRARY], &[PRELOAD, library])?;
        keep(&mut texts[NAME], &[name.to_bytes()])?;
        if rest.is_empty() {
            remove(environment, preload_at);
        } else {
            keep(&mut texts[REST], &[PRELOAD, rest])?;
            *environment.add(preload_at) = texts[REST].as_mut_ptr().cast();
        }
        let (name_at, _) = find(environment, SUPERVISOR)?;
        remove(environment, name_at);
        KEPT.is_set.store(true, Ordering::Release);
        let supervisor = kept(NAME).to_bytes();
        Some(Own { supervisor: &supervisor[SUPERVISOR.len()..] })
    }
}

/// Whether this process has variables to hand on.
pub(crate) fn is_kept() -> bool {
    KEPT.is_set.load(Ordering::Acquire)
}

/// Whether the process has variables to hand on, and a program that it starts would find the library: not after it has changed its root or its
/// user, perhaps. The loader would complain of that where the program's user sees it.
pub(crate) fn can_be_handed_on() -> bool {
    const R_OK: c_int = 4;
    const ENOENT: c_int = 2;
    const EACCES: c_int = 13;
    const ENOTDIR: c_int = 20;
    if !is_kept() {
        return false;
    }
    let before = libc::error();
    // The loader makes this call, too: a filter of system calls that lets a program start lets it pass.
    // SAFETY: KEPT is set, so the text is `LD_PRELOAD=` and a path that ends with null, which the call only reads.
    let answer = unsafe { libc::access(kept(LIBRARY).as_ptr().add(PRELOAD.len()), R_OK) };
    let error = libc::error();
    libc::set_error(before);
    answer == 0 || !matches!(error, ENOENT | EACCES | ENOTDIR)
}

/// # Safety
/// KEPT must be set, or the calling thread be the one in `take`.
unsafe fn kept(which: usize) -> &'static CStr {
    // SAFETY: as the caller promises the texts don't change any more; `keep` leaves room for the null at their end.
    unsafe { CStr::from_ptr(KEPT.texts.get().cast::<[u8; TEXT_BYTES]>().add(which).cast()) }
}

/// What an environment with the runtime's variables takes.
#[derive(Clone, Copy)]
pub(crate) struct Needs {
    /// Elements of the list, its end included.
    pub(crate) elements: usize,
    /// Bytes of the `LD_PRELOAD=` that is put together, its end included.
    pub(crate) text_bytes: usize,
}

/// What `environment` with the runtime's variables takes.
///
/// # Safety
/// `environment` must be null or a list of strings that ends with null, and [`is_kept`] be true.
pub(crate) unsafe fn needs(environment: Strings) -> Needs {
    let mut needs = Needs { elements: 3, text_bytes: 0 };
    // SAFETY: as the caller promises; the elements are strings, and KEPT is set.
    unsafe {
        let library = kept(LIBRARY).count_bytes();
        for text in strings(environment) {
            needs.elements += 1;
            if starts_with(text, PRELOAD) {
                needs.text_bytes = needs.text_bytes.max(library + libc::strlen(text) + 2);
            }
        }
    }
    needs
}

/// The elements of a list.
///
/// # Safety
/// `list` must be null or a list of strings that ends with null, for as long as the iterator is used.
pub(crate) unsafe fn strings(list: Strings) -> impl Iterator<Item = *const c_char> {
    let mut at = 0;
    core::iter::from_fn(move || {
        if list.is_null() {
            return None;
        }
        // SAFETY: as the caller promises; null, the end, is not passed.
        let text = unsafe { *list.add(at) };
        at += 1;
        (!text.is_null()).then_some(text)
    })
    .fuse()
}

/// Whether `text` is a string of the runtime's.
pub(crate) fn is_own(text: *const c_char) -> bool {
    [LIBRARY, NAME].iter().any(|&which| {
        let own = KEPT.texts.get().cast::<[u8; TEXT_BYTES]>().wrapping_add(which);
        core::ptr::eq(text, own.cast_const().cast())
    })
}

/// Whether `text` is a variable that [`fill`] sets, whoever it is from.
///
/// # Safety
/// `text` must end with a null byte.
pub(crate) unsafe fn is_of_ours(text: *const c_char) -> bool {
    // SAFETY: as the caller promises.
    unsafe { starts_with(text, PRELOAD) || starts_with(text, SUPERVISOR) }
}

/// Lets `use_it` see `environment` with the runtime's variables in it, for a program that is about to be started.
/// Usable between `fork` or `vfork` and the start of a program, and in signal handlers.
///
/// # Safety
/// `environment` must be null or a list of strings that ends with null.
pub(crate) unsafe fn with_own<R>(environment: Strings, use_it: impl FnOnce(Strings) -> R) -> R {
    /// Small enough for a signal's stack or a coroutine's, large enough for most environments.
    const USUAL: usize = 128;
    /// Small enough for a thread's stack.
    const LONG: usize = 512;
    const LONG_TEXT: usize = 6 << 10;
    if !can_be_handed_on() {
        return use_it(environment);
    }
    // SAFETY: as the caller promises; the lists are as long as is needed.
    let needs = unsafe { needs(environment) };
    if needs.elements <= USUAL && needs.text_bytes == 0 {
        // SAFETY: as above.
        return unsafe { on_stack::<USUAL, 0, R>(environment, use_it) };
    }
    if needs.elements <= LONG && needs.text_bytes <= LONG_TEXT {
        // SAFETY: as above.
        return unsafe { on_stack::<LONG, LONG_TEXT, R>(environment, use_it) };
    }
    let list_bytes = needs.elements * size_of::<*const c_char>();
    let Some(room) = Room::new(list_bytes + needs.text_bytes) else { return use_it(environment) };
    // SAFETY: the room is zeroed, aligned to a page, and large enough for both; nobody else knows of it.
    unsafe {
        let list = core::slice::from_raw_parts_mut(room.start.cast::<*const c_char>(), needs.elements);
        let text = core::slice::from_raw_parts_mut(room.start.cast::<u8>().add(list_bytes), needs.text_bytes);
        fill(environment, list, text);
    }
    use_it(room.start.cast())
}

/// Not part of its caller, whose stack it would grow even where another length is used.
///
/// # Safety
/// As [`fill`].
#[inline(never)]
unsafe fn on_stack<const ELEMENTS: usize, const TEXT_BYTES: usize, R>(
    environment: Strings,
    use_it: impl FnOnce(Strings) -> R,
) -> R {
    let mut list = [core::ptr::null::<c_char>(); ELEMENTS];
    let mut text = [0; TEXT_BYTES];
    // SAFETY: as the caller promises.
    unsafe { fill(environment, &mut list, &mut text) };
    use_it(list.as_ptr())
}

/// Memory of the program's for the length of a call, with none of its allocator's locks.
pub(crate) struct Room {
    pub(crate) start: *mut c_void,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        (start.addr() != usize::MAX).then_some(Self { start, bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// Puts the environment with the runtime's variables into `list`: the program's own in their order, then the runtime's.
/// The rest of the list becomes null. Returns the program's own `LD_PRELOAD=`, if that lies in `text` now, behind
/// this library.
///
/// # Safety
/// `environment` must be null or a list of strings that ends with null; `list` and `text` must be as long as
/// [`needs`] says.
pub(crate) unsafe fn fill(
    environment: Strings,
    list: &mut [*const c_char],
    text: &mut [u8],
) -> Option<*const c_char> {
    let mut count = 0;
    let mut preload = None;
    // The variable keeps its place among the others.
    let mut preload_at = None;
    // SAFETY: as the caller promises; KEPT is set, or `needs` wouldn't have been asked.
    unsafe {
        for variable in strings(environment) {
            if starts_with(variable, PRELOAD) {
                preload = Some(variable);
                if preload_at.is_none() {
                    preload_at = Some(count);
                    count += 1;
                }
            } else if !starts_with(variable, SUPERVISOR) {
                list[count] = variable;
                count += 1;
            }
        }
        let library = kept(LIBRARY);
        let own = preload.map(|preload| CStr::from_ptr(preload).to_bytes());
        let mut composed = None;
        let preload_at = preload_at.unwrap_or(count);
        count = count.max(preload_at + 1);
        list[preload_at] = match (preload, own) {
            // A list that the program has from another process of the application, or from us.
            (Some(preload), Some(own)) if is_first(library.to_bytes(), own) => preload,
            (Some(preload), Some(own)) if own.len() > PRELOAD.len() => {
                compose(text, &[library.to_bytes(), b":", &own[PRELOAD.len()..], b"\0"]);
                composed = Some(preload);
                text.as_ptr().cast()
            }
            _ => library.as_ptr(),
        };
        list[count] = kept(NAME).as_ptr();
        list[count + 1..].fill(core::ptr::null());
        composed
    }
}

/// Whether the first library of `preload` is that of `library`.
fn is_first(library: &[u8], preload: &[u8]) -> bool {
    preload.strip_prefix(library).is_some_and(|rest| matches!(rest.first(), None | Some(b':' | b' ')))
}

fn compose(place: &mut [u8], parts: &[&[u8]]) {
    let mut at = 0;
    for part in parts {
        place[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

/// # Safety
/// `list` must end with null.
unsafe fn find(list: *mut *mut c_char, name: &[u8]) -> Option<(usize, &'static CStr)> {
    // SAFETY: as the caller promises; the environment's strings live as long as the process.
    unsafe {
        strings(list.cast_const().cast())
            .enumerate()
            .find(|&(_, text)| starts_with(text, name))
            .map(|(at, text)| (at, CStr::from_ptr(text)))
    }
}

/// # Safety
/// `text` must end with a null byte.
unsafe fn starts_with(text: *const c_char, name: &[u8]) -> bool {
    // SAFETY: strlen tells how far the text may be read.
    unsafe {
        libc::strlen(text) >= name.len() && core::slice::from_raw_parts(text.cast::<u8>(), name.len()) == name
    }
}

/// Takes the element `at` out of a list.
///
/// # Safety
/// `list` must end with null and have an element `at`.
pub(crate) unsafe fn remove(list: *mut *mut c_char, mut at: usize) {
    // SAFETY: as the caller promises; the end moves down with the rest.
    unsafe {
        while !(*list.add(at)).is_null() {
            *list.add(at) = *list.add(at + 1);
            at += 1;
        }
    }
}

fn keep(place: &mut [u8; TEXT_BYTES], parts: &[&[u8]]) -> Option<()> {
    // One byte stays for the end.
    if parts.iter().map(|part| part.len()).sum::<usize>() >= TEXT_BYTES {
        return None;
    }
    compose(place, parts);
    Some(())
}

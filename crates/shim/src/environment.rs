//! The runtime's own variables in the environment: taken out when a program begins, put back for those it starts.
//!
//! `LD_PRELOAD` names this library, `FARMEM_SUPERVISOR` whom to connect to. A program sees neither, except for what its
//! user had put in `LD_PRELOAD` beside them.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
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

/// The whole `LD_PRELOAD=`, `FARMEM_SUPERVISOR=`, and the program's own `LD_PRELOAD=`.
const FULL: usize = 0;
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
        keep(&mut texts[FULL], &[preload.to_bytes()])?;
        keep(&mut texts[NAME], &[name.to_bytes()])?;
        let value = &preload.to_bytes()[PRELOAD.len()..];
        let rest = value.iter().position(|&byte| byte == b':').map(|colon| &value[colon + 1..]);
        match rest.filter(|rest| !rest.is_empty()) {
            Some(rest) => {
                keep(&mut texts[REST], &[PRELOAD, rest])?;
                *environment.add(preload_at) = texts[REST].as_mut_ptr().cast();
            }
            None => remove(environment, preload_at),
        }
        let (name_at, _) = find(environment, SUPERVISOR)?;
        remove(environment, name_at);
        KEPT.is_set.store(true, Ordering::Release);
        let kept: &'static [u8; TEXT_BYTES] = &(&*KEPT.texts.get())[NAME];
        let supervisor = CStr::from_bytes_until_nul(kept).ok()?.to_bytes();
        Some(Own { supervisor: &supervisor[SUPERVISOR.len()..] })
    }
}

/// Lets `use_it` see `environment` with the runtime's variables in it, for a program that is about to be started.
///
/// # Safety
/// `environment` must be null or a list of strings that ends with null.
pub(crate) unsafe fn with_own<R>(environment: Strings, use_it: impl FnOnce(Strings) -> R) -> R {
    /// Small enough for any stack, large enough for most environments.
    const USUAL: usize = 512;
    if environment.is_null() || !KEPT.is_set.load(Ordering::Acquire) {
        return use_it(environment);
    }
    let mut usual = [core::ptr::null::<c_char>(); USUAL];
    // SAFETY: as the caller promises.
    let count = unsafe { (0..).take_while(|&at| !(*environment.add(at)).is_null()).count() };
    if count + 3 <= USUAL {
        // SAFETY: as above; there is room for two more and the end.
        unsafe { fill(environment, &mut usual) };
        return use_it(usual.as_ptr());
    }
    match farmem_sys::memory::table_mut::<usize>(count + 3) {
        Ok(large) => {
            // SAFETY: a table of words is a table of null pointers; as above.
            let large = unsafe {
                core::slice::from_raw_parts_mut(large.as_mut_ptr().cast::<*const c_char>(), large.len())
            };
            // SAFETY: as above.
            unsafe { fill(environment, large) };
            use_it(large.as_ptr())
        }
        Err(_) => use_it(environment),
    }
}

/// # Safety
/// `environment` must end with null, and `list` be long enough for it, two more and the end.
unsafe fn fill(environment: Strings, list: &mut [*const c_char]) {
    let texts = KEPT.texts.get().cast::<[u8; TEXT_BYTES]>();
    let mut count = 0;
    let mut at = 0;
    // SAFETY: as the caller promises; KEPT is set, so its texts end with null and don't change any more.
    unsafe {
        while !(*environment.add(at)).is_null() {
            let text = *environment.add(at);
            // The program may have put its own LD_PRELOAD back, or be handing on what we gave it.
            if !starts_with(text, PRELOAD) && !starts_with(text, SUPERVISOR) {
                list[count] = text;
                count += 1;
            }
            at += 1;
        }
        list[count] = texts.add(FULL).cast();
        list[count + 1] = texts.add(NAME).cast();
    }
    list[count + 2] = core::ptr::null();
}

/// # Safety
/// `list` must end with null.
unsafe fn find(list: *mut *mut c_char, name: &[u8]) -> Option<(usize, &'static CStr)> {
    let mut at = 0;
    // SAFETY: as the caller promises; the environment's strings live as long as the process.
    unsafe {
        while !(*list.add(at)).is_null() {
            let text = *list.add(at);
            if starts_with(text, name) {
                return Some((at, CStr::from_ptr(text)));
            }
            at += 1;
        }
    }
    None
}

/// # Safety
/// `text` must end with a null byte.
unsafe fn starts_with(text: *const c_char, name: &[u8]) -> bool {
    // SAFETY: strlen tells how far the text may be read.
    unsafe {
        libc::strlen(text) >= name.len() && core::slice::from_raw_parts(text.cast::<u8>(), name.len()) == name
    }
}

/// # Safety
/// `list` must end with null and have an element `at`.
unsafe fn remove(list: *mut *mut c_char, mut at: usize) {
    // SAFETY: as the caller promises; the end moves down with the rest.
    unsafe {
        while !(*list.add(at)).is_null() {
            *list.add(at) = *list.add(at + 1);
            at += 1;
        }
    }
}

fn keep(place: &mut [u8; TEXT_BYTES], parts: &[&[u8]]) -> Option<()> {
    let mut at = 0;
    for part in parts {
        // One byte stays for the end.
        place.get_mut(at..at + part.len()).filter(|_| at + part.len() < TEXT_BYTES)?.copy_from_slice(part);
        at += part.len();
    }
    Some(())
}

//! The functions of the library that Farmem loads into programs, found once by their names. Where they aren't, a mailbox does the same.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use farmem_mailbox::Kind;

use crate::{observer, said};

/// `struct farmem_fault` of `include/farmem.h`.
pub(crate) use farmem_mailbox::Fault as RawFault;

type Present = extern "C" fn() -> c_int;
/// Only the pages of the range matter; nothing is read or written through the address.
type Range = extern "C" fn(*const c_void, usize) -> c_int;
pub(crate) type Callback = unsafe extern "C" fn(*const RawFault, usize, *mut c_void);
type Register = unsafe extern "C" fn(Option<Callback>, *mut c_void, c_uint) -> c_int;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

#[derive(Default)]
struct Functions {
    is_present: Option<Present>,
    prefetch: Option<Range>,
    cold: Option<Range>,
    pin: Option<Range>,
    unpin: Option<Range>,
    register: Option<Register>,
}

/// The function of that name; `None` without Farmem.
///
/// # Safety
/// `F` must be the type of pointers to it.
unsafe fn find<F>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: a null handle means all that is loaded, and the name ends with null.
    let address = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    // SAFETY: not null, so the function's address, of the size of `F` as was checked and of its type as the caller promises.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

fn functions() -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        // SAFETY: the types are those of `include/farmem.h`.
        unsafe {
            Functions {
                is_present: find(c"farmem_is_present"),
                prefetch: find(c"farmem_prefetch"),
                cold: find(c"farmem_cold"),
                pin: find(c"farmem_pin"),
                unpin: find(c"farmem_unpin"),
                register: find(c"farmem_register_prefetcher"),
            }
        }
    })
}

pub(crate) fn is_present() -> bool {
    functions().is_present.map_or_else(said::is_present, |function| function() != 0)
}

pub(crate) fn prefetch(start: *const c_void, length: usize) -> c_int {
    functions()
        .prefetch
        .map_or_else(|| said::hint(Kind::Prefetch, start, length), |function| function(start, length))
}

pub(crate) fn cold(start: *const c_void, length: usize) -> c_int {
    functions().cold.map_or_else(|| said::hint(Kind::Cold, start, length), |function| function(start, length))
}

pub(crate) fn pin(start: *const c_void, length: usize) -> c_int {
    functions().pin.map_or_else(|| said::pin(false, start, length), |function| function(start, length))
}

pub(crate) fn unpin(start: *const c_void, length: usize) -> c_int {
    functions().unpin.map_or_else(|| said::pin(true, start, length), |function| function(start, length))
}

/// # Safety
/// `callback` must be callable with `context` from another thread until it has been taken away, by a call without one.
pub(crate) unsafe fn register(callback: Option<Callback>, context: *mut c_void, percent: c_uint) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        match functions().register {
            Some(function) => function(callback, context, percent),
            None => observer::register(callback, context, percent),
        }
    }
}

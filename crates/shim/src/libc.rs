//! The few functions of the C library that the shim calls or stands in for, on the program's own threads.

use core::ffi::{c_char, c_int, c_ulong, c_void};

/// All that is loaded for everybody, in its order.
pub(crate) const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
pub(crate) const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;

/// A list of strings that ends with null: arguments or environment.
pub(crate) type Strings = *const *const c_char;

pub(crate) const PROT_READ: c_int = 1;
pub(crate) const PROT_WRITE: c_int = 2;
pub(crate) const MAP_PRIVATE: c_int = 2;
pub(crate) const MAP_ANONYMOUS: c_int = 0x20;

#[link(name = "c")]
unsafe extern "C" {
    pub(crate) static mut environ: *mut *mut c_char;
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn __errno_location() -> *mut c_int;
    pub(crate) fn mmap(
        address: *mut c_void,
        bytes: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    pub(crate) fn munmap(address: *mut c_void, bytes: usize) -> c_int;
    pub(crate) fn pthread_detach(thread: c_ulong) -> c_int;
    pub(crate) fn access(path: *const c_char, mode: c_int) -> c_int;
    pub(crate) fn strlen(text: *const c_char) -> usize;
    pub(crate) fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        library: *const c_void,
    ) -> c_int;
}

/// The `errno` of the calling thread.
pub(crate) fn error() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *__errno_location() }
}

pub(crate) fn set_error(number: c_int) {
    // SAFETY: as above.
    unsafe { *__errno_location() = number }
}

//! The functions of the C library that the shim stands in for, found once when the library has been loaded.
//!
//! Looking a name up takes the loader's lock and may allocate, which nobody may do between `fork` or `vfork` and the
//! start of a program. So the hooks read addresses only; a name is looked up in a hook only when another library's
//! constructor calls it before this library's own has run.

use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::libc::{self, RTLD_NEXT, Strings};

/// A function that would have been called without the shim; `F` is the type of pointers to it.
pub(crate) struct Real<F> {
    name: &'static CStr,
    /// Null until it has been found.
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// # Safety
    /// `F` must be the type of pointers to the C library's function `name`.
    const unsafe fn new(name: &'static CStr) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self { name, address: AtomicPtr::new(core::ptr::null_mut()), function: PhantomData }
    }

    /// The function, if the C library has it.
    pub(crate) fn get(&self) -> Option<F> {
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            address = self.find();
        }
        // SAFETY: not null, so the address of the function that `new` was promised to be told the type of; a pointer
        // to it has the size of `F`.
        (!address.is_null()).then(|| unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) })
    }

    /// Looks the function up, and remembers it.
    fn find(&self) -> *mut c_void {
        // SAFETY: dlsym only reads the name.
        let address = unsafe { libc::dlsym(RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Release);
        address
    }
}

/// The answer of a function that the C library hasn't got.
pub(crate) fn missing() -> c_int {
    const ENOSYS: c_int = 38;
    libc::set_error(ENOSYS);
    -1
}

/// Declares the functions, and `find_all`, which finds them all.
macro_rules! real {
    ($($static:ident = $name:literal: $type:ty;)*) => {
        $(
            // SAFETY: the type is the one that the function's manual page gives.
            pub(crate) static $static: Real<$type> = unsafe { Real::new($name) };
        )*

        /// Finds every function. Allowed only where the program may call anything of the C library's.
        pub(crate) fn find_all() {
            $($static.find();)*
        }
    };
}

/// `execve`, `execvpe`: a program, its arguments and its environment.
type Execve = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
/// `posix_spawn`, `posix_spawnp`.
type Spawn =
    unsafe extern "C" fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;
/// `ioctl` is variadic: a caller must say so where variadic arguments travel in their own way.
type Ioctl = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;
/// What a thread runs.
pub(crate) type Routine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

real! {
    EXECVE = c"execve": Execve;
    EXECVPE = c"execvpe": Execve;
    FEXECVE = c"fexecve": unsafe extern "C" fn(c_int, Strings, Strings) -> c_int;
    EXECVEAT = c"execveat": unsafe extern "C" fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int;
    POSIX_SPAWN = c"posix_spawn": Spawn;
    POSIX_SPAWNP = c"posix_spawnp": Spawn;
    SYSTEM = c"system": unsafe extern "C" fn(*const c_char) -> c_int;
    POPEN = c"popen": unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
    UNSHARE = c"unshare": unsafe extern "C" fn(c_int) -> c_int;
    SETNS = c"setns": unsafe extern "C" fn(c_int, c_int) -> c_int;
    MADVISE = c"madvise": unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
    IOCTL = c"ioctl": Ioctl;
    MLOCKALL = c"mlockall": unsafe extern "C" fn(c_int) -> c_int;
    PTHREAD_CREATE = c"pthread_create":
        unsafe extern "C" fn(*mut c_void, *const c_void, Option<Routine>, *mut c_void) -> c_int;
}

//! Handing the runtime on to programs that this one starts: the functions of the C library that replace a process's
//! program, each with the runtime's variables added to the environment.
//!
//! Those that take their environment from the global variable inside the C library (`system`, `popen`) find it
//! replaced for the length of the call.

use core::ffi::{c_char, c_int, c_void};

use crate::libc::{self, Strings};
use crate::{environment, global, real};

fn own_environment() -> Strings {
    // SAFETY: reads the pointer only; the program may change it at any time, as it may for the C library.
    unsafe { libc::environ }.cast_const().cast()
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let Some(next) = real::EXECVE.get() else { return real::missing() };
    // SAFETY: passed on as it came, with a longer environment.
    unsafe { environment::with_own(environment, |environment| next(path, arguments, environment)) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: what execv is defined as.
    unsafe { execve(path, arguments, own_environment()) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let Some(next) = real::EXECVPE.get() else { return real::missing() };
    // SAFETY: passed on as it came, with a longer environment.
    unsafe { environment::with_own(environment, |environment| next(file, arguments, environment)) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: what execvp is defined as.
    unsafe { execvpe(file, arguments, own_environment()) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    let Some(next) = real::FEXECVE.get() else { return real::missing() };
    // SAFETY: passed on as it came, with a longer environment.
    unsafe { environment::with_own(environment, |environment| next(fd, arguments, environment)) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    let Some(next) = real::EXECVEAT.get() else { return real::missing() };
    // SAFETY: passed on as it came, with a longer environment.
    unsafe {
        environment::with_own(environment, |environment| next(directory, path, arguments, environment, flags))
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    process: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let Some(next) = real::POSIX_SPAWN.get() else { return real::missing() };
    // SAFETY: passed on as it came, with a longer environment.
    unsafe {
        environment::with_own(environment, |environment| {
            next(process, path, actions, attributes, arguments, environment)
        })
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    process: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let Some(next) = real::POSIX_SPAWNP.get() else { return real::missing() };
    // SAFETY: passed on as it came, with a longer environment.
    unsafe {
        environment::with_own(environment, |environment| {
            next(process, file, actions, attributes, arguments, environment)
        })
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let Some(next) = real::SYSTEM.get() else { return real::missing() };
    // SAFETY: passed on as it came.
    global::with_own(|| unsafe { next(command) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(next) = real::POPEN.get() else { return core::ptr::null_mut() };
    // SAFETY: passed on as it came.
    global::with_own(|| unsafe { next(command, mode) })
}

/// The variadic ones hand over the arguments that came in registers, and where the others lie.
macro_rules! variadic {
    ($(#[$meta:meta])* $name:ident => $collect:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// As the C library's.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            // Five of the arguments behind the first came in registers; what came on the stack starts above the
            // return address. The array of five takes 40 bytes, so the call below is aligned to 16.
            core::arch::naked_asm!(
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {collect}",
                "add rsp, 40",
                "ret",
                collect = sym $collect,
            )
        }
    };
}

variadic!(/// `execl`
    execl => collect_execl);
variadic!(/// `execlp`
    execlp => collect_execlp);
variadic!(/// `execle`
    execle => collect_execle);

const IN_REGISTERS: usize = 5;
const E2BIG: c_int = 7;

/// Calls `use_it` with the arguments as a list, and with what follows the list's end.
///
/// # Safety
/// `registers` and `stack` must be what a variadic call with a null at the list's end left.
unsafe fn with_list(
    registers: Strings,
    stack: Strings,
    use_it: impl FnOnce(Strings, *const c_char) -> c_int,
) -> c_int {
    /// Small enough for a signal's stack or a coroutine's, large enough for most calls.
    const USUAL: usize = 64;
    // SAFETY: as the caller promises: the arguments go on until the null, and one more may follow.
    let argument = |at: usize| unsafe {
        if at < IN_REGISTERS { *registers.add(at) } else { *stack.add(at - IN_REGISTERS) }
    };
    let mut count = 0;
    while !argument(count).is_null() {
        count += 1;
    }
    // The null at the end is part of the list.
    let elements = count + 1;
    if elements <= USUAL {
        let mut list = [core::ptr::null::<c_char>(); USUAL];
        list[..count].iter_mut().enumerate().for_each(|(at, place)| *place = argument(at));
        return use_it(list.as_ptr(), argument(elements));
    }
    let Some(room) = environment::Room::new(elements * size_of::<*const c_char>()) else {
        libc::set_error(E2BIG);
        return -1;
    };
    let list = room.start.cast::<*const c_char>();
    // SAFETY: the room is zeroed, aligned to a page, and long enough; nobody else knows of it.
    (0..count).for_each(|at| unsafe { list.add(at).write(argument(at)) });
    use_it(list, argument(elements))
}

unsafe extern "C" fn collect_execl(path: *const c_char, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: called by `execl` alone.
    unsafe { with_list(registers, stack, |list, _| execv(path, list)) }
}

unsafe extern "C" fn collect_execlp(file: *const c_char, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: called by `execlp` alone.
    unsafe { with_list(registers, stack, |list, _| execvp(file, list)) }
}

unsafe extern "C" fn collect_execle(path: *const c_char, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: called by `execle` alone; the environment follows the list's end.
    unsafe { with_list(registers, stack, |list, environment| execve(path, list, environment.cast())) }
}

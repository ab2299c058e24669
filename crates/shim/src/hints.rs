//! What a program may say about its memory: the functions of `include/farmem.h`, which that header looks for by name.
//!
//! They return 0 or a number of `errno.h`, as the functions of POSIX threads do, and leave `errno` alone.

use core::ffi::{c_int, c_void};

use farmem_pager::{Hint, HintError, Pin};

use crate::program;

const ENOMEM: c_int = 12;
const EAGAIN: c_int = 11;
const EINVAL: c_int = 22;

fn answer(result: Result<(), HintError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(HintError::Invalid) => EINVAL,
        Err(HintError::NoMemory) => ENOMEM,
        Err(HintError::Busy) => EAGAIN,
    }
}

fn hint(hint: Hint, address: *const c_void, length: usize) -> c_int {
    answer(program::engine().map_or(Ok(()), |engine| engine.hint(hint, address.addr(), length)))
}

fn pin(pin: Pin, address: *const c_void, length: usize) -> c_int {
    answer(program::engine().map_or(Ok(()), |engine| engine.pin(pin, address.addr(), length)))
}

/// 1 if this process has a pager, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn farmem_is_present() -> c_int {
    c_int::from(program::engine().is_some())
}

/// These bytes will be wanted soon.
#[unsafe(no_mangle)]
pub extern "C" fn farmem_prefetch(address: *const c_void, length: usize) -> c_int {
    hint(Hint::Prefetch, address, length)
}

/// These bytes won't be wanted for long.
#[unsafe(no_mangle)]
pub extern "C" fn farmem_cold(address: *const c_void, length: usize) -> c_int {
    hint(Hint::Cold, address, length)
}

/// These bytes shall be local, and stay so.
#[unsafe(no_mangle)]
pub extern "C" fn farmem_pin(address: *const c_void, length: usize) -> c_int {
    pin(Pin::Pin, address, length)
}

/// These bytes need no longer stay local.
#[unsafe(no_mangle)]
pub extern "C" fn farmem_unpin(address: *const c_void, length: usize) -> c_int {
    pin(Pin::Unpin, address, length)
}

//! `libfarmem.so`: loaded into every process of an application, it starts the pager, follows forks, and hands itself on
//! to the programs that the process starts. The program's own environment stays as it was.
//!
//! Everything here runs on the program's threads; the pager's threads are in `farmem-pager`. `no_std` and without an
//! allocator, so that the compiler keeps the runtime away from the program's memory and locks.
#![no_std]
#![expect(unreachable_pub, reason = "programs reach the hooks by their C names")]

mod environment;
mod exec;
mod fork;
mod global;
mod hints;
mod jvm;
mod libc;
mod memory;
mod namespaces;
mod panic;
mod prefetcher;
mod program;
mod real;
mod thread;

use core::ffi::{c_char, c_int};

/// Runs when the library has been loaded, before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = begin;

extern "C" fn begin(_count: c_int, _arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    real::find_all();
    // SAFETY: glibc passes the environment's array, which nobody else uses yet: only the loader's thread exists.
    let Some(own) = (unsafe { environment::take(environment) }) else { return };
    program::start(own, environment as usize);
}

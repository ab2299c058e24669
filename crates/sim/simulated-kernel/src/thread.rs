//! Threads, and time.

use core::ffi::CStr;

use rand::Rng;

use crate::schedule::{self, Key};
use crate::{Errno, world};

pub use farmem_sys::thread::Class;

/// What a thread that ends unwinds with.
#[derive(Debug)]
pub(crate) struct Exit;

/// Starts `run(value)` on a thread of its own, of the same process.
///
/// # Errors
/// None.
pub fn spawn_with<T: Send + 'static>(
    run: fn(&'static mut T) -> !,
    value: &'static mut T,
) -> Result<u32, Errno> {
    let space = world::with(|world| world.own_space());
    Ok(schedule::spawn(space, move || run(value)))
}

/// Counts handlers.
pub fn name(name: &CStr) {
    if name == c"farmem-fault" {
        world::with(|world| world.count("handlers"));
    }
}

/// Allowed.
pub fn hurry() -> bool {
    true
}

/// The nice value of threads that must not be late.
pub const HURRIED_NICE: i32 = -15;

/// Does nothing.
pub fn set_nice(_thread: u32, _nice: i32) {}

/// Does nothing.
pub fn hurry_session(_is_hurried: bool) {}

/// Allowed.
pub fn set_class(_thread: u32, _class: Class) -> bool {
    true
}

/// How a thread competes for a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheduling;

impl Scheduling {
    /// Allowed.
    pub fn give(self, _thread: u32) -> bool {
        true
    }
}

/// Allowed.
pub fn become_urgent() -> Option<Scheduling> {
    Some(Scheduling)
}

/// The calling thread's number.
pub fn current() -> u32 {
    world::with(|world| world.current)
}

/// The processor that it runs on.
pub fn processor() -> usize {
    0
}

/// Ends the calling thread.
pub fn exit() -> ! {
    std::panic::resume_unwind(Box::new(Exit))
}

/// Lets others go first.
pub fn spin() {
    yield_now();
}

/// Sleeps.
pub fn sleep(nanoseconds: u64) {
    let deadline_ns = world::with(|world| world.now_ns.saturating_add(nanoseconds.max(1)));
    schedule::block(Key::Nothing, Some(deadline_ns));
}

/// Sleeps for so long at most: how long is left to chance.
pub fn sleep_up_to(most_ns: u64) {
    sleep(world::with(|world| world.random.random_range(0..=most_ns)));
}

/// Lets others go first.
pub fn yield_now() {
    schedule::point();
}

/// Simulated time, which a look at the clock takes as well.
pub fn now_ns() -> u64 {
    world::with(|world| {
        world.now_ns += 50;
        world.now_ns
    })
}

/// As if each thread had used half of the time.
pub fn cpu_ns() -> u64 {
    now_ns() / 2
}

/// As if the program had used much of it.
pub fn process_cpu_ns() -> u64 {
    now_ns()
}

//! What the kernel says about processes and threads.

use farmem_page::{PageCount, PageRange};

use crate::subject::objects::objects;
use crate::{Errno, schedule, thread, world};

/// Figures of the calling process's memory.
#[derive(Debug)]
pub struct Statm {
    space: usize,
}

impl Statm {
    /// Opens them.
    ///
    /// # Errors
    /// None.
    pub fn open() -> Result<Self, Errno> {
        Ok(Self { space: world::with(|world| world.own_space()) })
    }

    /// Anonymous pages that have a frame.
    ///
    /// # Errors
    /// None.
    pub fn resident_anonymous(&self) -> Result<PageCount, Errno> {
        if let Some(objects) = objects() {
            return objects.resident();
        }
        schedule::point();
        Ok(world::with(|world| world.spaces[self.space].resident()))
    }
}

/// The threads of the calling process.
#[derive(Debug)]
pub struct Threads;

impl Threads {
    /// Opens the list.
    ///
    /// # Errors
    /// None.
    pub fn open() -> Result<Self, Errno> {
        Ok(Self)
    }

    /// Visits nobody: no thread here has memory that the kernel writes of its own accord.
    ///
    /// # Errors
    /// None.
    pub fn each(&self, _visit: impl FnMut(u32)) -> Result<(), Errno> {
        Ok(())
    }

    /// Never.
    pub fn is_in_system_call(&self, _thread: u32) -> Option<bool> {
        Some(false)
    }

    /// Watches a thread.
    pub fn watch(&self, thread: u32) -> Option<WatchedThread> {
        Some(WatchedThread { thread })
    }
}

/// A thread whose whereabouts are asked for.
#[derive(Debug)]
pub struct WatchedThread {
    thread: u32,
}

impl WatchedThread {
    /// Its number.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Where it runs.
    pub fn processor(&self) -> Option<u32> {
        Some(0)
    }
}

/// None: no thread here has one.
pub fn control_block(_thread: u32) -> Option<PageRange> {
    None
}

/// The calling process's number.
pub fn own_number() -> u32 {
    world::with(|world| world.own_space() as u32 + 1)
}

/// Does nothing: nobody here asks for that.
pub fn kill(_number: u32) {}

/// The pager can't go on: the run ends, and says so.
pub fn kill_self() -> ! {
    world::with(|world| world.fail("the pager has ended the process"));
    schedule::wake_all();
    thread::exit()
}

//! A pager comes to a program from outside: one of its threads is stopped for a moment and made to fork a
//! process that has the program's memory and nothing else of it, the puppet; all the rest is made by the
//! puppet, and the pager itself runs here.
//!
//! 1. [`threads`]: which thread is stopped, so that the program can't tell.
//! 2. [`injection`]: calls that another thread is made to make.
//! 3. [`puppet`]: the puppet comes into being, and gets what it needs.
//!    Where that lies, [`place`] says. A call that the stop has cut short goes on ([`unfinished`]), and so
//!    does one that waits ([`waiting`]); when it has ended, [`stops`] says so.
//!    What was made in the program for a moment, or for nothing, ends as [`end`] says.
//! 4. [`filter`]: the puppet gives up what it doesn't need, for ever.
//! 5. [`pager`]: the pager begins, and goes on until the program ends or becomes another one.
//! 6. [`children`]: forked children, which their parent's pager serves at first, get pagers of their own.
//! 7. [`java`]: how a Java VM in the program writes its references.
//! 8. [`shared`]: the pager of what processes share.
#![forbid(unsafe_code)]

mod children;
mod end;
mod filter;
mod injection;
mod java;
pub mod pager;
mod place;
mod puppet;
pub mod shared;
mod stops;
mod threads;
mod told;
mod unfinished;
mod waiting;

pub use told::{has_page_table_open, is_narrow};

use std::io;

use farmem_sys::Errno;

/// Why a program can't be attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It has ended, or is ending.
    #[error("it has ended")]
    Ended,
    /// Somebody traces it.
    #[error("it is traced by process {0}; end that, and attach again")]
    Traced(u32),
    /// None of its threads came to a place where it can be stopped unnoticed.
    #[error("none of its threads could be stopped")]
    Busy,
    /// Its code isn't of 64 bits.
    #[error("it is a 32-bit program")]
    Narrow,
    /// What its threads make begins in other namespaces than their own.
    #[error("its children begin in other PID or time namespaces than its own")]
    Apart,
    /// It asks the kernel for its own page table.
    #[error(
        "it has its page table open (/proc/self/pagemap), where what is far counts as neither present nor written"
    )]
    Looking,
    /// A pager of another application is there.
    #[error("another application manages it")]
    Managed,
    /// Its filters of system calls forbid what a pager needs.
    #[error("its filter of system calls forbids futex, ioctl or madvise")]
    Filtered,
    /// What the kernel refuses.
    #[error("the kernel refuses {what}: {errno}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// What the kernel says about it can't be read.
    #[error("cannot read what the kernel says about it: {0}")]
    Unreadable(#[from] io::Error),
    /// No pager begins.
    #[error("no pager could be started: {0}")]
    Pager(&'static str),
}

impl AttachError {
    fn refused(what: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| if errno == Errno::SRCH { Self::Ended } else { Self::Refused { what, errno } }
    }

    /// Whether it may go better later.
    pub fn is_for_now(&self) -> bool {
        match self {
            Self::Traced(_) | Self::Busy | Self::Looking => true,
            Self::Refused { errno, .. } => matches!(*errno, Errno::AGAIN | Errno::NOMEM | Errno::BUSY),
            _ => false,
        }
    }
}

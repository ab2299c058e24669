//! What the program says of its memory, left in its mailbox.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use farmem_mailbox::{Bytes, Kind, Mailbox, at};

use crate::home;
use crate::kernel;

const EAGAIN: c_int = 11;
const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

/// Whoever waits looks so often whether the pager is still there.
const NAP_NS: u64 = 100_000_000;
/// Naps in which the pager gives no sign of life, or in which others pin.
const PATIENCE: u32 = 100;
/// Pagers that may come and go while one call waits.
const MOST_PAGERS: u32 = 16;

/// What [`at::LOCK`] may be.
const FREE: u64 = 0;
const TAKEN: u64 = 1;
const WAITED_FOR: u64 = 2;

pub(crate) fn is_present() -> bool {
    home::mailbox().is_some_and(|mailbox| mailbox.pager().is_some())
}

pub(crate) fn hint(kind: Kind, start: *const c_void, length: usize) -> c_int {
    let Some(mailbox) = home::mailbox() else { return 0 };
    let is_present = mailbox.pager().is_some();
    match Bytes::checked(start.addr() as u64, length as u64) {
        None => if_present(is_present, EINVAL),
        Some(bytes) if bytes.length == 0 || mailbox.push(kind, bytes) => 0,
        // Those that were kept are enough for a pager that comes later.
        Some(_) => if_present(is_present, EAGAIN),
    }
}

fn if_present(is_present: bool, answer: c_int) -> c_int {
    if is_present { answer } else { 0 }
}

pub(crate) fn pin(is_unpin: bool, start: *const c_void, length: usize) -> c_int {
    let Some(mailbox) = home::mailbox() else { return 0 };
    let Some(bytes) = Bytes::checked(start.addr() as u64, length as u64) else {
        return if_present(mailbox.pager().is_some(), EINVAL);
    };
    if bytes.length == 0 {
        return 0;
    }
    if !lock(mailbox) {
        return EAGAIN;
    }
    let answer = pin_alone(mailbox, is_unpin, bytes);
    let word = mailbox.word(at::LOCK);
    if word.swap(FREE, Ordering::AcqRel) == WAITED_FOR {
        kernel::wake(word);
    }
    answer
}

/// `false` when others pin for too long.
fn lock(mailbox: Mailbox<'_>) -> bool {
    let word = mailbox.word(at::LOCK);
    if word.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        return true;
    }
    for _ in 0..PATIENCE {
        if word.swap(WAITED_FOR, Ordering::AcqRel) == FREE {
            return true;
        }
        kernel::wait(word, WAITED_FOR, NAP_NS);
    }
    false
}

/// Under the lock.
fn pin_alone(mailbox: Mailbox<'_>, is_unpin: bool, bytes: Bytes) -> c_int {
    for _ in 0..MOST_PAGERS {
        let Some(pager) = mailbox.pager() else {
            if !mailbox.note(is_unpin, bytes) {
                return EAGAIN;
            }
            // One that has come meanwhile may have looked before.
            if mailbox.pager().is_none() {
                return 0;
            }
            continue;
        };
        let number = mailbox.ask(is_unpin, bytes);
        kernel::wake(mailbox.word(at::ASKED));
        match wait_for_answer(mailbox, pager, number) {
            Waited::Answered(true) => {
                // For the next pager. Where there is no room for it, only this one knows of it.
                let _ = mailbox.note(is_unpin, bytes);
                return 0;
            }
            Waited::Answered(false) => return ENOMEM,
            Waited::Gone => {}
            Waited::Stuck => return EAGAIN,
        }
    }
    EAGAIN
}

enum Waited {
    Answered(bool),
    /// The pager is there no more, or another one is.
    Gone,
    /// It gives no sign of life.
    Stuck,
}

fn wait_for_answer(mailbox: Mailbox<'_>, pager: u64, number: u64) -> Waited {
    let beat = || mailbox.word(at::BEAT).load(Ordering::Relaxed);
    let (mut last, mut still) = (beat(), 0);
    loop {
        let before = mailbox.word(at::ANSWER).load(Ordering::Acquire);
        if let Some(is_done) = mailbox.answer(number) {
            return Waited::Answered(is_done);
        }
        if mailbox.pager() != Some(pager) {
            return Waited::Gone;
        }
        kernel::wait(mailbox.word(at::ANSWER), before, NAP_NS);
        let now = beat();
        still = if now == last { still + 1 } else { 0 };
        last = now;
        if still == PATIENCE {
            return Waited::Stuck;
        }
    }
}

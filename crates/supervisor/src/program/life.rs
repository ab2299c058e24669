//! The program's life: which process it is, how the supervisor learns of its end, and what it has cost.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use rustix::event::PollFd;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

use crate::program::end::End;
use crate::program::foreground::Caller;

/// What the program is to the supervisor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relation<'a> {
    /// Its child.
    Child,
    /// The process that was called.
    Caller(&'a Caller),
    /// A process that ran already.
    Found,
}

/// The program.
#[derive(Debug)]
pub(crate) struct Life<'a> {
    process: Pid,
    relation: Relation<'a>,
    /// From then on its number may be somebody else's. Of one that ran already nobody tells.
    has_ended: bool,
    began: Instant,
    /// Processor time that was known when the supervisor went to the background.
    cpu_before: Duration,
}

impl<'a> Life<'a> {
    /// Of a process that has begun then.
    pub(crate) fn new(process: Pid, relation: Relation<'a>, began: Instant) -> Self {
        let has_ended = matches!(relation, Relation::Found);
        Self { process, relation, has_ended, began, cpu_before: Duration::ZERO }
    }

    pub(crate) fn number(&self) -> u32 {
        self.process.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether the program is the supervisor's child.
    pub(crate) fn is_child(&self) -> bool {
        matches!(self.relation, Relation::Child)
    }

    /// Whether it is the process that was called.
    pub(crate) fn is_caller(&self) -> bool {
        matches!(self.relation, Relation::Caller(_))
    }

    /// Whether it ran already.
    pub(crate) fn is_found(&self) -> bool {
        matches!(self.relation, Relation::Found)
    }

    /// Whether this is the program's number, and it lives.
    pub(crate) fn holds(&self, number: u32) -> bool {
        !self.has_ended && self.number() == number
    }

    /// The process that signals to the supervisor are meant for. One that was called gets them by itself.
    pub(crate) fn hears_signals(&self) -> Option<Pid> {
        (!self.has_ended && !self.is_caller()).then_some(self.process)
    }

    /// What becomes readable when the program ends, where no signal tells. It stays readable for ever, so it
    /// is watched no longer than the program lives.
    pub(crate) fn watch(&self) -> Option<PollFd<'_>> {
        match self.relation {
            Relation::Caller(caller) if !self.has_ended => Some(caller.watch()),
            _ => None,
        }
    }

    /// Whether the program has ended, and how. `note` is told of all others that have ended, as by
    /// [`reap_orphans`].
    pub(crate) fn reap(&mut self, mut note: impl FnMut(u32, Option<i32>)) -> Option<End> {
        if let Relation::Caller(caller) = self.relation {
            reap_orphans(note);
            self.has_ended = caller.has_ended();
            return self.has_ended.then_some(End::Unseen);
        }
        while let Ok(Some((child, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if child != self.process {
                tell(child, status, &mut note);
                continue;
            }
            if let Some(end) =
                status.exit_status().map(End::Exited).or(status.terminating_signal().map(End::Signalled))
            {
                self.has_ended = true;
                return Some(end);
            }
            // A shell at a terminal waits for the job, and wants to see that it was stopped. It lets the
            // whole job go on. Elsewhere whoever stops the program lets the program alone go on: its
            // supervisor would stay stopped for ever.
            if status.stopped() && has_terminal() {
                let _ = kill(nix::unistd::Pid::this(), Signal::SIGSTOP);
            }
        }
        None
    }

    /// For how long it has run.
    pub(crate) fn wall(&self) -> Duration {
        self.began.elapsed()
    }

    /// Processor time of all of its processes that somebody has waited for.
    pub(crate) fn cpu(&self) -> Duration {
        self.cpu_before + children_cpu()
    }

    /// Keeps the processor time for the supervisor's copy, of which those processes were no children.
    pub(crate) fn keep_cpu(&mut self) {
        self.cpu_before = self.cpu();
    }
}

/// Lets children go that have ended, orphans of the program and pagers: `note` is told the number of each,
/// and the status with which it exited if it did. Whether any child lives.
pub(crate) fn reap_orphans(mut note: impl FnMut(u32, Option<i32>)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((child, status))) => tell(child, status, &mut note),
            Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn tell(child: Pid, status: WaitStatus, note: &mut impl FnMut(u32, Option<i32>)) {
    if !status.stopped() {
        note(child.as_raw_nonzero().get().unsigned_abs(), status.exit_status());
    }
}

/// Whether there is a terminal whose shell controls jobs.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Processor time of all that this process has waited for.
fn children_cpu() -> Duration {
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(Duration::ZERO, |usage| to_duration(usage.user_time()) + to_duration(usage.system_time()))
}

fn to_duration(time: nix::sys::time::TimeVal) -> Duration {
    Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
}

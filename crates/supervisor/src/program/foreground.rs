//! The calling process becomes the program: it keeps its number, its parent, its terminal, its descriptors
//! and its limits, and ends as the program ends. Its supervisor is a process of its own, outside its session,
//! that learns of its end as any unrelated process would.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::{Context, Error, Result, anyhow, bail};
use daemonize::{Daemonize, Outcome, Stdio};
use farmem_sys::OwnedFd;
use farmem_sys::signals::{self, hear_of_children};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::options::Options;
use crate::program::inherited::Inherited;
use crate::program::launch;
use crate::say;

/// Which of the two the calling process is.
pub(crate) enum Part {
    /// The one that was called, and becomes the program.
    Program(Supervisor),
    /// A copy of it that looks after the other one.
    Supervisor(Caller),
}

/// What the supervisor says to the caller: that the program may begin, or, followed by the reason, that it
/// may not.
const BEGIN: u8 = b'B';
const REFUSED: u8 = b'R';
/// What the caller says to the supervisor: that there is no such program after all.
const FAILED: u8 = b'F';

/// The caller, as the supervisor sees it.
#[derive(Debug)]
pub(crate) struct Caller {
    process: Pid,
    ends: OwnedFd,
    link: UnixStream,
}

/// The supervisor, as the caller sees it.
pub(crate) struct Supervisor(UnixStream);

/// Splits the calling process in two. It must have one thread only: the copy has no other.
///
/// # Errors
/// No further process is possible.
pub(crate) fn split() -> Result<Part> {
    let process = rustix::process::getpid();
    let ends = pidfd_open(process, PidfdFlags::empty()).context("cannot watch the program")?;
    Ok(match split_off()? {
        Half::Caller(link) => Part::Program(Supervisor(link)),
        Half::Supervisor(link) => Part::Supervisor(Caller { process, ends, link }),
    })
}

/// One of the two, with its end of the socket between them.
pub(crate) enum Half {
    /// The one that was called.
    Caller(UnixStream),
    /// A copy of it in a session of its own, with nothing of the caller's open but standard error.
    Supervisor(UnixStream),
}

/// Splits the calling process in two. It must have one thread only: the copy has no other.
///
/// # Errors
/// No further process is possible.
pub(crate) fn split_off() -> Result<Half> {
    let (of_caller, of_supervisor) = UnixStream::pair().context("no socket for the supervisor")?;
    // Whoever called may have set that ends of children are ignored. The program gets that as it was.
    hear_of_children()?;
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    let copy = Daemonize::new()
        .working_directory(std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned()))
        .umask(mask.bits())
        .stderr(Stdio::keep())
        .execute();
    match copy {
        Outcome::Parent(Ok(parent)) if parent.first_child_exit_code == 0 => Ok(Half::Caller(of_caller)),
        Outcome::Parent(Ok(_)) => bail!("the supervisor could not begin"),
        Outcome::Parent(Err(error)) => Err(error.into()),
        Outcome::Child(Ok(_)) => {
            Inherited::now().close(None);
            Ok(Half::Supervisor(of_supervisor))
        }
        Outcome::Child(Err(_)) => std::process::exit(1),
    }
}

impl Supervisor {
    /// Runs the program in this process once the supervisor is ready. Returns only if that can't be.
    pub(crate) fn become_program(mut self, options: &Options) -> Error {
        let mut first = [0];
        if self.0.read_exact(&mut first).is_err() {
            return anyhow!("the supervisor has ended before the program began");
        }
        if first[0] != BEGIN {
            let mut answer = Vec::new();
            let _ = self.0.read_to_end(&mut answer);
            return anyhow!("{}", String::from_utf8_lossy(&answer));
        }
        let mut command = launch::command(options);
        signals::hand_on(&mut command);
        let error = command.exec();
        let _ = self.0.write_all(&[FAILED]);
        launch::cannot_start(options, error.into())
    }
}

impl Caller {
    pub(crate) fn process(&self) -> Pid {
        self.process
    }

    /// Lets the program begin, and waits until it has.
    ///
    /// # Errors
    /// There is no such program; the caller says so.
    pub(crate) fn let_begin(&mut self) -> Result<&Self> {
        self.link.write_all(&[BEGIN])?;
        // The other end closes when another program runs in that process, or when it ends.
        let mut answer = Vec::new();
        self.link.read_to_end(&mut answer)?;
        if answer.is_empty() { Ok(self) } else { bail!("there is no such program") }
    }

    /// Says why there will be no program.
    pub(crate) fn refuse(&mut self, reason: &Error) {
        let _ = self.link.write_all(&[REFUSED]);
        let _ = self.link.write_all(format!("{reason:#}").as_bytes());
    }

    /// Whether the program has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut set = [self.watch()];
        poll(&mut set, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// What becomes readable when the program ends.
    pub(crate) fn watch(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.ends.as_fd(), PollFlags::IN)
    }
}

/// The supervisor lets go of the standard error that it shares with the program: whoever reads there waits
/// for its end.
pub(crate) fn leave_standard_error() {
    say::go_to_background();
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
    if let Ok(nowhere) = nowhere {
        let _ = rustix::stdio::dup2_stderr(nowhere);
    }
}

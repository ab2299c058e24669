//! The supervisor's loop, from the start of a program to its end.

use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farmem_store::PoolUsage;
use farmem_sys::OwnedFd;
use farmem_sys::link::listen_at;
use farmem_wire::Address;
use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SocketFlags, accept_with};

use crate::application::Application;
use crate::directory::socket_name;
use crate::injection;
use crate::launch;
use crate::mover;
use crate::notices::Notice;
use crate::options::Options;
use crate::processes::Processes;
use crate::report::{Report, Source};
use crate::signals::Signals;
use crate::watch::Watch;

/// How often the supervisor looks around.
const LOOK: Duration = Duration::from_millis(10);
/// A program reports in before it does anything of its own.
const REPORTING: Duration = Duration::from_secs(2);

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Exited(i32),
    Signalled(Signal),
}

/// Runs the program under supervision until it has ended. The result is the status to exit with; if a signal ended the
/// program, the same signal ends the calling process.
///
/// Processes that the program has left behind go on without a supervisor: who waits for a program in a pipeline waits
/// for that program alone. They keep their pagers, the pool and the disk; nothing is moved to disk any more, and nobody
/// gives back what ended processes have stored.
///
/// # Errors
/// The program could not be started, or the kernel doesn't permit its management; nothing of it is left.
pub fn supervise(options: &Options) -> Result<u8> {
    let library = launch::find_library()?;
    let application = Application::create(options)?;
    let name = socket_name(std::process::id());
    let listener = listen_at(name.as_bytes()).context("cannot listen for the program's processes")?;
    let signals = Signals::take()?;
    let began = Instant::now();
    let address = Address { name: name.as_bytes(), token: application.token }.to_string();
    let child = launch::launch(options, &library, &address, signals.before())?;
    mover::start(application);
    injection::start(application);
    let mut supervisor = Supervisor {
        options,
        application,
        listener,
        signals,
        processes: Processes::new(application, child.id()),
        watch: Watch::new(application),
        program: Pid::from_raw(child.id() as i32),
        began,
    };
    let end = supervisor.run(child);
    supervisor.explain_failures(true);
    supervisor.finish()?;
    Ok(end_as(end))
}

struct Supervisor<'a> {
    options: &'a Options,
    application: Application,
    listener: OwnedFd,
    signals: Signals,
    processes: Processes,
    watch: Watch,
    program: Pid,
    began: Instant,
}

impl Supervisor<'_> {
    fn run(&mut self, _child: Child) -> End {
        loop {
            self.wait_and_hear();
            self.watch.look(&mut self.processes);
            self.mind_the_program(false);
            self.explain_failures(false);
            if let Some(end) = self.reap() {
                // What the program's last processes had to say is in their slots already.
                self.wait_and_hear();
                self.mind_the_program(true);
                return end;
            }
        }
    }

    /// Waits for something to happen, at most until it is time to look around, and deals with it.
    fn wait_and_hear(&mut self) {
        let (ready, has_signal, has_connection) = {
            let keys: Vec<u64> = self.processes.links().map(|(key, _)| key).collect();
            let mut set: Vec<PollFd<'_>> = self
                .processes
                .links()
                .map(|(_, link)| PollFd::from_borrowed_fd(link, PollFlags::IN))
                .collect();
            set.push(PollFd::from_borrowed_fd(self.signals.fd().as_fd(), PollFlags::IN));
            set.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
            if poll(&mut set, Some(&timeout)).is_err() {
                return;
            }
            let is_ready = |place: &PollFd<'_>| !place.revents().is_empty();
            let ready: Vec<u64> =
                keys.iter().zip(&set).filter(|(_, place)| is_ready(place)).map(|(&key, _)| key).collect();
            (ready, is_ready(&set[keys.len()]), is_ready(&set[keys.len() + 1]))
        };
        for key in ready {
            if let Some(query) = self.processes.hear(key) {
                let report = self.report(self.application.pool.usage());
                query.answer(&serde_json::to_string(&report).unwrap_or_default());
            }
        }
        if has_signal {
            self.signals.pass_on(self.program);
        }
        if has_connection {
            while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
                self.processes.accept(socket);
            }
        }
    }

    /// Whether the program has ended, and how.
    fn reap(&self) -> Option<End> {
        match waitpid(self.program, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(_, status)) => Some(End::Exited(status)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(End::Signalled(signal)),
            Ok(WaitStatus::Stopped(_, _)) => {
                // Who stopped the program wants its caller to see that.
                let _ = nix::sys::signal::kill(Pid::this(), Signal::SIGSTOP);
                None
            }
            _ => None,
        }
    }

    /// A program that runs as if there were no Farmem should not do so unnoticed.
    fn mind_the_program(&mut self, has_ended: bool) {
        if !self.processes.has_program_reported && (has_ended || self.began.elapsed() > REPORTING) {
            self.processes.notices.say(Notice::Unreported(self.program.as_raw() as u32));
        }
    }

    fn explain_failures(&mut self, is_last: bool) {
        if is_last {
            // The connection of a process that was killed may be noticed after its end.
            self.wait_and_hear();
        }
        for (process, code) in self.processes.failures.drain(..) {
            let reason = match code {
                1 => "its pager found itself in a state that can't be (a bug: please report it)",
                2 => {
                    "pool and disk are full and its local budget is used up: raise --pool, --disk or --local"
                }
                _ => "the kernel refused what the pager needs; `farmem doctor` may tell why",
            };
            eprintln!("farmem: process {process} was ended: {reason}");
        }
    }

    fn report(&self, usage: PoolUsage) -> Report {
        let cpu = [UsageWho::RUSAGE_CHILDREN]
            .into_iter()
            .filter_map(|who| getrusage(who).ok())
            .map(|usage| to_duration(usage.user_time()) + to_duration(usage.system_time()))
            .sum();
        Report::new(&Source {
            name: &self.options.name,
            process: self.program.as_raw() as u32,
            wall: self.began.elapsed(),
            cpu,
            ledger: self.application.ledger,
            totals: self.processes.sum(),
            started: self.processes.started(),
            usage,
        })
    }

    fn finish(&self) -> Result<()> {
        let report = self.report(self.watch.peak());
        if self.options.summary {
            eprint!("{}", report.summary());
        }
        if let Some(path) = &self.options.stats {
            let text = serde_json::to_string_pretty(&report)? + "\n";
            std::fs::write(path, text).with_context(|| format!("cannot write --stats {}", path.display()))?;
        }
        Ok(())
    }
}

fn to_duration(time: nix::sys::time::TimeVal) -> Duration {
    Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
}

/// The status to exit with, after the same signal as the program's.
fn end_as(end: End) -> u8 {
    match end {
        End::Exited(status) => status as u8,
        End::Signalled(signal) => {
            // One core file is enough.
            let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
            let mut only = SigSet::empty();
            only.add(signal);
            let _ = only.thread_unblock();
            // Rust's runtime handles the first SIGSEGV or SIGBUS, and gives up the handler with it.
            for _ in 0..2 {
                let _ = nix::sys::signal::kill(Pid::this(), signal);
            }
            128 + signal as u8
        }
    }
}

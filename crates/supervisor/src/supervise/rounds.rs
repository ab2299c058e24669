//! The supervisor's rounds: it waits for something to happen, deals with it, and looks around.

use std::os::fd::AsFd;
use std::time::Duration;

use farmem_telemetry::Counter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::processes::Processes;
use crate::processes::attacher::Attacher;
use crate::program::end::End;
use crate::program::life;
use crate::say::say;
use crate::supervise::Supervisor;

/// How often the supervisor looks around.
const LOOK: Duration = Duration::from_millis(50);
/// The same on the way to a budget, which goes by small steps.
const DESCENT_LOOK: Duration = Duration::from_millis(10);

/// What has happened while the supervisor waited.
struct News {
    /// Keys of the connections on which there is something to be read.
    links: Vec<u64>,
    has_signal: bool,
    has_connection: bool,
}

impl Supervisor<'_> {
    /// Until the program's end.
    pub(super) fn run(&mut self) -> End {
        loop {
            self.wait_and_hear();
            self.look();
            self.follow_shrunk();
            self.explain_endings();
            if self.sinks.is_due() {
                let now = self.report();
                self.sinks.follow(now);
            }
            if let Some(end) = self.reap() {
                // What the program's last processes had to say is in their slots already.
                self.hear_last();
                return end;
            }
            if self.has_withdrawn() {
                return End::Unseen;
            }
        }
    }

    /// Waits for something to happen, at most until it is time to look around, and deals with it.
    pub(super) fn wait_and_hear(&mut self) {
        self.hear_within(if self.controller.is_falling() { DESCENT_LOOK } else { LOOK });
    }

    /// The same after the program's end. A program that was called has ended for whoever waits for it,
    /// perhaps until its standard error is closed: then nothing is waited for.
    pub(super) fn hear_last(&mut self) {
        if self.life.is_caller() {
            self.hear_within(Duration::ZERO);
        } else {
            self.wait_and_hear();
        }
    }

    fn hear_within(&mut self, timeout: Duration) {
        let Some(news) = self.await_news(timeout) else { return };
        for key in news.links {
            if let Some(query) = self.processes.hear(key) {
                self.answer(query);
            }
        }
        self.regions.look();
        if news.has_signal {
            self.signals.pass_on(self.life.hears_signals());
        }
        if news.has_connection {
            self.door.let_in(&mut self.processes);
        }
        self.processes.drop_unidentified();
    }

    /// What has happened, when something has or the time is over; `None` when waiting was interrupted.
    fn await_news(&self, timeout: Duration) -> Option<News> {
        let keys: Vec<u64> = self.processes.links().map(|(key, _)| key).collect();
        let mut set: Vec<PollFd<'_>> =
            self.processes.links().map(|(_, link)| PollFd::from_borrowed_fd(link, PollFlags::IN)).collect();
        set.push(PollFd::from_borrowed_fd(self.signals.fd().as_fd(), PollFlags::IN));
        set.push(self.door.watch());
        set.extend(self.life.watch());
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as i64 };
        poll(&mut set, Some(&timeout)).ok()?;
        let is_ready = |place: &PollFd<'_>| !place.revents().is_empty();
        Some(News {
            links: keys.iter().zip(&set).filter(|(_, place)| is_ready(place)).map(|(&key, _)| key).collect(),
            has_signal: is_ready(&set[keys.len()]),
            has_connection: is_ready(&set[keys.len() + 1]),
        })
    }

    /// Looks around.
    pub(super) fn look(&mut self) {
        self.watch.look(&mut self.processes);
        self.controller.follow_program(|| self.processes.sum().get(Counter::StallNs));
    }

    /// A step on the way to a smaller size, if somebody has asked for that.
    pub(super) fn follow_shrunk(&mut self) {
        if self.controller.shrunk().is_some() {
            let condition = self.condition();
            self.controller.follow_shrunk(&condition);
        }
    }

    /// Says why processes were ended.
    pub(super) fn explain_endings(&mut self) {
        for (process, ending) in self.processes.endings.drain(..) {
            let is_disk_failing = self.application.pool.usage().disk_writes_failed > 0;
            let reason = ending.reason(is_disk_failing);
            say(&format!("process {process} was ended: {reason}"));
        }
    }

    /// Whether the program has ended, and how. Orphans that have ended are let go.
    fn reap(&mut self) -> Option<End> {
        let (processes, attacher) = (&mut self.processes, &self.attacher);
        self.life.reap(|number, status| note_ended(processes, attacher, number, status))
    }

    /// After the program's end: whether orphans of its live.
    pub(super) fn has_children(&mut self) -> bool {
        let (processes, attacher) = (&mut self.processes, &self.attacher);
        life::reap_orphans(|number, status| note_ended(processes, attacher, number, status))
    }
}

/// Another child than the program has ended: an orphan of it, or a pager.
fn note_ended(processes: &mut Processes, attacher: &Attacher, number: u32, status: Option<i32>) {
    let had_managed = processes.had_managed(number);
    attacher.ended(number, status, had_managed);
}

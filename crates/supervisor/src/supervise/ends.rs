//! To the program's end, beyond it for processes that it has left behind, and the supervisor's own end.

use std::time::{Duration, Instant};

use crate::program::background::{Role, split};
use crate::program::end::end_as;
use crate::program::foreground;
use crate::say::say;
use crate::supervise::Supervisor;
use crate::threads::side_service::SideService;

/// What begins or ends together with the program's end has done so after this time. Only a program that
/// leaves somebody behind is waited for so long.
const SETTLING: Duration = Duration::from_millis(100);
/// In the background: nobody comes any more when for so long nobody has been there. A process that begins
/// another program is away for a moment.
const LAST: Duration = Duration::from_secs(2);

impl Supervisor<'_> {
    /// To the program's end, and beyond where it leaves somebody behind. The status to exit with.
    pub(super) fn see_through(mut self) -> u8 {
        let end = self.run();
        self.sinks.end_progress();
        self.settle();
        self.explain_last_endings();
        self.sinks.log_end(end, || self.final_report());
        let report = self.final_report();
        self.sinks.finish(&report);
        match self.processes.remain() || self.has_descendants() {
            true => self.hand_on(),
            false => self.conclude(),
        }
        end_as(end)
    }

    /// The same in a process next to the one that was called.
    pub(super) fn see_through_caller(mut self) {
        let end = self.run();
        self.explain_last_endings();
        foreground::leave_standard_error();
        self.settle();
        self.sinks.log_end(end, || self.final_report());
        if self.processes.remain() || self.has_descendants() {
            self.attend();
        }
        self.alongside.stop();
        self.conclude();
    }

    /// The same for processes that ran already.
    pub(super) fn see_through_found(mut self) {
        self.attend();
        self.alongside.stop();
        self.conclude();
    }

    /// Says why processes were ended that have ended together with the program.
    fn explain_last_endings(&mut self) {
        // The connection of a process that was killed may be noticed after its end.
        self.hear_last();
        self.explain_endings();
    }

    /// Lets those who are about to begin or to end do so. A process that is there afterwards has been left
    /// behind.
    fn settle(&mut self) {
        let began = Instant::now();
        while (self.has_children() || self.processes.remain()) && began.elapsed() < SETTLING {
            self.wait_and_hear();
            self.look();
        }
    }

    /// Goes on in the background for processes that the program has left behind. Returns in the process that
    /// was called.
    fn hand_on(&mut self) {
        self.life.keep_cpu();
        self.alongside.stop();
        match split() {
            Ok(Role::Caller) => {}
            Ok(Role::Background) => {
                self.alongside.start(self.application, self.options, &self.controller, &self.attacher);
                self.attend();
                self.conclude();
                std::process::exit(0);
            }
            Err(error) => say(&format!(
                "what the program has left behind goes on without a supervisor, and nothing of it moves to disk any \
                 more: {error}"
            )),
        }
    }

    /// In the background: until the last process has gone.
    fn attend(&mut self) {
        tracing::info!(application = self.options.name, "goes on in the background");
        let mut seen = Instant::now();
        // Below a program that was started here all processes are known. Elsewhere one may come that nobody
        // has seen.
        let last = if !self.life.is_found() { SETTLING } else { LAST };
        while seen.elapsed() < last && !self.has_withdrawn() {
            self.wait_and_hear();
            self.descend();
            self.follow_shrunk();
            self.look();
            self.explain_endings();
            self.has_children();
            // Those without a pager are looked for only when there is nobody else: it means a walk through
            // all of them.
            if self.processes.remain() || seen.elapsed() > last / 2 && self.has_descendants() {
                seen = Instant::now();
            }
        }
        let report = self.final_report();
        self.sinks.finish_background(&report);
    }

    /// After the program's end: whether processes live that it has left behind, with a pager or without.
    fn has_descendants(&self) -> bool {
        !self.has_withdrawn() && !self.attacher.living().is_empty()
    }

    /// From now on all that is far comes back, and pagers leave.
    pub(super) fn leave_processes(&mut self) {
        self.attacher.withdraw();
        self.controller.leave();
        self.is_withdrawing = true;
    }

    /// Whether all has come back, and no pager is there any more.
    pub(super) fn has_withdrawn(&self) -> bool {
        self.is_withdrawing && !self.processes.remain() && !self.attacher.has_pagers()
    }

    /// The last process has gone: nobody needs what is on memory nodes any more, and nothing more happens to
    /// any page.
    fn conclude(&self) {
        if let Some(carrier) = self.application.carrier {
            carrier.leave();
        }
        if let Some(recorder) = self.application.recorder {
            recorder.end();
        }
        self.options.side_services.iter().for_each(SideService::leave);
    }
}

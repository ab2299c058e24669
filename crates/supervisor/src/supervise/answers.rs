//! What the supervisor answers to those who ask: how the application is, and whether its limits become what
//! somebody wants.

use farmem_client::Limits;
use farmem_page::PageCount;
use farmem_telemetry::{ProcessSlot, SlotState};

use crate::injection::Injection;
use crate::limits::room;
use crate::queries::query::{Query, Question};
use crate::reporting::inside;
use crate::supervise::Supervisor;

/// Why an application can't be left.
const REPORTING_AT_END: &str = "its supervisor is its parent, and reports when it has ended; raise its budget instead \
                                (`farmem set NAME local=SIZE`)";

/// Why an application that is being left can't be made small or large.
const LEAVING: &str = "it is being left; wait until it is, and attach to it again";

/// Why another user can't change limits, nor look inside.
const NOT_YOURS: &str = "it belongs to another user; ask that user, or root";

impl Supervisor<'_> {
    /// Answers what somebody asks, at once unless it is for a process to tell.
    pub(super) fn answer(&mut self, query: Query) {
        let refused = match query.question {
            Question::Report => None,
            Question::Holds(process) => return query.answer(&self.holds(process)),
            _ if !query.may_set => Some(NOT_YOURS.to_owned()),
            Question::Processes => return query.answer(&inside::processes(&self.application.ledger)),
            Question::Regions(process) => return self.regions.take(query, process),
            Question::Size => return query.answer(&self.size()),
            Question::Shrink(to) | Question::Grow(to) => {
                let is_to_shrink = matches!(query.question, Question::Shrink(_));
                return match self.change_size(is_to_shrink, to) {
                    Ok(()) => query.answer(&self.size()),
                    Err(reason) => query.refuse(&reason),
                };
            }
            Question::Set(limits) => self.set(limits).err(),
            Question::Withdraw => self.withdraw().err(),
        };
        match refused {
            Some(reason) => query.refuse(&reason),
            None => query.answer(&self.report()),
        }
    }

    /// Whether the process is one of the application's.
    fn holds(&self, process: u32) -> bool {
        let is_it = |slot: &ProcessSlot<'_>| slot.state() != SlotState::Free && slot.process() == process;
        self.application.ledger.slots().any(|slot| is_it(&slot))
            || self.life.holds(process)
            || self.attacher.living().contains(&process)
    }

    /// Changes limits: all of them or none.
    ///
    /// # Errors
    /// A sentence that says why they can't be set.
    fn set(&mut self, limits: Limits) -> Result<(), String> {
        let outcome = self.controller.set(limits);
        match &outcome {
            Ok(()) => tracing::info!(application = self.options.name, ?limits, "limits changed"),
            Err(reason) => tracing::info!(application = self.options.name, reason, "limits refused"),
        }
        outcome
    }

    /// Makes it so small, or as small as is sensible, and remembers how it was; or lets it be so large, or as
    /// large as it was.
    ///
    /// # Errors
    /// A sentence that says why not; then all is as it was.
    fn change_size(&mut self, is_to_shrink: bool, to: Option<PageCount>) -> Result<(), String> {
        if self.is_withdrawing {
            return Err(LEAVING.to_owned());
        }
        self.attacher.see();
        match is_to_shrink {
            true => {
                let condition = self.condition();
                self.controller.shrink(to, &condition)?;
            }
            false => self.controller.grow(to)?,
        }
        tracing::info!(application = self.options.name, is_to_shrink, "size changed");
        Ok(())
    }

    /// Has all that is far brought back, and ends then. Why not, if it can't be.
    fn withdraw(&mut self) -> Result<(), String> {
        if self.life.is_child() {
            return Err(REPORTING_AT_END.to_owned());
        }
        if self.is_withdrawing {
            return Ok(());
        }
        let is_full = self.application.injection == Injection::NoMemory;
        if let Some(reason) = room::refusal(self.application.ledger, is_full) {
            return Err(reason);
        }
        self.leave_processes();
        tracing::info!(application = self.options.name, "far memory is brought back");
        Ok(())
    }
}

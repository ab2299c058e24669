//! On the way of processes that ran already to their budget: word of it to the process that was called, which
//! waits for that.

use farmem_page::PageCount;

use crate::program::foreground;
use crate::program::onlooker::{Onlooker, Standing};
use crate::supervise::Supervisor;

impl Supervisor<'_> {
    /// A step on the way to the budget, and word of it.
    pub(super) fn descend(&mut self) {
        if !self.life.is_found() {
            return;
        }
        self.controller.descend(|| self.attacher.seen().unknown());
        if !self.onlooker.as_ref().is_some_and(Onlooker::is_due) {
            return;
        }
        let standing = self.standing();
        let is_alone = standing.managed == 0 && !self.attacher.has_pagers() && !standing.is_within_budget();
        let Some(onlooker) = &mut self.onlooker else { return };
        let is_over = match standing.refusal.clone().filter(|_| is_alone) {
            Some(refusal) => {
                onlooker.refuse(&format!("nothing can be managed: {refusal}"));
                self.leave_processes();
                true
            }
            None => onlooker.tell(standing, self.controller.is_descending()),
        };
        if is_over {
            self.onlooker = None;
            foreground::leave_standard_error();
        }
    }

    fn standing(&self) -> Standing {
        let (seen, report) = (self.attacher.seen(), self.report());
        let resident = self.application.ledger.resident() + seen.unknown();
        Standing {
            name: report.name,
            process: report.process,
            processes: seen.processes as u64,
            managed: report.processes_managed,
            budget_bytes: report.budget_bytes,
            resident_bytes: resident.bytes().get(),
            far_bytes: PageCount::new(report.far_pages).bytes().get(),
            refusal: seen.refusal,
            is_over: false,
        }
    }
}

//! All that changes the application's limits while it runs, in one hand: what is leased, a change of size,
//! the way down of processes that were attached to, and a budget that follows the program.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use farmem_client::Limits;
use farmem_page::PageCount;
use farmem_wire::host::Terms;

use crate::application::Application;
use crate::limits::descent::Descent;
use crate::limits::lease_client::{self, LeaseClient};
use crate::limits::resize::{Condition, Resize};
use crate::limits::shrink::Shrunk;
use crate::limits::sizing::Sizing;
use crate::options::Options;
use crate::threads::worker::Worker;

/// The controller.
pub(crate) struct Controller {
    application: Application,
    /// Shared with the thread that keeps to the lease.
    lease_client: &'static Mutex<LeaseClient>,
    resize: Resize,
    descent: Option<Descent>,
    /// What the budget follows the program by; without it the budget stays as somebody has set it.
    sizing: Option<Sizing>,
}

impl Controller {
    /// Agrees with the host on what is asked for.
    ///
    /// # Errors
    /// A sentence: there is no broker where one should be, or it can't give that.
    pub(crate) fn begin(application: Application, options: &Options) -> Result<Self> {
        let is_budget_leased = options.sizing.is_none();
        let (name, host, terms) = (&options.name, &options.host, options.terms());
        let lease_client = LeaseClient::begin(application, name, host, terms, is_budget_leased)?;
        Ok(Self {
            application,
            lease_client: Box::leak(Box::new(Mutex::new(lease_client))),
            resize: Resize::new(application),
            descent: None,
            sizing: options.sizing.map(|sizing| Sizing::new(sizing, options.local)),
        })
    }

    /// Starts the thread that keeps to the lease.
    pub(crate) fn start(&self) -> Worker {
        lease_client::start(self.lease_client)
    }

    /// Begins the way down from what processes have that were attached to.
    pub(crate) fn begin_descent(&mut self, resident: PageCount) {
        self.descent = Descent::begin(self.application.ledger, resident);
    }

    /// A step on that way. `unknown` is what the processes have of which the ledger knows nothing.
    pub(crate) fn descend(&mut self, unknown: impl FnOnce() -> PageCount) {
        let ledger = self.application.ledger;
        if let Some(descent) = &mut self.descent
            && !descent.step(ledger, ledger.resident() + unknown())
        {
            self.descent = None;
        }
    }

    /// Whether processes that were attached to are still on that way.
    pub(crate) fn is_descending(&self) -> bool {
        self.descent.is_some()
    }

    /// Whether the budget is on its way down, which goes by small steps.
    pub(crate) fn is_falling(&self) -> bool {
        self.is_descending() || self.resize.is_falling()
    }

    /// A step of a budget that follows the program, when one is due. `stall_ns` is for how long threads of
    /// the application have waited since its start.
    pub(crate) fn follow_program(&mut self, stall_ns: impl FnOnce() -> u64) {
        if let Some(sizing) = self.sizing.as_mut().filter(|sizing| sizing.is_due()) {
            sizing.step(self.application.ledger, stall_ns());
        }
    }

    /// A step on the way to a smaller size, or back where nothing more leaves.
    pub(crate) fn follow_shrunk(&mut self, condition: &Condition) {
        self.resize.follow(condition, &mut locked(self.lease_client));
    }

    /// Changes limits: all of them or none.
    ///
    /// # Errors
    /// A sentence that says why they can't be set.
    pub(crate) fn set(&mut self, limits: Limits) -> Result<(), String> {
        self.resize.set(limits, &mut locked(self.lease_client))?;
        if limits.local.is_some() {
            self.sizing = None;
        }
        Ok(())
    }

    /// Makes it so small, or as small as is sensible, and remembers how it was.
    ///
    /// # Errors
    /// A sentence that says why not; then all is as it was.
    pub(crate) fn shrink(&mut self, to: Option<PageCount>, condition: &Condition) -> Result<(), String> {
        self.resize.shrink(to, condition, &mut locked(self.lease_client), &mut self.sizing)?;
        self.descent = None;
        Ok(())
    }

    /// Lets it be so large, or as large as it was before it was shrunk.
    ///
    /// # Errors
    /// A sentence that says why not; then all is as it was.
    pub(crate) fn grow(&mut self, to: Option<PageCount>) -> Result<(), String> {
        self.resize.grow(to, &mut locked(self.lease_client), &mut self.sizing)?;
        self.descent = None;
        Ok(())
    }

    /// The application is being left: its budget moves no more.
    pub(crate) fn leave(&mut self) {
        self.resize.forget();
        self.descent = None;
    }

    /// What was agreed with the host, and how it stands with the broker, in a word.
    pub(crate) fn lease(&self) -> (Terms, &'static str) {
        let lease_client = locked(self.lease_client);
        (lease_client.terms(), lease_client.standing())
    }

    /// What it was shrunk to, if it was.
    pub(crate) fn shrunk(&self) -> Option<&Shrunk> {
        self.resize.shrunk()
    }

    /// The budget that it is to have.
    pub(crate) fn wanted(&self) -> PageCount {
        let agreed = || self.resize.agreed(&locked(self.lease_client));
        self.shrunk().map_or_else(agreed, Shrunk::wanted)
    }
}

fn locked(lease_client: &Mutex<LeaseClient>) -> MutexGuard<'_, LeaseClient> {
    lease_client.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The lease client of a space: it says what the space needs, ahead of need, and keeps to what the space is
//! leased. It is on no fault's path: a thread of the supervisor looks at the pool's and the ledger's figures
//! a few hundred times a second at most.
//!
//! A lease is carried out by changing two limits that the application's processes read anyway: the pool's,
//! and the local budget. What is above a lower limit leaves by itself, to disk or to far memory; until it
//! has, the space reports that it still holds it.
//!
//! When the broker has gone the space keeps its slabs and looks for a new one. Local memory that it has lent
//! or borrowed is settled after a while: each space then has its own again.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farmem_broker::link_schedule::{LinkSchedule, Shared};
use farmem_broker::{Amounts, LEAST_POOL, LEAST_SLABS, Lease, NO_ANSWER, nobody_listens};
use farmem_page::{ByteCount, PageCount};
use farmem_store::SLAB_BYTES;
use farmem_sys::OwnedFd;
use farmem_telemetry::{Counter, SlotState};
use farmem_wire::host::{Holding, LEASED_SLAB_BYTES, MOST_PAGES, RefusalReason, Terms, packed_name};

use crate::application::Application;
use crate::limits::demand::{Condition, Demand, Shortage};
use crate::limits::lease_source::{Gone, Held, LeaseSource, Word};
use crate::threads::worker::Worker;

const _: () = assert!(SLAB_BYTES as u64 == LEASED_SLAB_BYTES, "what is leased is what the pool is made of");

/// Between two looks while the space swaps.
const BUSY: Duration = Duration::from_millis(4);
/// Between two looks while it doesn't.
const QUIET: Duration = Duration::from_millis(40);
/// Between two looks of a space that has a lease table to itself: its limits change when somebody sets them.
const ALONE: Duration = Duration::from_millis(250);
/// A report that says nothing new is sent after this time, if anything has moved.
const RENEWAL: Duration = Duration::from_secs(1);
/// Between two looks for a broker.
const SEARCH: Duration = Duration::from_millis(200);
/// A broker that has been away for so long won't settle what was lent.
const SETTLEMENT: Duration = Duration::from_secs(3);
/// A broker answers within this time, and has leased what it can.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two counts of the disk's blocks, which are many.
const COUNT: Duration = Duration::from_millis(100);

/// Where leases come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostChoice {
    /// The space has its limits to itself.
    None,
    /// From the broker of this socket.
    At(PathBuf),
}

/// The space's side of its leases.
pub(super) struct LeaseClient {
    application: Application,
    name: String,
    socket: Option<PathBuf>,
    source: Option<LeaseSource>,
    /// Since when it has none, or none that kept it for long.
    lost_at: Instant,
    /// When the latest was found.
    attached_at: Instant,
    searched_at: Instant,
    terms: Terms,
    /// Whether the local budget is as leased; else it follows the program by itself.
    is_budget_leased: bool,
    /// The budget is no less than this, whatever is leased: on its way down it falls as fast as pages leave.
    cushion: PageCount,
    lease: Lease,
    demand: Demand,
    shortage: Shortage,
    /// The last report, when it was made, and what had moved then.
    reported: (Holding, Instant, u64),
    is_confirmed: bool,
    /// Slabs on disk, those that it has room for, and when they were counted.
    on_disk: (u64, u64, Instant),
}

impl LeaseClient {
    /// Finds a source of leases, and waits for the first lease.
    ///
    /// # Errors
    /// A sentence: there is no broker where one should be, or it can't give what is asked for.
    pub(super) fn begin(
        application: Application,
        name: &str,
        choice: &HostChoice,
        terms: Terms,
        is_budget_leased: bool,
    ) -> Result<Self> {
        let now = Instant::now();
        let mut lease_client = Self {
            application,
            name: name.to_owned(),
            socket: None,
            source: None,
            lost_at: now,
            attached_at: now,
            searched_at: now,
            terms,
            is_budget_leased,
            cushion: PageCount::ZERO,
            lease: Lease { serial: 0, amounts: Amounts::default() },
            demand: Demand::new(now),
            shortage: Shortage::default(),
            reported: (Holding::default(), now, 0),
            is_confirmed: true,
            on_disk: (0, 0, now.checked_sub(COUNT).unwrap_or(now)),
        };
        let nothing = Held { amounts: Amounts::default(), movable_slabs: lease_client.count_disk().1 };
        let found = match choice {
            HostChoice::None => None,
            HostChoice::At(socket) => {
                lease_client.socket = Some(socket.clone());
                let uses_nodes = application.carrier.is_some();
                let source = LeaseSource::host(socket, terms, nothing, packed_name(name), uses_nodes)
                    .with_context(|| nobody_listens(socket))?;
                Some(source)
            }
        };
        let capacity = application.pool.capacity().get() / LEASED_SLAB_BYTES;
        lease_client.source = found.or_else(|| LeaseSource::own(capacity, terms, nothing));
        lease_client.weigh();
        if lease_client.source.is_none() {
            bail!("a pool needs at least {} MiB", LEAST_POOL.get() >> 20);
        }
        lease_client.move_in()?;
        Ok(lease_client)
    }

    fn move_in(&mut self) -> Result<()> {
        if !self.is_alone() {
            self.await_answer().map_err(|reason| anyhow::anyhow!(reason))?;
        }
        let began = Instant::now();
        // More comes when there are pages to put there.
        let least = LEAST_SLABS.clamp(1, self.terms.pool_most.max(1));
        self.look();
        while (self.lease.amounts.slabs < least || self.lease.amounts.pages < self.terms.local_own)
            && began.elapsed() < ANSWER
        {
            std::thread::sleep(Duration::from_millis(1));
            self.look();
        }
        if self.lease.amounts.slabs == 0 || self.lease.amounts.pages == 0 {
            bail!("the host's broker has nothing to lease at present; try again, or give --host none");
        }
        Ok(())
    }

    /// Whether no broker has a say.
    pub(super) fn is_alone(&self) -> bool {
        self.source.as_ref().is_some_and(LeaseSource::is_own)
    }

    /// What was agreed.
    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    /// How it stands with a broker, in a word.
    pub(super) fn standing(&self) -> &'static str {
        match &self.source {
            None => "lost",
            Some(source) if source.is_own() => "none",
            Some(_) => "attached",
        }
    }

    /// Whether the budget is what is agreed; else it follows the program.
    pub(super) fn is_budget_leased(&self) -> bool {
        self.is_budget_leased
    }

    /// From now on the budget is no less than this, which need not be leased. What that was before.
    pub(super) fn hold_up(&mut self, cushion: PageCount) -> PageCount {
        std::mem::replace(&mut self.cushion, cushion)
    }

    /// Changes what is agreed. With `is_budget_leased` a budget that has followed the program does so no
    /// more.
    ///
    /// # Errors
    /// A sentence that says why not; then all is as it was.
    pub(super) fn change(&mut self, terms: Terms, is_budget_leased: bool) -> Result<(), String> {
        self.agree(terms, self.is_budget_leased || is_budget_leased)
    }

    /// Changes what is agreed, and whether the budget is as agreed or follows the program.
    ///
    /// # Errors
    /// A sentence that says why not; then all is as it was.
    pub(super) fn agree(&mut self, terms: Terms, is_budget_leased: bool) -> Result<(), String> {
        let answer = match self.source.as_mut().map(|source| source.change(terms)) {
            Some(Ok(Some(Word::Refused(reason, most)))) => Err(refusal(reason, most)),
            Some(Ok(Some(_))) => Ok(()),
            Some(Ok(None)) => self.await_answer(),
            // Without a broker they are what the next one will be asked for.
            Some(Err(Gone)) | None => {
                self.lose();
                Ok(())
            }
        };
        answer?;
        self.terms = terms;
        self.weigh();
        self.is_budget_leased = is_budget_leased;
        self.look();
        // The budget may have followed the program away from a lease that stays.
        self.keep_to(self.lease);
        Ok(())
    }

    fn await_answer(&mut self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < ANSWER {
            match self.source.as_mut().map_or(Err(Gone), LeaseSource::hear) {
                Ok(Some(Word::Accepted)) => return Ok(()),
                Ok(Some(Word::Refused(reason, most))) => return Err(refusal(reason, most)),
                Ok(Some(Word::Lease(lease))) => self.keep_to(lease),
                Ok(Some(Word::LinkSlot(link_slot, memory))) => self.take_link_slot(link_slot, memory),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(Gone) => {
                    self.lose();
                    break;
                }
            }
        }
        Err(NO_ANSWER.to_owned())
    }

    /// One look: hears, obeys, reports. How long to pause afterwards.
    pub(super) fn look(&mut self) -> Duration {
        if self.source.is_none() {
            return self.search();
        }
        loop {
            // Before the lease is kept to, and so before what it says of `held` is confirmed.
            match self.source.as_mut().map_or(Err(Gone), LeaseSource::hear) {
                Ok(Some(Word::Lease(lease))) => self.keep_to(lease),
                Ok(Some(Word::Accepted)) => {}
                Ok(Some(Word::LinkSlot(link_slot, memory))) => self.take_link_slot(link_slot, memory),
                // Of a broker that is new: it has less than the earlier one. What is held stays held.
                Ok(Some(Word::Refused(..))) | Err(Gone) => {
                    self.lose();
                    return SEARCH;
                }
                Ok(None) => break,
            }
        }
        let now = Instant::now();
        self.report(now);
        match (self.is_alone(), self.demand.is_active(now) || !self.is_confirmed) {
            (true, _) => ALONE,
            (_, true) => BUSY,
            (_, false) => QUIET,
        }
    }

    /// From now on the space takes turns with the host's others at links to nodes. When the broker has gone
    /// it keeps its slot until there is another: those who had theirs from the same one go on like that.
    fn take_link_slot(&self, link_slot: usize, memory: OwnedFd) {
        // Memory that is no schedule is left alone: the space goes on by itself.
        if let (Some(carrier), Ok(memory)) = (self.application.carrier, Shared::attach(memory)) {
            carrier.sharing().take_link_slot(&Arc::new(LinkSchedule::new(memory)), link_slot);
        }
    }

    /// Tells whoever shares links how much the space weighs.
    fn weigh(&self) {
        if let Some(carrier) = self.application.carrier {
            carrier.sharing().set_weight(self.terms.weight);
        }
    }

    fn note_shortage(&self, is_short: bool) {
        self.application.is_pool_short.store(is_short, Ordering::Release);
    }

    fn lose(&mut self) {
        self.source = None;
        let now = Instant::now();
        // One that drops the space time and again is none: the time without a broker goes on.
        if now.duration_since(self.attached_at) > SETTLEMENT {
            self.lost_at = now;
        }
        self.searched_at = now;
    }

    /// Looks for a new broker.
    fn search(&mut self) -> Duration {
        let now = Instant::now();
        let condition = self.condition();
        self.demand.look(now, &condition, &self.terms);
        // Nobody gives more. A space that fills no more of it can keep what there is where it is.
        self.note_shortage(self.demand.is_active(now));
        if self.is_budget_leased && now.duration_since(self.lost_at) > SETTLEMENT {
            self.application.ledger.set_budget(PageCount::new(self.terms.local_own).max(self.cushion));
        }
        if let Some(socket) = self.socket.clone()
            && now.duration_since(self.searched_at) >= SEARCH
        {
            self.searched_at = now;
            let amounts = Amounts {
                slabs: condition.pool_used.max(condition.pool_leased),
                pages: condition.budget.get(),
            };
            let held = Held { amounts, movable_slabs: condition.pool_movable };
            let uses_nodes = self.application.carrier.is_some();
            if let Ok(source) =
                LeaseSource::host(&socket, self.terms, held, packed_name(&self.name), uses_nodes)
            {
                self.source = Some(source);
                self.attached_at = now;
                self.lease = Lease { serial: 0, amounts };
                self.is_confirmed = false;
                return BUSY;
            }
        }
        SEARCH
    }

    fn keep_to(&mut self, lease: Lease) {
        self.lease = lease;
        self.is_confirmed = false;
        let Amounts { slabs, pages } = lease.amounts;
        // Refused only where the pool can't be so large or so small; then the space holds less than it may,
        // or one slab.
        let capacity = self.application.pool.capacity().get();
        let limit = (slabs.max(1) * LEASED_SLAB_BYTES).min(capacity);
        let _ = self.application.pool.set_limit(ByteCount::new(limit));
        if self.is_budget_leased {
            self.application.ledger.set_budget(PageCount::new(pages).max(self.cushion));
        }
    }

    fn report(&mut self, now: Instant) {
        let condition = self.condition();
        let mut holding = self.demand.look(now, &condition, &self.terms);
        if self.is_alone() {
            // Nobody else wants it.
            holding.pool_wanted = self.terms.pool_most.max(holding.pool_needed);
            (holding.local_needed, holding.local_wanted) = (self.terms.local_own, self.terms.local_own);
        }
        let (leased, most) = (self.lease.amounts.slabs, self.terms.pool_most);
        let is_short = self.is_alone() || self.shortage.look(now, &holding, leased, most);
        self.note_shortage(is_short);
        let (before, at, moved) = self.reported;
        let is_due = !self.is_confirmed
            || is_news(&before, &holding, self.lease.amounts)
            || now.duration_since(at) > RENEWAL && moved != condition.moved_pages;
        if !is_due {
            return;
        }
        let sent = self
            .source
            .as_mut()
            .map_or(Err(Gone), |source| source.report(self.lease.serial, holding, condition.moved_pages));
        if sent.is_err() {
            return self.lose();
        }
        self.reported = (holding, now, condition.moved_pages);
        self.is_confirmed =
            holding.pool_held <= self.lease.amounts.slabs && holding.local_held <= self.lease.amounts.pages;
        if self.is_alone() {
            while let Some(Ok(Some(Word::Lease(lease)))) = self.source.as_mut().map(LeaseSource::hear) {
                self.keep_to(lease);
            }
        }
    }

    fn condition(&mut self) -> Condition {
        let (disk_used, pool_movable) = self.count_disk();
        let Application { ledger, pool, .. } = self.application;
        let living = || ledger.slots().filter(|slot| slot.state() != SlotState::Free);
        let sum = |counters: &[Counter]| {
            living().map(|slot| counters.iter().map(|&counter| slot.get(counter)).sum::<u64>()).sum::<u64>()
        };
        Condition {
            pool_used: pool.slabs_in_memory() as u64,
            pool_leased: self.lease.amounts.slabs,
            pool_movable,
            disk_used,
            resident: possible(ledger.resident()),
            budget: possible(ledger.budget()),
            far: possible(PageCount::new(sum(&[Counter::FarPages]))),
            moved_pages: sum(&[Counter::Evicted, Counter::Fetches, Counter::Prefetched, Counter::SwappedIn]),
            fetched_pages: sum(&[Counter::Fetches]),
        }
    }

    /// Slabs that are away, and how many more could be.
    fn count_disk(&mut self) -> (u64, u64) {
        let (used, free, at) = self.on_disk;
        let is_nowhere = self.application.disk.is_none() && self.application.carrier.is_none();
        if is_nowhere || at.elapsed() < COUNT {
            return (used, free);
        }
        let (used, free) = self.application.pool.away_slabs();
        self.on_disk = (used as u64, free as u64, Instant::now());
        (used as u64, free as u64)
    }
}

/// The ledger is the program's to write, so anything may be in it.
fn possible(pages: PageCount) -> PageCount {
    pages.min(PageCount::new(MOST_PAGES / 8))
}

/// Whether a broker should hear of it at once: more is wanted than is leased, or it has changed by a
/// sixteenth.
fn is_news(before: &Holding, now: &Holding, lease: Amounts) -> bool {
    let differs = |before: u64, now: u64, least: u64| before.abs_diff(now) > before.max(now) / 16 + least;
    let is_short = |wanted: u64, before: u64, leased: u64| wanted > leased && wanted > before;
    is_short(now.pool_needed, before.pool_needed, lease.slabs)
        || is_short(now.local_needed, before.local_needed, lease.pages)
        || differs(before.pool_wanted, now.pool_wanted, 16)
        || differs(before.local_wanted, now.local_wanted, 256)
        || differs(before.pool_movable, now.pool_movable, 64)
}

fn refusal(reason: RefusalReason, most: u64) -> String {
    match reason {
        RefusalReason::Pool => format!(
            "the host's broker can guarantee {} MiB of its pool at most; ask for less with --pool, or give --host none",
            (most * LEASED_SLAB_BYTES) >> 20
        ),
        RefusalReason::Local => format!(
            "the host's broker has {} MiB of local memory that is nobody's; give --local less, or --host none",
            PageCount::new(most).bytes().get() >> 20
        ),
        RefusalReason::Spaces => {
            "the host's broker has as many spaces as it can have; give --host none".to_owned()
        }
    }
}

/// The thread that looks.
pub(super) fn start(lease_client: &'static Mutex<LeaseClient>) -> Worker {
    Worker::start(move || match lease_client.lock() {
        Ok(mut lease_client) => lease_client.look(),
        Err(poisoned) => poisoned.into_inner().look(),
    })
}

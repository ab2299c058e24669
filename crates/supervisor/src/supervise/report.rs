//! What the supervisor knows of the application, put together from all who know a part of it.

use farmem_client::Report;
use farmem_client::Size;
use farmem_page::PageCount;
use farmem_store::PoolUsage;
use farmem_telemetry::Counter;

use crate::limits::resize::Condition;
use crate::limits::shrink::Shrunk;
use crate::reporting::report::{Source, report};
use crate::supervise::Supervisor;

impl Supervisor<'_> {
    /// How it is at this moment.
    pub(super) fn report(&self) -> Report {
        self.report_with(self.application.pool.usage())
    }

    /// Totals as they are, the pool as it was when it held most.
    pub(super) fn final_report(&self) -> Report {
        let now = self.application.pool.usage();
        self.report_with(PoolUsage {
            disk_writes_failed: now.disk_writes_failed,
            away_reads: now.away_reads,
            buffer_hits: now.buffer_hits,
            fetches: now.fetches,
            fetches_failed: now.fetches_failed,
            slabs_raised: now.slabs_raised,
            ..self.watch.peak()
        })
    }

    fn report_with(&self, usage: PoolUsage) -> Report {
        let (terms, standing) = self.controller.lease();
        let totals = self.processes.sum();
        let seen = self.attacher.seen();
        report(&Source {
            name: &self.options.name,
            managed_by: self.options.managed_by.as_ref(),
            process: self.life.number(),
            wall: self.life.wall(),
            cpu: self.life.cpu(),
            ledger: self.application.ledger,
            absences: self.watch.under_budget(&totals.absences()),
            totals,
            processes: seen.processes as u64,
            started: self.processes.started(),
            apart: seen.distinct(),
            shared: self.attacher.shared(),
            terms,
            standing,
            shrunk_from: self.controller.shrunk().map_or(PageCount::ZERO, Shrunk::budget_before),
            usage,
            nodes: self.application.carrier.map(|carrier| carrier.figures()).unwrap_or_default(),
            links: self.application.carrier.map(|carrier| carrier.sharing().figures()).unwrap_or_default(),
        })
    }

    /// What the application has, by the latest look at its processes.
    pub(super) fn condition(&self) -> Condition {
        let seen = self.attacher.seen();
        Condition {
            processes: seen.processes,
            resident: self.application.ledger.resident() + seen.unknown(),
            evicted: self.processes.sum().get(Counter::Evicted),
            refusal: seen.refusal,
        }
    }

    /// How large it is.
    pub(super) fn size(&self) -> Size {
        let report = self.report();
        let resident = self.application.ledger.resident() + self.attacher.seen().unknown();
        let shrunk = self.controller.shrunk();
        Size {
            budget_bytes: report.budget_bytes,
            wanted_bytes: self.controller.wanted().bytes().get(),
            shrunk_from_bytes: report.shrunk_from_bytes,
            resident_bytes: resident.bytes().get(),
            far_bytes: report.far_bytes(),
            pool_bytes: report.pool_bytes,
            own_bytes: report.own_bytes,
            node_bytes: report.node_bytes,
            disk_bytes: report.disk_bytes,
            is_small: shrunk.is_some_and(|shrunk| shrunk.is_small(resident)),
            reason: shrunk.and_then(Shrunk::reason).map(str::to_owned),
            process: report.process,
            name: report.name,
        }
    }
}

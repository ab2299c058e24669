//! What happens to pages, told to whoever records a trace. Without one a test of a field is all it costs.

use core::sync::atomic::{AtomicU64, Ordering};

use farmem_page::{PageIndex, PageRange};
use farmem_policy::Fault;
use farmem_sys::thread;
use farmem_telemetry::{Header, Ledger, TraceKind, TraceRecord};

use crate::engine::Engine;

#[derive(Debug)]
pub(crate) struct Tracing {
    is_on: bool,
    /// The region that was told last, its ends mixed: regions are told when they change, not for each fault.
    region: AtomicU64,
}

impl Tracing {
    pub(crate) fn new(ledger: Ledger<'_>) -> Self {
        let is_on = ledger.header(Header::IsTraced).load(Ordering::Relaxed) != 0;
        Self { is_on, region: AtomicU64::new(0) }
    }
}

impl Engine {
    /// Something has happened to a page.
    pub(crate) fn trace(&self, kind: TraceKind, page: PageIndex) {
        if self.tracing.is_on {
            self.write_trace(kind, page, 0);
        }
    }

    /// The program has discarded or unmapped pages.
    pub(crate) fn trace_discard(&self, range: PageRange) {
        if self.tracing.is_on {
            self.write_trace(TraceKind::Discard, range.start, count_of(range));
        }
    }

    /// A thread waits for a page, which is stored or has never been touched.
    pub(crate) fn trace_fault(&self, fault: Fault, is_stored: bool) {
        if !self.tracing.is_on {
            return;
        }
        if let Some(region) = self.pages.regions.holding(fault.page) {
            let ends = region.start.get() ^ region.end.get().rotate_left(32);
            if self.tracing.region.swap(ends, Ordering::Relaxed) != ends {
                self.write_trace(TraceKind::Region, region.start, count_of(region));
            }
        }
        let kind = match (is_stored, fault.write) {
            (false, _) => TraceKind::FirstTouch,
            (true, false) => TraceKind::Fault,
            (true, true) => TraceKind::WriteFault,
        };
        self.write_trace(kind, fault.page, fault.thread);
    }

    fn write_trace(&self, kind: TraceKind, page: PageIndex, detail: u32) {
        let slot = self.slot.index() as u16;
        self.ledger.trace().write(TraceRecord { kind, slot, page, detail, time_ns: thread::now_ns() });
    }
}

fn count_of(range: PageRange) -> u32 {
    u32::try_from(range.count().get()).unwrap_or(u32::MAX)
}

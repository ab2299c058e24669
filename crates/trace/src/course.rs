//! A trace as its processes saw it: what each asked for, and what left it, in order.

use std::collections::BTreeMap;

use farmem_page::{PageCount, PageIndex, PageRange};
use farmem_policy::Fault;
use farmem_telemetry::{TraceKind, TraceRecord};

/// A stored page was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The page, the thread, and whether it was to be written.
    pub fault: Fault,
    /// The region that it lies in, as far as known then.
    pub bounds: PageRange,
    /// When.
    pub time_ns: u64,
}

/// What happened next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A stored page was asked for.
    Access(Access),
    /// A page came in that held nothing before.
    Touch(PageIndex),
    /// A page left.
    Left(PageIndex),
    /// The program gave pages up.
    Discarded(PageRange),
}

/// What happened to one process.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// All of it, in order.
    pub steps: Vec<Step>,
    regions: BTreeMap<u64, u64>,
}

impl Course {
    fn bounds(&self, page: PageIndex) -> PageRange {
        let known = self.regions.range(..=page.get()).next_back().filter(|(_, end)| page.get() < **end);
        let (start, end) = known.map_or((page.get(), page.get() + 1), |(start, end)| (*start, *end));
        PageRange::new(PageIndex::new(start), PageIndex::new(end))
    }

    /// A region as it is now replaces what was known of these pages.
    fn set_region(&mut self, range: PageRange) {
        let (start, end) = (range.start.get(), range.end.get());
        self.regions.retain(|&from, &mut to| to <= start || from >= end);
        self.regions.insert(start, end);
    }

    fn add(&mut self, record: TraceRecord) {
        let TraceRecord { kind, page, detail, time_ns, .. } = record;
        let range = match detail {
            u32::MAX => PageRange::new(page, PageIndex::new(1 << 52)),
            count => PageRange::at(page, PageCount::new(count.into())),
        };
        let step = match kind {
            TraceKind::Region => return self.set_region(range),
            // What came ahead counts as asked for when it came: its use left no record.
            TraceKind::Fault | TraceKind::WriteFault | TraceKind::Prefetch => {
                let fault =
                    Fault { page, offset_bytes: 0, thread: detail, write: kind == TraceKind::WriteFault };
                Step::Access(Access { fault, bounds: self.bounds(page), time_ns })
            }
            TraceKind::FirstTouch | TraceKind::Return => Step::Touch(page),
            TraceKind::Evict => Step::Left(page),
            TraceKind::Discard => Step::Discarded(range),
        };
        self.steps.push(step);
    }
}

/// The courses of all processes of a trace, by slot.
pub fn courses(records: impl IntoIterator<Item = TraceRecord>) -> Vec<Course> {
    let mut courses: BTreeMap<u16, Course> = BTreeMap::new();
    for record in records {
        courses.entry(record.slot).or_default().add(record);
    }
    courses.into_values().collect()
}

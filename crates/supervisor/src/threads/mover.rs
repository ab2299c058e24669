//! The thread that moves slabs out of memory, to memory nodes and disk, and back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farmem_store::{BlockFile, Mover, NoNodes, Nodes, NullFile, StepOutcome};
use farmem_sys::thread;

use crate::application::Application;
use crate::carrier::NodeWriter;
use crate::injection::Disk;
use crate::threads::worker::Worker;

const IDLE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(1);
const FULL: Duration = Duration::from_millis(200);
/// Between two batches, of 2 MiB, of slabs that nobody reads: 25 MiB a second leave the disk to threads that
/// wait for it.
const UNREAD: Duration = Duration::from_millis(80);

/// Starts the mover if there is anywhere to move to.
pub(crate) fn start(application: Application) -> Option<Worker> {
    let write_error = application.injection.write_error();
    let mut nodes = application.carrier.map(NodeWriter::new);
    match application.disk {
        Some(file) => Some(run(application, Disk { file, write_error }, nodes)),
        None if nodes.is_some() => Some(run(application, NullFile, nodes.take())),
        None => None,
    }
}

fn run<F: BlockFile + Send + 'static>(
    application: Application,
    file: F,
    mut nodes: Option<NodeWriter>,
) -> Worker {
    let mut mover = Mover::new(application.pool);
    let (mut next, mut lower_at) = (Next::now(), Instant::now());
    Worker::start(move || {
        let pause = match &mut nodes {
            Some(nodes) => {
                let pause = turn(application, &mut mover, &mut next, &file, nodes);
                nodes.tidy();
                lower(application, &mut mover, &mut lower_at, &file, nodes);
                pause
            }
            None => turn(application, &mut mover, &mut next, &file, &mut NoNodes),
        };
        match pause {
            Pause::UntilShort => {
                application.pool.await_shortage(IDLE.as_nanos() as u64);
                Duration::ZERO
            }
            Pause::For(time) => time,
        }
    })
}

/// Brings to disk what nodes that are to be emptied hold and no other has room for.
fn lower<F: BlockFile>(
    application: Application,
    mover: &mut Mover,
    lower_at: &mut Instant,
    file: &F,
    nodes: &mut NodeWriter,
) {
    if Instant::now() < *lower_at {
        return;
    }
    let Some(wanted) = nodes.wanted_on_disk() else { return };
    match mover.lower(application.pool, file, nodes, |block| wanted.contains(&(block as u32))) {
        StepOutcome::Moved { written, .. } => nodes.lowered(written.get()),
        StepOutcome::DiskFailing { retry_after_ms } => {
            *lower_at = Instant::now() + Duration::from_millis(retry_after_ms.into());
        }
        _ => *lower_at = Instant::now() + FULL,
    }
}

/// When slabs are to be brought back next.
struct Next {
    /// Those that are read: at once, but for a while after some could not be.
    raise: Instant,
    unread: Instant,
}

impl Next {
    fn now() -> Self {
        let now = Instant::now();
        Self { raise: now, unread: now }
    }
}

/// What the thread does between two steps.
enum Pause {
    /// Nothing has to leave memory yet: it sleeps until something has, or [`IDLE`] is over.
    UntilShort,
    For(Duration),
}

/// Tells pagers for how long a step out has lasted: storage may pause, and then there is no room before it
/// goes on.
fn while_moving<R>(application: Application, step: impl FnOnce() -> R) -> R {
    application.ledger.set_moving(thread::now_ns());
    let outcome = step();
    application.ledger.set_moving(0);
    outcome
}

/// One step out or back, and what comes before the next.
fn turn<F: BlockFile, N: Nodes>(
    application: Application,
    mover: &mut Mover,
    next: &mut Next,
    file: &F,
    nodes: &mut N,
) -> Pause {
    let is_pool_short = application.is_pool_short.load(Ordering::Acquire);
    let outcome = match is_pool_short {
        true => while_moving(application, || mover.step(application.pool, file, nodes)),
        false => StepOutcome::Idle,
    };
    let now = Instant::now();
    let outcome = match outcome {
        StepOutcome::Idle if now >= next.raise => match mover.raise(application.pool, file, nodes) {
            // What can't be read keeps nothing from leaving memory.
            StepOutcome::DiskFailing { retry_after_ms } => {
                next.raise = now + Duration::from_millis(retry_after_ms.into());
                StepOutcome::Idle
            }
            raised => raised,
        },
        busy => busy,
    };
    if outcome == StepOutcome::Idle && now >= next.unread {
        next.unread = now + UNREAD;
        if let StepOutcome::DiskFailing { retry_after_ms } = mover.raise_unread(application.pool, file, nodes)
        {
            next.unread = now + Duration::from_millis(retry_after_ms.into()).max(UNREAD);
        }
    }
    Pause::For(match outcome {
        StepOutcome::Moved { .. } | StepOutcome::Raised { .. } => Duration::ZERO,
        StepOutcome::Idle if is_pool_short => return Pause::UntilShort,
        StepOutcome::Idle => IDLE,
        StepOutcome::NothingMovable => SOON,
        StepOutcome::Full => FULL,
        StepOutcome::DiskFailing { retry_after_ms } => Duration::from_millis(retry_after_ms.into()),
    })
}

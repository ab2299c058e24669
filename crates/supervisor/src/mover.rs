//! The thread that moves slabs out of memory, to memory nodes and disk, and back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farmem_store::{BlockFile, Mover, NoNodes, Nodes, NullFile, StepOutcome};

use crate::application::Application;
use crate::carrier::NodeWriter;
use crate::injection::Disk;
use crate::worker::Worker;

const IDLE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(1);
const FULL: Duration = Duration::from_millis(200);
/// Between two batches, of 2 MiB, of slabs that nobody reads: 25 MiB a second leave the disk to who waits for it.
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
    let (mut unread_at, mut lower_at) = (Instant::now(), Instant::now());
    Worker::start(move || match &mut nodes {
        Some(nodes) => {
            let pause = turn(application, &mut mover, &mut unread_at, &file, nodes);
            nodes.tidy();
            lower(application, &mut mover, &mut lower_at, &file, nodes);
            pause
        }
        None => turn(application, &mut mover, &mut unread_at, &file, &mut NoNodes),
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

/// One step out or back. How long to pause.
fn turn<F: BlockFile, N: Nodes>(
    application: Application,
    mover: &mut Mover,
    unread_at: &mut Instant,
    file: &F,
    nodes: &mut N,
) -> Duration {
    let outcome = match application.is_pool_short.load(Ordering::Acquire) {
        true => mover.step(application.pool, file, nodes),
        false => StepOutcome::Idle,
    };
    let outcome = match outcome {
        StepOutcome::Idle => mover.raise(application.pool, file, nodes),
        busy => busy,
    };
    let now = Instant::now();
    if outcome == StepOutcome::Idle && now >= *unread_at {
        *unread_at = now + UNREAD;
        // Whatever comes of it, nobody waits for it.
        mover.raise_unread(application.pool, file, nodes);
    }
    match outcome {
        StepOutcome::Moved { .. } | StepOutcome::Raised { .. } => Duration::ZERO,
        StepOutcome::Idle => IDLE,
        StepOutcome::NothingMovable => SOON,
        StepOutcome::Full => FULL,
        StepOutcome::DiskFailing { retry_after_ms } => Duration::from_millis(retry_after_ms.into()),
    }
}

//! The thread that moves slabs to disk, and back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farmem_store::{Mover, StepOutcome};

use crate::application::Application;
use crate::injection::Disk;
use crate::worker::Worker;

const IDLE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(1);
const FULL: Duration = Duration::from_millis(200);
/// Between two batches, of 2 MiB, of slabs that nobody reads: 25 MiB a second leave the disk to who waits for it.
const UNREAD: Duration = Duration::from_millis(80);

/// Starts the mover if there is a disk.
pub(crate) fn start(application: Application) -> Option<Worker> {
    let file = application.disk?;
    let disk = Disk { file, write_error: application.injection.write_error() };
    let mut mover = Mover::new(application.pool);
    let mut unread_at = Instant::now();
    Some(Worker::start(move || {
        let outcome = match application.is_pool_short.load(Ordering::Acquire) {
            true => mover.step(application.pool, &disk),
            false => StepOutcome::Idle,
        };
        let outcome = match outcome {
            StepOutcome::Idle => mover.raise(application.pool, &disk),
            busy => busy,
        };
        let now = Instant::now();
        if outcome == StepOutcome::Idle && now >= unread_at {
            unread_at = now + UNREAD;
            // Whatever comes of it, nobody waits for it.
            mover.raise_unread(application.pool, &disk);
        }
        match outcome {
            StepOutcome::Moved { .. } | StepOutcome::Raised { .. } => Duration::ZERO,
            StepOutcome::Idle => IDLE,
            StepOutcome::NothingMovable => SOON,
            StepOutcome::DiskFull => FULL,
            StepOutcome::DiskFailing { retry_after_ms } => Duration::from_millis(retry_after_ms.into()),
        }
    }))
}

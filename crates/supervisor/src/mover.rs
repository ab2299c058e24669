//! The thread that moves slabs to disk, and back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use farmem_store::{Mover, StepOutcome};

use crate::application::Application;
use crate::injection::Disk;
use crate::worker::Worker;

const IDLE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(1);
const FULL: Duration = Duration::from_millis(200);

/// Starts the mover if there is a disk.
pub(crate) fn start(application: Application) -> Option<Worker> {
    let file = application.disk?;
    let disk = Disk { file, write_error: application.injection.write_error() };
    let mut mover = Mover::new(application.pool);
    Some(Worker::start(move || {
        let outcome = match application.is_pool_short.load(Ordering::Acquire) {
            true => mover.step(application.pool, &disk),
            false => StepOutcome::Idle,
        };
        let outcome = match outcome {
            StepOutcome::Idle => mover.raise(application.pool, &disk),
            busy => busy,
        };
        match outcome {
            StepOutcome::Moved { .. } | StepOutcome::Raised { .. } => Duration::ZERO,
            StepOutcome::Idle => IDLE,
            StepOutcome::NothingMovable => SOON,
            StepOutcome::DiskFull => FULL,
            StepOutcome::DiskFailing { retry_after_ms } => Duration::from_millis(retry_after_ms.into()),
        }
    }))
}

//! The thread that moves full slabs to disk.

use std::thread;
use std::time::Duration;

use farmem_store::{Mover, StepOutcome};

use crate::application::Application;
use crate::injection::Disk;

const IDLE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(1);
const FULL: Duration = Duration::from_millis(200);

/// Starts the mover if there is a disk.
pub(crate) fn start(application: Application) {
    let Some(file) = application.disk else { return };
    let disk = Disk { file, write_error: application.injection.write_error() };
    thread::spawn(move || {
        let mut mover = Mover::new(application.pool);
        loop {
            let pause = match mover.step(application.pool, &disk) {
                StepOutcome::Moved { .. } => continue,
                StepOutcome::Idle => IDLE,
                StepOutcome::NothingMovable => SOON,
                StepOutcome::DiskFull => FULL,
                StepOutcome::DiskFailing { retry_after_ms } => Duration::from_millis(retry_after_ms.into()),
            };
            thread::sleep(pause);
        }
    });
}

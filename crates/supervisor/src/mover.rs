//! The thread that moves full slabs to disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farmem_store::{Mover, StepOutcome};

use crate::application::Application;
use crate::injection::Disk;

const IDLE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(1);
const FULL: Duration = Duration::from_millis(200);

/// The thread.
pub(crate) struct MoverThread {
    thread: JoinHandle<()>,
    is_ending: Arc<AtomicBool>,
}

/// Starts the mover if there is a disk.
pub(crate) fn start(application: Application) -> Option<MoverThread> {
    let file = application.disk?;
    let disk = Disk { file, write_error: application.injection.write_error() };
    let is_ending = Arc::new(AtomicBool::new(false));
    let ending = Arc::clone(&is_ending);
    let thread = thread::spawn(move || {
        let mut mover = Mover::new(application.pool);
        while !ending.load(Ordering::Acquire) {
            let pause = match mover.step(application.pool, &disk) {
                StepOutcome::Moved { .. } => continue,
                StepOutcome::Idle => IDLE,
                StepOutcome::NothingMovable => SOON,
                StepOutcome::DiskFull => FULL,
                StepOutcome::DiskFailing { retry_after_ms } => Duration::from_millis(retry_after_ms.into()),
            };
            thread::park_timeout(pause);
        }
    });
    Some(MoverThread { thread, is_ending })
}

impl MoverThread {
    /// Ends it between two steps, and waits for that. Another one may go on where it was.
    pub(crate) fn stop(self) {
        self.is_ending.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A mover that has panicked has ended as well.
        let _ = self.thread.join();
    }
}

//! A thread of the supervisor that works in small steps, and can be stopped between two of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The thread.
pub(crate) struct Worker {
    thread: JoinHandle<()>,
    is_ending: Arc<AtomicBool>,
}

impl Worker {
    /// Starts it. `step` says how long to pause before it is called again.
    pub(crate) fn start(mut step: impl FnMut() -> Duration + Send + 'static) -> Self {
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&is_ending);
        let thread = thread::spawn(move || {
            while !ending.load(Ordering::Acquire) {
                let pause = step();
                if !pause.is_zero() {
                    thread::park_timeout(pause);
                }
            }
        });
        Self { thread, is_ending }
    }

    /// Ends it between two steps, and waits for that. Another one may go on where it was.
    pub(crate) fn stop(self) {
        self.is_ending.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A worker that has panicked has ended as well.
        let _ = self.thread.join();
    }
}

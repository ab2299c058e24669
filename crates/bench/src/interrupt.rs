//! Being asked to stop: the signals that would end the benchmark are noted instead, so that it can tidy up
//! first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the benchmark was asked to stop.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Notes SIGINT, SIGTERM and SIGHUP from now on; a second one of them ends the process at once.
    pub(crate) fn listen() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag still unset, and sets it; the second finds it
            // set.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    /// An error once the benchmark was asked to stop.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

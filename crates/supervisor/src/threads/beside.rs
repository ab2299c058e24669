//! What runs beside the supervisor, in threads of its own: nothing that the program depends on.
//!
//! The supervisor has one thread only when it splits for the background, so guests are ended before that, and begin again in the copy.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;

use crate::queries::directory::Own;

/// Ends a guest, and waits until its threads have gone.
pub type Ending = Box<dyn FnOnce() + Send>;

/// A guest: how to begin it, and what to do when it never will be again.
#[derive(Clone)]
pub struct Guest {
    begin: Arc<dyn Fn(Own) -> Result<Ending> + Send + Sync>,
    leave: Arc<dyn Fn() + Send + Sync>,
}

impl Guest {
    /// One that is begun so; it may be begun again after its end, in a copy of the calling process. `leave` is called at the end of the
    /// last of these, or when there was none.
    pub fn new(
        begin: impl Fn(Own) -> Result<Ending> + Send + Sync + 'static,
        leave: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self { begin: Arc::new(begin), leave: Arc::new(leave) }
    }

    pub(crate) fn begin(&self, own: Own) -> Result<Ending> {
        (self.begin)(own)
    }

    pub(crate) fn leave(&self) {
        (self.leave)();
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guest")
    }
}

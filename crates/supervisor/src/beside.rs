//! What runs beside the supervisor, in threads of its own: nothing that the program depends on.
//!
//! The supervisor has one thread only when it splits for the background, so guests are ended before that, and begin again in the copy.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;

use crate::directory::Own;

/// Ends a guest, and waits until its threads have gone.
pub type Ending = Box<dyn FnOnce() + Send>;

/// A guest: how to begin it.
#[derive(Clone)]
pub struct Guest(Arc<dyn Fn(Own) -> Result<Ending> + Send + Sync>);

impl Guest {
    /// One that is begun so. It may be begun again after its end.
    pub fn new(begin: impl Fn(Own) -> Result<Ending> + Send + Sync + 'static) -> Self {
        Self(Arc::new(begin))
    }

    pub(crate) fn begin(&self, own: Own) -> Result<Ending> {
        (self.0)(own)
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guest")
    }
}

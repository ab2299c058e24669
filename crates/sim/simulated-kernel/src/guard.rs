//! What keeps pages right, less what a case takes away.

use crate::world;

pub use farmem_sys::guard::Guard;

/// Whether it stands in this run.
pub fn stands(guard: Guard) -> bool {
    world::with(|world| world.plan.without != Some(guard))
}

/// The turn may pass to another thread here.
pub fn crossing() {
    crate::schedule::point();
}

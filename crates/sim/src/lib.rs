//! The pager, simulated: its own sources run in a world in which a seed decides whose turn it is, when the
//! kernel refuses, and what the program does. What each page must hold is known, and compared at every read.
//!
//! One seed is one [`Case`]. [`run`] tells what became of it; [`shrink`] looks for a smaller one that fails
//! too.
#![forbid(unsafe_code)]

mod case;
mod far;
mod operations;
mod run;
mod shared;
mod shrink;
mod supervisor;
mod values;

pub use case::Case;
pub use far::Far;
pub use farmem_simulated_kernel::guard::Guard;
pub use farmem_simulated_kernel::schedule::Outcome;
pub use farmem_telemetry::Counter;
pub use operations::Operation;
pub use run::{counted, run};
pub use shared::run_shared;
pub use shrink::{shrink, shrink_shared};

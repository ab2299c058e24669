//! What `farmem` and `farmem-bench` have in common: how arguments are read, how a command fails, manual pages
//! and completions.
#![forbid(unsafe_code)]

mod failure;
mod generate;
mod parse;
mod programs;
mod start;
mod version;

pub use failure::Failure;
pub use generate::{completions, manual};
pub use parse::{parse_policy, parse_size};
pub use programs::{CALLER, find};
pub use start::{say, start};
pub use version::{commit, version};

//! Farmem compared with the kernel's own swap: one workload, one limit, one run.
//!
//! - [`workload`] is the program that is measured, [`compression`] one of several that are measured side by
//!   side;
//! - [`kernels`] are programs in the manner of COMEX's evaluation, [`readers`] one whose threads want pages
//!   of a memory node;
//! - `peer` turns each kind of kernel swap on for the time that its turn takes;
//! - [`undo`] makes sure that nothing of that stays, however the benchmark ends;
//! - [`faults`] takes turns, and compares;
//! - [`programs`] runs real programs with a part of their memory local;
//! - [`isolation`] runs applications side by side;
//! - [`nodes`] compares memory nodes with bare connections, and far memory on them with pool and disk;
//! - [`prefetch`] runs a program under each policy of prefetching;
//! - [`attach`] measures what pagers that come from outside cost the programs that they come to;
//! - [`steps`] says what each step of a fault cost;
//! - [`scale`] measures whether what a page costs grows with the pool;
//! - [`micro`] measures what the primitives of a pager cost here;
//! - [`all`] runs all of them, keeps each measurement as a [`record`], and makes a report;
//! - [`compare`] says what changed between two sets of records;
//! - [`paper`] says which figures of the papers that answers;
//! - [`markdown`] writes the README's table from records;
//! - [`target`] says what they are to reach.
#![forbid(unsafe_code)]

pub mod all;
pub mod attach;
mod below;
pub mod compare;
pub mod compression;
pub mod faults;
mod host;
mod interrupt;
pub mod isolation;
pub mod kernels;
pub mod markdown;
mod median;
mod member;
pub mod micro;
pub mod nodes;
mod option;
mod own;
pub mod paper;
mod peer;
pub mod prefetch;
pub mod programs;
pub mod readers;
pub mod record;
mod redis;
mod relay;
mod run;
pub mod scale;
mod sources;
pub mod steps;
mod stolen;
mod supervisor;
mod table;
pub mod target;
pub mod undo;
pub mod workload;

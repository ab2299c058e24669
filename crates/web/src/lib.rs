//! What runs under Farmem, for browsers and for Prometheus.
//!
//! - `address` is where to listen, and who may be let in there;
//! - `watch` looks at the applications and keeps a bounded history of them, in a thread of its own: no
//!   request waits for an application;
//! - `state` is what the page shows of that, as JSON: how each application is doing, and why;
//! - `inside` is what it shows of one application when somebody looks closer: processes, and regions of one;
//! - `metrics` is the same for Prometheus, from the descriptions of the figures;
//! - `site` is the HTTP server: the page, its data, metrics, and changes of limits for whoever has the token.
#![forbid(unsafe_code)]
// They panic, which ends the process, when nobody reads there any more.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod address;
mod connections;
mod inside;
mod metrics;
mod site;
mod state;
mod watch;

pub use address::{Address, HostName};
pub use metrics::{Measure, Unit, text as open_metrics};
pub use site::{Change, Measures, Options, Site};

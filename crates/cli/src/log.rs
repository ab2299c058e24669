//! `--log`: what happens, one event a line on standard error, for whoever collects logs.

use std::io;

use clap::ValueEnum;
use farmem::Failure;
use tracing_subscriber::EnvFilter;

/// Chooses what is logged. A program that is run may have a use of its own for it: alone it begins no log.
const FILTER: &str = "RUST_LOG";
const DEFAULT: &str = "info";

/// How events are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Time, urgency, words and fields
    Text,
    /// An object for each
    Json,
}

/// Logs from now on, if that was asked for; what would be said in sentences otherwise is logged as well.
pub(crate) fn begin(format: Option<Format>) -> Result<(), Failure> {
    let Some(format) = format else { return Ok(()) };
    let wanted = std::env::var(FILTER).ok().filter(|wanted| !wanted.is_empty());
    let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or(DEFAULT)).map_err(|error| {
        Failure::Unusable(format!(
            "{FILTER} chooses nothing that can be logged: {error}; write `info` or `debug`"
        ))
    })?;
    let events = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false);
    let begun = match format {
        Format::Text => events.try_init(),
        Format::Json => events.json().flatten_event(true).try_init(),
    };
    begun.map_err(|error| Failure::Unusable(format!("events can't be logged: {error}")))
}

/// Tells something that is no fault: in a sentence, or as an event where these are logged.
pub(crate) fn tell(sentence: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::info!("{sentence}");
    } else {
        farmem::say(sentence);
    }
}

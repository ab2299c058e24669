//! The kernel's kinds of swap, each turned on for as long as its [`Swap`] lives.

mod group;
mod swap;

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

pub(crate) use group::{Group, LocalBytes, UNLIMITED};
pub(crate) use swap::{Kind, PoolUse, Readahead, Swap};

/// Runs one of the system's tools; returns what it prints.
///
/// # Errors
/// When it isn't installed (says so by name) and when it fails (with its own words).
pub(crate) fn tool<'a>(name: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> anyhow::Result<String> {
    let output = Command::new(name)
        .args(arguments)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow::anyhow!("`{name}` is not installed"),
            _ => error.into(),
        })
        .with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}", words.trim().lines().last().unwrap_or("no word why"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

//! Applications that run under farmem now, as `farmem stat` reports them.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::launch::farmem_binary;

/// The figures of the application of that name; `None` when none runs.
///
/// # Panics
/// When `farmem stat` can't be started, or says something that is no list.
#[must_use]
pub fn application(name: &str) -> Option<Value> {
    let output = Command::new(farmem_binary())
        .args(["stat", name, "--json"])
        .stdin(Stdio::null())
        .output()
        .expect("farmem can be started");
    output.status.success().then(|| {
        let list: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list of applications");
        list.into_iter().next().expect("one application")
    })
}

/// A figure of an application that runs; `None` when there is none, or `farmem stat` tells no such number.
///
/// # Panics
/// As [`application`].
#[must_use]
pub fn figure(name: &str, key: &str) -> Option<u64> {
    application(name)?[key].as_u64()
}

/// `farmem set NAME LIMIT=VALUE…`.
///
/// # Panics
/// When it can't be started.
#[must_use]
pub fn set_limits(name: &str, limits: &[&str]) -> Output {
    Command::new(farmem_binary())
        .args(["set", name])
        .args(limits)
        .stdin(Stdio::null())
        .output()
        .expect("farmem can be started")
}

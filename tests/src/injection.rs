//! Failures that tests order.

use std::process::Command;

use crate::launch::farmem_binary;

const VARIABLE: &str = "FARMEM_INJECT";

/// The variable with which `farmem` is started for something to fail. The supervisor's `injection.rs` says
/// what can.
///
/// # Panics
/// When the `farmem` under test takes no such orders.
#[must_use]
pub fn injection(failure: &str) -> (&'static str, &str) {
    let binary = farmem_binary();
    // The variable's name is in those programs that look at it.
    let found = Command::new("grep").args(["--quiet", "--fixed-strings", VARIABLE]).arg(&binary).status();
    assert!(
        found.expect("grep can be started").success(),
        "{} doesn't fail on order, which only a build for tests does: `make build-for-tests`",
        binary.display()
    );
    (VARIABLE, failure)
}

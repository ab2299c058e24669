//! `farmem bench`, and the programs that it runs, are another program, `farmem-bench`: each start of `farmem`
//! would load and relocate what only measures.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use farmem::{CALLER, Failure, find};

use crate::arguments::BenchArguments;

const PROGRAM: &str = "farmem-bench";

/// Becomes that program, with the same arguments; `command` is the one of its commands that was called.
pub(crate) fn pass(command: Option<&str>, arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    let program = find(PROGRAM).ok_or_else(|| {
        Failure::Unusable(
            "benchmarks are in farmem-bench, which is neither next to farmem nor on PATH; install it from the \
             package that has farmem, or build it by `make build`"
                .to_owned(),
        )
    })?;
    let mut process = Command::new(&program);
    process.args(command).args(&arguments.words);
    if let Ok(own) = env::current_exe() {
        process.env(CALLER, own);
    }
    let error = process.exec();
    Err(Failure::Unusable(format!("cannot start {}: {error}; reinstall it", program.display())))
}

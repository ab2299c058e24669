//! Python with numpy: sorting, multiplying, and forked workers.

use farmem_tests::{Launcher, Program, scaled};

crate::at_both_shares!(sort, |launcher| super::run(launcher, "sort", 2_000_000));
crate::at_both_shares!(multiply, |launcher| super::run(launcher, "multiply", 3_600_000));
crate::at_both_shares!(fork_workers, |launcher| super::run(launcher, "fork_workers", 6_000_000));

fn run(launcher: &Launcher, what: &str, elements: u64) -> String {
    let program = Program::new(crate::python())
        .arg(crate::program_source("arrays.py"))
        .arg(what)
        .arg(scaled(elements).to_string())
        .env("OPENBLAS_NUM_THREADS", "2")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    launcher.run(program).success().text().to_owned()
}

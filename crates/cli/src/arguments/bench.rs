//! `farmem bench`, and the programs that it runs: `farmem-bench` knows what they take.

use std::ffi::OsString;

use clap::Args;

/// Measure Farmem compared with the kernel's own swap.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench faults --quick")]
pub(crate) struct BenchArguments {
    /// A benchmark and its options; --help lists them
    #[arg(value_name = "BENCHMARK", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

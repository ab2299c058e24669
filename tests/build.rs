//! Compiles the C programs that the suite runs under the pager.

use std::path::PathBuf;
use std::process::Command;

/// Each is a directory below `programs`, with C files that make one program.
const PROGRAMS: [(&str, &[&str]); 13] = [
    ("address_space", &[]),
    ("attached", &["-static"]),
    ("batches", &[]),
    ("fetches", &[]),
    ("forked", &["-static"]),
    ("static_program", &["-static"]),
    ("old_kernel", &[]),
    ("guest", &["-static"]),
    ("hostile", &["-rdynamic"]),
    ("mailbox", &["-static"]),
    ("resident", &["-static"]),
    ("shared", &["-static"]),
    ("unaware", &["-static"]),
];

fn main() {
    let out_directory = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=../include/farmem.h");
    println!("cargo::rerun-if-changed=programs/memory.h");
    for (program, options) in PROGRAMS {
        let directory = PathBuf::from("programs").join(program);
        println!("cargo::rerun-if-changed={}", directory.display());
        let sources = std::fs::read_dir(&directory)
            .expect("every program has a directory")
            .map(|entry| entry.expect("a directory that can be read").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "c"));
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let binary = out_directory.join(program);
        let status = Command::new(&compiler)
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(options)
            .arg("-o")
            .arg(&binary)
            .args(sources)
            .status();
        match status {
            Ok(status) if status.success() => {}
            other => panic!("{program} was not compiled ({other:?}); `scripts/setup` installs a C compiler"),
        }
        println!("cargo::rustc-env=PROGRAM_{}={}", program.to_uppercase(), binary.display());
    }
}

//! Programs in Java: many passes over objects in the order in which they were made, and a visit of a graph of objects.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use farmem_page::ByteCount;

use super::subject::Subject;

/// A program, and what it is called in the table.
struct Program {
    name: &'static str,
    class: &'static str,
    source: &'static str,
    /// How often it goes over its data.
    rounds: u32,
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "java-regression",
        class: "Regression",
        source: include_str!("java/Regression.java"),
        rounds: 20,
    },
    Program { name: "java-breadth", class: "Breadth", source: include_str!("java/Breadth.java"), rounds: 1 },
];

/// The programs, compiled into `folder`. Their heaps may grow to three times `data`.
///
/// # Errors
/// Without a compiler for Java.
pub(super) fn subjects(folder: &Path, data: ByteCount) -> anyhow::Result<Vec<Subject>> {
    let mut command = Command::new("javac");
    command.arg("-d").arg(folder).stdin(Stdio::null());
    for program in &PROGRAMS {
        let path = folder.join(program.class).with_extension("java");
        std::fs::write(&path, program.source)?;
        command.arg(path);
    }
    let output = command.output().context("javac cannot be started")?;
    if !output.status.success() {
        bail!("javac: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let subject = |program: &Program| {
        let heap = format!("-Xmx{}", data.get() * 3 + (32 << 20));
        let words = ["java", "-XX:+UseG1GC", &heap, "-cp"].map(OsString::from).into_iter();
        let arguments = [program.class.to_owned(), data.get().to_string(), program.rounds.to_string()];
        let command: Vec<OsString> =
            words.chain([folder.as_os_str().to_owned()]).chain(arguments.map(OsString::from)).collect();
        Subject::named(program.name, &command)
    };
    Ok(PROGRAMS.iter().map(subject).collect())
}

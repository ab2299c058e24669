//! `farmem bench` is another program, which is next to `farmem` or on PATH.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::{FARMEM, FARMEM_BENCH, farmem, text};

/// A `farmem` in a folder of its own, with nothing next to it.
struct Alone {
    folder: TempDir,
}

impl Alone {
    fn new() -> Self {
        // On the file system of the build, where no copy is needed.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::hard_link(FARMEM, folder.path().join("farmem")).unwrap();
        Self { folder }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("farmem")
    }

    fn call(&self, words: &[&str], path: &Path) -> Output {
        let mut command = Command::new(self.program());
        command.args(words).env("PATH", path).stdin(Stdio::null()).output().unwrap()
    }
}

/// A program that says what it was called with, and which `farmem` has called it.
fn say_words(folder: &Path) {
    let program = folder.join("farmem-bench");
    fs::write(&program, "#!/bin/sh\nprintf '%s|' \"$FARMEM_PROGRAM\" \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn help_of_the_benchmarks_comes_from_their_program_by_the_name_that_is_called() {
    let (passed, own) =
        (farmem(["bench", "--help"]), Command::new(FARMEM_BENCH).arg("--help").output().unwrap());

    assert!(passed.status.success());
    let help = text(&passed.stdout);
    assert!(help.contains("Usage: farmem bench <COMMAND>") && help.contains("isolation"), "{help}");
    assert_eq!(help, text(&own.stdout));
}

#[test]
fn a_program_on_path_gets_the_words_as_they_are_and_its_status_counts() {
    let (alone, path) = (Alone::new(), TempDir::new().unwrap());
    say_words(path.path());

    for (words, expected) in [
        (&["bench", "faults", "--help", "--", "-x"][..], "faults|--help|--|-x|"),
        (&["bench"], ""),
        (&["workload", "--data", "a b"], "workload|--data|a b|"),
        (&["compression"], "compression|"),
        (&["kernel", "sort"], "kernel|sort|"),
        (&["readers", "-h"], "readers|-h|"),
    ] {
        let output = alone.call(words, path.path());

        assert_eq!(output.status.code(), Some(7), "{words:?}");
        assert_eq!(text(&output.stdout), format!("{}|{expected}", alone.program().display()), "{words:?}");
    }
}

#[test]
fn the_program_next_to_farmem_goes_before_that_on_path() {
    let (alone, path) = (Alone::new(), TempDir::new().unwrap());
    say_words(alone.folder.path());
    fs::write(path.path().join("farmem-bench"), "#!/bin/sh\nexit 8\n").unwrap();
    fs::set_permissions(path.path().join("farmem-bench"), Permissions::from_mode(0o755)).unwrap();

    assert_eq!(alone.call(&["bench", "papers"], path.path()).status.code(), Some(7));
}

#[test]
fn a_benchmark_whose_program_is_missing_is_refused_with_what_brings_it() {
    let (alone, path) = (Alone::new(), TempDir::new().unwrap());

    for command in ["bench", "workload", "compression", "kernel", "readers"] {
        let output = alone.call(&[command, "--help"], path.path());

        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(output.stdout.is_empty(), "{command}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.starts_with("farmem: ") && complaint.contains("package"), "{complaint}");
    }
}

#[test]
fn benchmarks_without_a_farmem_to_measure_are_refused() {
    let (folder, path) = (TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), TempDir::new().unwrap());
    let program = folder.path().join("farmem-bench");
    fs::hard_link(FARMEM_BENCH, &program).unwrap();

    let mut command = Command::new(program);
    command
        .args(["faults", "--quick", "--peer", "native"])
        .env_remove("FARMEM_PROGRAM")
        .env("PATH", path.path());
    let output = command.stdin(Stdio::null()).output().unwrap();

    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.starts_with("farmem: farmem is neither next to farmem-bench"), "{complaint}");
}

//! Bad input gives one sentence, what to do, and a status; nothing is started.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::{FARMEM, farmem, text};

/// Asserts that `farmem` refused, in one sentence on standard error that holds `fragment`, and with this
/// status.
fn assert_refused(output: &Output, status: i32, fragment: &str) {
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{complaint}");
    assert!(output.stdout.is_empty(), "nothing belongs on standard output");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.starts_with("farmem: "), "{complaint}");
    assert!(complaint.contains(fragment), "{complaint}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (words, fragment) in [
        ("", "`farmem --help` lists"),
        ("bench", "`farmem bench --help` lists"),
        ("fly", "unrecognized subcommand 'fly'"),
        ("run", "<PROGRAM>"),
        ("run --", "<PROGRAM>"),
        ("run --locl 1G -- true", "'--local'"),
        ("run --local", "'--local <SIZE|N%|auto>'"),
        ("run --local lots -- true", "write a size as `512M`"),
        ("run --local 0 -- true", "write a size as `512M`"),
        ("run --local -1 -- true", "unexpected argument '-1'"),
        ("run --local 0% -- true", "write a percentage"),
        ("run --local 120% -- true", "write a percentage"),
        ("run --local 4096 -- true", "too small for any program to start"),
        ("run --local 9999T -- true", "more than the"),
        ("run --pool 1.5Q -- true", "write a size as `512M`"),
        ("run --disk :1G -- true", "write a path"),
        ("run --disk /var/tmp/far:1Q -- true", "write a size as `512M`"),
        ("run --disk /no/such/folder/far:1G -- true", "cannot write --disk"),
        ("run --stats /no/such/folder/stats.json -- true", "cannot write --stats"),
        ("run --stats / -- true", "it is a folder"),
        ("run --trace / -- true", "it is a folder"),
        ("run --name a/b -- true", "a name has up to 64 letters"),
        ("run --summary=yes -- true", "unexpected value 'yes'"),
        ("stat --jason", "'--json'"),
        ("top", "needs a terminal"),
        ("top --interval 2", "write a time from 100ms to 1h"),
        ("run --prefetch psychic -- true", "possible values: none, neighbour"),
        ("bench prefetch --policy psychic", "possible values: none, neighbour"),
        ("doctor now", "invalid value 'now' for '[PID]'"),
        ("bench faults --only everything", "possible values: random-read"),
        ("bench faults --peer windows", "possible values: native"),
        ("bench faults --repeat 0", "0 is not in 1..=100"),
        ("workload --threads 0", "0 is not in 1..=64"),
    ] {
        let output = farmem(words.split_whitespace());

        assert_refused(&output, 2, fragment);
    }
}

#[test]
fn a_socket_option_that_names_something_else_leaves_it_as_it_is() {
    let folder = TempDir::new().unwrap();
    let (file, socket) = (folder.path().join("results"), folder.path().join("socket"));
    fs::write(&file, "results").unwrap();
    let _somebody = UnixListener::bind(&socket).unwrap();

    for path in [&file, &socket] {
        let path = path.to_str().unwrap();
        let unix = format!("unix:{path}");
        for (words, fragment) in [
            (&["host", "--socket", path][..], path),
            (&["web", "--listen", &unix], &unix),
            (&["run", "--metrics", &unix, "--", "true"], &unix),
        ] {
            assert_refused(&farmem(words), 2, fragment);
        }
    }

    assert_eq!(fs::read_to_string(&file).unwrap(), "results");
    assert!(UnixStream::connect(&socket).is_ok());
    assert!(!folder.path().join("results.lock").exists());
}

#[test]
fn a_command_whose_output_nobody_reads_says_so() {
    let (read, written) = std::io::pipe().unwrap();
    drop(read);

    let output = Command::new(FARMEM).arg("stat").stdin(Stdio::null()).stdout(written).output().unwrap();

    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.starts_with("farmem: cannot print: ") && complaint.lines().count() == 1, "{complaint}");
}

#[test]
fn a_program_that_is_not_there_is_refused_as_a_shell_would() {
    assert_refused(
        &farmem(["run", "--", "farmem-no-such-program"]),
        127,
        "no program `farmem-no-such-program`",
    );
    assert_refused(&farmem(["run", "--", "/no/such/program"]), 127, "/no/such/program");
}

#[test]
fn an_empty_program_is_refused() {
    assert_refused(&farmem(["run", "--", ""]), 2, "the program's name is empty");
}

#[test]
fn what_may_not_be_executed_is_refused_as_a_shell_would() {
    let folder = tempfile::tempdir().unwrap();
    let plain = written(&folder, "plain", b"hello", 0o644);
    let noise = written(&folder, "noise", b"hello", 0o755);

    assert_refused(&run(&plain), 126, "chmod +x");
    assert_refused(&run(folder.path()), 126, "is a folder");
    assert_refused(&run(&noise), 126, "neither a program nor a script");
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let lost = written(&folder, "lost", b"#!/no/such/interpreter -x\n", 0o755);

    assert_refused(&run(&lost), 127, "asks for /no/such/interpreter");
}

#[test]
fn a_program_for_another_processor_is_refused() {
    const MACHINE_OFFSET: usize = 18;
    const MACHINE_RISCV: u8 = 243;
    let folder = tempfile::tempdir().unwrap();
    let path = program(&folder, "foreign", |bytes| bytes[MACHINE_OFFSET] = MACHINE_RISCV);

    assert_refused(&run(&path), 2, "is not built for");
}

#[test]
fn a_refused_run_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");

    let output =
        farmem(["run".as_ref(), "--stats".as_ref(), stats.as_os_str(), "--".as_ref(), "no-such".as_ref()]);

    assert_eq!(output.status.code(), Some(127));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn run(program: &Path) -> Output {
    farmem(["run".as_ref(), "--".as_ref(), program.as_os_str()])
}

fn written(folder: &TempDir, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

/// A copy of a dynamic program, changed by `change`.
fn program(folder: &TempDir, name: &str, change: impl FnOnce(&mut [u8])) -> PathBuf {
    let mut bytes = fs::read(FARMEM).unwrap();
    change(&mut bytes);
    written(folder, name, &bytes, 0o755)
}

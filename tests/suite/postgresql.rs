//! PostgreSQL: transactions that keep their sums, and queries that sort more than the budget.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use farmem_tests::{Launcher, Program, managed_runner, scaled, wait_for};

crate::at_both_shares!(transactions_and_sorts, super::transactions_and_sorts);

/// The directory of the server's programs, which distributions keep off the path.
fn binaries() -> PathBuf {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|path| path.join("postgres").exists())
        .collect();
    versions.sort();
    versions.pop().expect("PostgreSQL is installed; `scripts/setup` does it")
}

/// The server refuses to run as root; the package made a user for it.
fn as_server_user(program: impl AsRef<Path>) -> Program {
    let path = program.as_ref().as_os_str().to_owned();
    if rustix::process::geteuid().is_root() {
        Program::new("setpriv")
            .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
            .arg(path)
            .env("HOME", "/tmp")
    } else {
        Program::new(path)
    }
}

/// Tables for the transactions, in units of 15 MiB, and shared buffers, in mebibytes.
struct Size {
    tables: u32,
    shared_buffers: u32,
}

pub(crate) fn transactions_and_sorts(launcher: &Launcher) -> String {
    transactions_beside_sorts(launcher, &Size { tables: 2, shared_buffers: 16 })
}

#[test]
fn shared_buffers_of_four_times_the_budget_keep_every_balance() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(24 << 20);
    launcher.let_overshoot();
    let sizes = Size { tables: 6, shared_buffers: 96 };
    let transcript = transactions_beside_sorts(&launcher, &sizes);
    assert_eq!(transcript, transactions_beside_sorts(&Launcher::native(), &sizes));
}

fn transactions_beside_sorts(launcher: &Launcher, sizes: &Size) -> String {
    let binaries = binaries();
    let data = launcher.file("data");
    let directory = launcher.directory().as_os_str().to_owned();
    let tool = |name: &str| {
        as_server_user(binaries.join(name)).env("PGHOST", directory.clone()).env("PGUSER", "tester")
    };
    let query = |text: String| {
        launcher
            .helper(tool("psql").args(["-d", "postgres", "-v", "ON_ERROR_STOP=1", "-qAtc"]).arg(text))
            .text()
            .to_owned()
    };
    let initialise = as_server_user(binaries.join("initdb")).arg("-D").arg(&data);
    launcher.helper(initialise.args([
        "-U",
        "tester",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
    ]));

    let mut socket_directory = OsString::from("unix_socket_directories=");
    socket_directory.push(&directory);
    let server = as_server_user(binaries.join("postgres"))
        .arg("-D")
        .arg(&data)
        .arg("-c")
        .arg(socket_directory)
        .args([
            "-c",
            "listen_addresses=",
            "-c",
            "work_mem=256MB",
            "-c",
            "fsync=off",
            "-c",
            "max_parallel_workers_per_gather=0",
            "-c",
            "jit=off",
        ])
        .arg("-c")
        .arg(format!("shared_buffers={}MB", sizes.shared_buffers));
    let mut running = launcher.start(server);
    let socket = launcher.file(".s.PGSQL.5432");
    running.until("a server that accepts connections", || {
        // The file that names its state says `ready` in its last line.
        let state = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
        (socket.exists() && state.lines().last()?.trim() == "ready").then_some(())
    });

    launcher.helper(tool("pgbench").args(["-i", "-q", "-s", &sizes.tables.to_string(), "postgres"]));
    let mut transcript = String::new();
    let rows = scaled(400_000);
    let sort = format!(
        "select count(*), md5(string_agg(word, '' order by word)) from \
         (select md5(n::text) as word from generate_series(1, {rows}) as n offset 0) as words"
    );
    std::thread::scope(|scope| {
        let sorted = scope.spawn(|| query(sort.clone()));
        launcher.helper(tool("pgbench").args(["-n", "-c", "4", "-j", "1", "-t", "250", "postgres"]));
        transcript += &sorted.join().expect("the query gives a result");
    });
    transcript += &query(
        "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), \
         (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history), \
         (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history), \
         (select count(*) from pgbench_history)"
            .to_owned(),
    );
    assert!(transcript.ends_with("t|t|t|1000\n"), "the balances don't agree: {transcript}");

    let first_line = std::fs::read_to_string(data.join("postmaster.pid")).expect("it is running");
    let server_process: i32 =
        first_line.lines().next().and_then(|line| line.parse().ok()).expect("a process number");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(server_process).expect("a process number"),
        rustix::process::Signal::INT,
    )
    .expect("it is running");
    running.wait().assert_success();
    wait_for("the end of the server's processes", || (!data.join("postmaster.pid").exists()).then_some(()));
    transcript
}

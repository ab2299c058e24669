//! Memory that processes share because one was forked by another is there once, and counts once, also where
//! that was before anybody managed them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use farmem_tests::{assert_in_one_of_three, farmem_binary, figure, managed_runner, wait_for};

use crate::attach_command::attached;
use crate::far_redis::unique;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;
const CHILDREN: u64 = 5;

/// A program whose children read what they share with it. Dropped, it is ended.
struct Forked {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Forked {
    /// One that shares so many mebibytes, and will have so many of its own.
    fn start(mut command: Command, shared: u64, own: u64) -> Self {
        let mut child = command
            .args([shared, CHILDREN, own].map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut forked = Self { child, input, output };
        assert_eq!(forked.hear(), "forked\n");
        forked
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it tells");
        line
    }

    fn go_on(&mut self) {
        self.input.write_all(b"go on\n").expect("it reads");
    }

    fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is a child")
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has a program do all that it does, which `begin` starts under a name. What has left although there was
/// room, and the most that was resident. Counted for each of them, what its processes share would be four
/// times the budget.
fn far_and_peak(begin: impl FnOnce(&str) -> Forked) -> (u64, u64) {
    let name = unique("forked");
    let mut forked = begin(&name);
    wait_for("a pager for each", || (figure(&name, "processes_managed") == Some(1 + CHILDREN)).then_some(()));
    forked.go_on();
    assert_eq!(forked.hear(), "grown\n");
    // Long enough for many rounds of the pagers and several measurements of what is shared.
    std::thread::sleep(Duration::from_secs(1));
    let far = figure(&name, "far_pages").expect("it is told") * 4096;
    // Now each writes all that it shares: a copy for each page.
    forked.go_on();
    let mut peak = 0;
    let status = wait_for("the program's end", || {
        peak = figure(&name, "resident_peak_bytes").unwrap_or(0).max(peak);
        forked.has_ended()
    });
    assert!(status.success() && forked.hear() == "right\n");
    (far, peak)
}

/// A budget is kept by threads that need a core in time.
fn assert_kept(run: impl FnMut() -> (u64, u64)) {
    let is_kept = |&(far, peak): &(u64, u64)| far <= 8 * MIB && peak <= BUDGET + BUDGET / 20 + 16 * MIB;
    assert_in_one_of_three(run, is_kept);
}

#[test]
fn what_was_forked_before_a_pager_came_leaves_only_when_it_is_too_much() {
    if !managed_runner() {
        return;
    }
    assert_kept(|| {
        far_and_peak(|name| {
            let forked = Forked::start(Command::new(env!("PROGRAM_FORKED")), 36, 18);
            attached(name, "64M", &[&forked.child.id().to_string()]);
            forked
        })
    });
}

#[test]
fn what_is_forked_while_a_pager_comes_leaves_only_when_it_is_too_much() {
    if !managed_runner() {
        return;
    }
    assert_kept(|| {
        far_and_peak(|name| {
            let mut command = Command::new(farmem_binary());
            command.args(["run", "--host", "none", "--pool", "1G", "--name", name, "--local", "64M", "--"]);
            command.arg(env!("PROGRAM_FORKED"));
            Forked::start(command, 36, 18)
        })
    });
}

//! The process that was called becomes the program: it is what whoever started it sees, waits for and sends
//! signals to, and its supervisor is none of its surroundings.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use farmem_tests::{Scratch, application, assert_refusal, farmem_binary, managed_runner, wait_for};

use crate::far_redis::{figure, unique};

/// For a program to end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn farmem(name: &str) -> Command {
    farmem_with(name, &[])
}

pub(crate) fn farmem_with(name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(farmem_binary());
    command.args(["run", "--host", "none", "--local", "12M", "--pool", "1G", "--name", name]);
    command.args(more).arg("--");
    command.stdin(Stdio::null());
    command
}

/// Waits for the program, and ends it where it takes too long.
fn end(mut child: Child) -> std::process::ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            return status;
        }
        if began.elapsed() > PATIENCE {
            child.kill().expect("it lives");
            panic!("the program doesn't end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a program says, and how it ended.
pub(crate) fn said(mut command: Command) -> (String, String, std::process::ExitStatus) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("farmem starts");
    let (mut output, mut error) =
        (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let status = end(child);
    let mut texts = [String::new(), String::new()];
    output.read_to_string(&mut texts[0]).expect("text");
    error.read_to_string(&mut texts[1]).expect("text");
    let [output, error] = texts;
    (output, error, status)
}

/// What a program finds out about itself, but for what differs from run to run, or counts for all processes
/// of its user (`SigQ`). Descriptors are listed by the shell itself: one that makes a pipeline, or keeps what
/// a command says, has pipes open for a moment. It reads its own state itself too: while a shell starts a
/// command it blocks signals and hasn't yet set its handlers, and that command may read faster.
const SURROUNDINGS: &str = r#"
echo "parent $PPID; group and session $(cut -d' ' -f5-8 /proc/$$/stat)"
for number in /proc/$$/fd/*; do echo "${number#/proc/$$}"; readlink "$number"; done
while read -r line; do
    case $line in
        Umask* | Threads* | Sig[BCIP]* | Shd* | Seccomp* | NoNew* | Cap* | TracerPid*) echo "$line" ;;
    esac
done < /proc/$$/status
cat /proc/$$/limits /proc/$$/cgroup /proc/$$/oom_score_adj /proc/$$/timerslack_ns /proc/$$/coredump_filter
children=none; read -r children < /proc/$$/task/$$/children; echo "children: $children"
env | grep -v '^_=' | sort
pwd
"#;

#[test]
fn a_program_finds_the_surroundings_that_it_has_without_farmem() {
    if !managed_runner() {
        return;
    }
    let name = unique("surroundings");
    let shell = ["bash", "-c", SURROUNDINGS];
    let mut plain = Command::new(shell[0]);
    plain.args(&shell[1..]).stdin(Stdio::null());
    let mut with = farmem(&name);
    with.args(shell);
    let erase = |text: &str| {
        let pipes = |word: &str| if word.starts_with("pipe:") { "pipe".to_owned() } else { word.to_owned() };
        text.split(' ')
            .map(|words| words.split('\n').map(pipes).collect::<Vec<_>>().join("\n"))
            .collect::<Vec<_>>()
            .join(" ")
    };

    let (without, _, _) = said(plain);
    let (within, errors, status) = said(with);

    // The number of waiting signals is that of the user.
    let lines = |text: &str| {
        erase(text).lines().filter(|line| !line.starts_with("SigQ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (within, without) = (lines(&within), lines(&without));
    let pairs = within.iter().zip(&without).filter(|(within, without)| within != without);
    assert_eq!(pairs.collect::<Vec<_>>(), []);
    assert_eq!(within.len(), without.len(), "{within:?} {without:?}");
    assert_eq!(errors, "");
    assert!(status.success());
}

/// Rust's runtime opens the first three descriptors where they are closed.
#[test]
fn standard_descriptors_that_are_closed_are_closed_for_the_program() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let file = folder.file("open");
    // Each by itself: a list of the folder would be open in the place of one that is closed.
    let lists = format!(
        "for number in 0 1 2; do [ -e /proc/$$/fd/$number ] && list+=$number; done; echo $list > {}; exit 7",
        file.display()
    );
    for (closed, open) in [("<&-", "12\n"), (">&-", "02\n"), ("<&- >&- 2>&-", "\n")] {
        for options in [&[][..], &["--stats", "/dev/null"]] {
            let run = farmem_with(&unique("closed"), options);
            let mut command = Command::new("bash");
            command.args(["-c", &format!("exec \"$@\" {closed}"), "bash"]);
            command.arg(run.get_program()).args(run.get_args()).args(["bash", "-c", &lists]);
            let (output, errors, status) = said(command);
            assert_eq!((output, errors, status.code()), (String::new(), String::new(), Some(7)), "{closed}");
            let found = std::fs::read_to_string(&file).expect("the program has written it");
            assert_eq!(found, open, "{closed}, {options:?}");
        }
    }
}

/// Fills more than its budget, closes what it was given as number 7 when it is told to, and goes on.
const CLOSES: &str = r"
import os, sys
memory = bytearray(48 << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1 + at // 4096 % 250
print('filled', flush=True)
sys.stdin.readline()
os.close(7)
print(sum(memory[at] for at in range(0, len(memory), 4096)), flush=True)
sys.stdin.readline()
";

/// The supervisor was started with the same descriptors as the program, and pagers are started by it.
#[test]
fn a_pipe_that_the_program_closes_is_closed_while_it_runs_on() {
    if !managed_runner() {
        return;
    }
    for options in [&[][..], &["--stats", "/dev/fd/8"]] {
        let name = unique("pipe");
        let folder = Scratch::new();
        let statistics = folder.file("statistics");
        let mut run = farmem_with(&name, options);
        run.arg(crate::python()).args(["-c", CLOSES]);
        let mut command = Command::new("bash");
        let script = format!("exec \"$@\" 7>&2 2>/dev/null 8>'{}'", statistics.display());
        command.args(["-c", &script, "bash"]).arg(run.get_program()).args(run.get_args());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("bash starts");
        let mut says = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut tell = child.stdin.take().expect("a pipe");
        let mut pipe = child.stderr.take().expect("a pipe");
        let (sender, has_ended) = channel();
        std::thread::spawn(move || sender.send(pipe.read(&mut [0]).expect("it can be read")));

        assert_eq!(says.next().expect("a line").expect("text"), "filled");
        wait_for("pages that are far", || (figure(&name, "far_pages") > 0).then_some(()));
        assert!(has_ended.try_recv().is_err(), "the program has it open still");
        tell.write_all(b"\n").expect("it reads");

        let read = has_ended.recv_timeout(PATIENCE).expect("the end of the pipe");
        assert_eq!(read, 0, "{options:?}");
        says.next().expect("a line").expect("text");
        assert!(figure(&name, "far_pages") > 0, "it is managed still");
        drop(tell);
        assert!(end(child).success());
        assert_eq!(std::fs::read_to_string(&statistics).expect("a file").is_empty(), options.is_empty());
    }
}

#[test]
fn a_program_has_the_number_of_the_process_that_was_called() {
    if !managed_runner() {
        return;
    }
    let mut command = farmem(&unique("number"));
    let child = command.args(["sh", "-c", "echo $$"]).stdout(Stdio::piped()).spawn().expect("farmem starts");
    let number = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{number}\n"));
}

#[test]
fn a_program_ends_as_it_ends_without_farmem() {
    use std::os::unix::process::ExitStatusExt;
    if !managed_runner() {
        return;
    }
    let ends = |script: &str| {
        let mut command = farmem(&unique("ends"));
        command.args(["sh", "-c", script]);
        said(command).2
    };
    assert_eq!(ends("exit 7").code(), Some(7));
    assert_eq!(ends("kill -KILL $$").signal(), Some(9));
    assert_eq!(ends("kill -SEGV $$").signal(), Some(11));
}

#[test]
fn what_cannot_begin_is_said_by_the_process_that_was_called() {
    if !managed_runner() {
        return;
    }
    const LOADER: &[u8] = b"/ld-linux";
    let folder = Scratch::new();
    let broken = folder.file("broken");
    // The kernel alone looks for the loader that a program names.
    let mut bytes = std::fs::read("/bin/true").expect("a program");
    let at = bytes.windows(LOADER.len()).position(|window| window == LOADER).expect("it names one");
    bytes[at + 1] = b'-';
    std::fs::write(&broken, bytes).expect("the folder is the test's own");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&broken, mode).expect("the file is the test's own");
    let name = unique("broken");
    let refusal = assert_refusal(2, farmem(&name).arg(&broken));
    assert!(refusal.contains("cannot start"), "{refusal}");
    wait_for("the supervisor's end", || application(&name).is_none().then_some(()));
}

#[test]
fn one_signal_comes_once() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let script = format!(
        "import signal, sys, time\n\
         got = []\n\
         signal.signal(signal.SIGTERM, lambda *_: got.append(1))\n\
         open('{0}', 'w')\n\
         end = time.time() + 1\n\
         while time.time() < end: time.sleep(0.05)\n\
         print(len(got))\n",
        folder.file("ready").display()
    );
    let mut command = farmem(&unique("signal"));
    command.args(["python3", "-c", &script]).stdout(Stdio::piped());
    // A service manager sends to all processes of a group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn().expect("farmem starts");
    wait_for("the program's start", || folder.file("ready").exists().then_some(()));
    let group = child.id().to_string();
    assert!(
        Command::new("kill").args(["-TERM", "--", &format!("-{group}")]).status().expect("kill").success()
    );
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n");
}

#[test]
fn whoever_reads_what_a_program_says_reads_its_end_with_the_programs() {
    if !managed_runner() {
        return;
    }
    let name = unique("pipes");
    let mut command = farmem(&name);
    // What is left behind has none of the streams.
    let script = "sleep 20 </dev/null >/dev/null 2>&1 & echo $!";
    let began = Instant::now();
    command.args(["sh", "-c", script]);
    let (output, errors, _) = said(command);
    assert!(began.elapsed() < Duration::from_secs(10), "the supervisor keeps the streams open");
    assert_eq!(errors, "");
    assert!(application(&name).is_some(), "who was left behind has a supervisor");
    assert!(Command::new("kill").arg(output.trim()).status().expect("kill").success());
    wait_for("the supervisor's end", || application(&name).is_none().then_some(()));
}

/// The supervisor of the application: a copy of the process that was called, with the same words.
fn supervisor_of(name: &str) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let is_it = |number: &u32| {
        let read = |file: &str| std::fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
        // A program's words may be far.
        read("comm") == b"farmem\n"
            && read("cmdline").split(|&byte| byte == 0).any(|word| word == name.as_bytes())
    };
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
}

/// The processor time that a process has had, in user code and in the kernel.
fn processor_time(process: u32) -> Duration {
    /// The kernel counts so for all programs, whatever its own clock does.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let (_, after_name) = stat.rsplit_once(") ").expect("a name");
    let times = after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(times.sum::<u64>() * 1000 / TICKS_PER_SECOND)
}

/// The descriptor by which it learns of the program's end stays readable for ever.
#[test]
fn a_supervisor_of_what_a_program_has_left_behind_uses_little_of_a_processor() {
    const SPELL: Duration = Duration::from_secs(2);
    if !managed_runner() {
        return;
    }
    let name = unique("rests");
    let mut command = farmem(&name);
    command.args(["sh", "-c", "sleep 60 </dev/null >/dev/null 2>&1 & echo $!"]);
    let (output, errors, status) = said(command);
    assert!(status.success() && errors.is_empty(), "{errors}");
    let supervisor = wait_for("a supervisor", || supervisor_of(&name));

    let before = processor_time(supervisor);
    std::thread::sleep(SPELL);
    let used = processor_time(supervisor) - before;

    assert!(Command::new("kill").arg(output.trim()).status().expect("kill").success());
    wait_for("the supervisor's end", || application(&name).is_none().then_some(()));
    assert!(used < SPELL / 2, "{used:?} in {SPELL:?}");
}

#[test]
fn a_program_pages_in_the_process_that_was_called() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let file = folder.path().join("figures");
    let mut command = farmem_with(&unique("pages"), &["--stats", &file.display().to_string()]);
    command.arg(env!("PROGRAM_ATTACHED")).arg("threads").arg(folder.path());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("farmem starts");
    let mut output = child.stdout.take().expect("a pipe");
    let mut text = String::new();
    output.read_to_string(&mut text).expect("text");
    assert!(end(child).success());
    assert!(text.ends_with(": 0 wrong\n"), "{text}");
    // The supervisor writes them when the program has ended.
    let figures: serde_json::Value =
        wait_for("figures", || serde_json::from_slice(&std::fs::read(&file).ok()?).ok());
    assert!(figures["evicted"].as_u64() > Some(0), "{figures}");
}

#[test]
fn children_find_what_is_far_also_those_whose_puppets_are_ended() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    for check in ["forks", "many", "strict"] {
        let mut command = farmem(&unique(check));
        command.arg(env!("PROGRAM_ATTACHED")).arg(check).arg(folder.path());
        let (output, errors, status) = said(command);
        assert!(status.success() && output.ends_with(": 0 wrong\n"), "{check}: {output}{errors}");
        assert_eq!(errors, "", "{check}");
    }
}

/// Both supervisors find the program. One manages it, the other says that it doesn't, and both end with it.
#[test]
fn a_run_within_a_run_manages_its_program_and_leaves_nothing_behind() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let (outer, inner) = (unique("outer"), unique("inner"));
    let mut command = farmem(&outer);
    command.arg(farmem_binary()).args(["run", "--host", "none", "--local", "12M", "--pool", "1G"]);
    command.args(["--name", &inner, "--"]);
    command.arg(env!("PROGRAM_ATTACHED")).arg("threads").arg(folder.path());

    let (output, errors, status) = said(command);

    assert!(status.success() && output.ends_with(": 0 wrong\n"), "{output}{errors}");
    assert!(errors.is_empty() || errors.contains("another application manages it"), "{errors}");
    wait_for("the supervisors' ends", || {
        (application(&outer).is_none() && application(&inner).is_none()).then_some(())
    });
}

#[test]
fn a_service_whose_parents_end_at_once_pages() {
    if !managed_runner() {
        return;
    }
    let (folder, name) = (Scratch::new(), unique("service"));
    let mut command = farmem(&name);
    command.arg(env!("PROGRAM_ATTACHED")).arg("service").arg(folder.path());
    let (_, errors, status) = said(command);
    assert!(status.success());
    assert_eq!(errors, "");
    let result = folder.file("result");
    wait_for("the service's result", || result.exists().then_some(()));
    assert_eq!(std::fs::read_to_string(result).expect("it was just there"), "0 wrong\n");
    assert!(figure(&name, "evicted") > 0, "it was managed");
    File::create(folder.file("end")).expect("the folder is the test's own");
    wait_for("the supervisor's end", || application(&name).is_none().then_some(()));
}

//! `farmem attach` and `farmem detach`: programs that ran before anybody managed them, and run on when nobody
//! does any more.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use farmem_tests::{
    Scratch, application, assert_refusal, farmem_binary, injection, managed_runner, wait_for,
};
use serde_json::Value;

use crate::far_redis::{figure, unique};

/// For a program to end.
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Waits until a program ends; how it has.
pub(crate) fn end_of(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            return status;
        }
        assert!(began.elapsed() < PATIENCE, "the program doesn't end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program that runs already. Dropped, it is ended.
pub(crate) struct Resident {
    pub(crate) child: Child,
    folder: Scratch,
}

impl Resident {
    /// One with so many mebibytes, of which so many hundredths are in use all the time, and as many children
    /// with as much.
    pub(crate) fn start(mebibytes: u64, hot: u64, children: u64) -> Self {
        let folder = Scratch::new();
        let command = Self::command(&folder, [mebibytes, hot, children]);
        Self::begin(command, folder)
    }

    /// One whose first thread has ended.
    fn start_alone(mebibytes: u64, hot: u64) -> Self {
        let folder = Scratch::new();
        let mut command = Self::command(&folder, [mebibytes, hot, 0]);
        command.arg("alone");
        Self::begin(command, folder)
    }

    fn command(folder: &Scratch, numbers: [u64; 3]) -> Command {
        let mut command = Command::new(env!("PROGRAM_RESIDENT"));
        command.arg(folder.path()).args(numbers.map(|number| number.to_string()));
        command
    }

    pub(crate) fn begin(mut command: Command, folder: Scratch) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the program starts");
        let ready = folder.file("ready");
        let resident = Self { child, folder };
        wait_for("the program's memory", || ready.exists().then_some(()));
        resident
    }

    fn number(&self) -> String {
        self.child.id().to_string()
    }

    /// Has it look at all that it has, and waits for its end. Words that were wrong.
    pub(crate) fn wrong(mut self) -> u64 {
        fs::write(self.folder.file("end"), "").expect("the folder is the test's own");
        end_of(&mut self.child);
        let text = fs::read_to_string(self.folder.file("result")).expect("it has ended by itself");
        text.trim().parse().expect("a number")
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn farmem(words: &[&str]) -> Command {
    let mut command = Command::new(farmem_binary());
    command.args(words).stdin(Stdio::null());
    command
}

pub(crate) fn attach(name: &str, local: &str, subject: &[&str]) -> Command {
    let mut command = farmem(&["attach", "--host", "none", "--pool", "1G", "--name", name, "--local", local]);
    command.args(subject);
    command
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

/// Attaches, and how it stands then.
pub(crate) fn attached(name: &str, local: &str, subject: &[&str]) -> Value {
    let output = attach(name, local, subject).arg("--json").output().expect("farmem starts");
    assert!(output.status.success(), "{}", said(&output));
    assert!(output.stderr.is_empty(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).expect("an object")
}

pub(crate) fn assert_within(standing: &Value, budget: u64, processes: u64) {
    let number = |key: &str| standing[key].as_u64().unwrap_or_else(|| panic!("{key} in {standing}"));
    assert!(number("resident_bytes") <= budget + MIB, "{standing}");
    assert_eq!(number("budget_bytes"), budget, "{standing}");
    assert_eq!(number("processes"), processes, "{standing}");
    assert!(number("far_bytes") > 0, "{standing}");
}

/// Detaches, and what Farmem has left then: nothing.
pub(crate) fn detach(name: &str, processes: &[u32]) {
    let output = farmem(&["detach", name]).output().expect("farmem starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
    assert!(said(&output).contains("came back"), "{}", said(&output));
    assert!(application(name).is_none(), "its supervisor has ended");
    processes.iter().for_each(|&process| assert_left(process));
}

/// No memory of the process is registered, nothing of Farmem's is mapped in it, and no process shares its
/// memory.
pub(crate) fn assert_left(process: u32) {
    let text = fs::read_to_string(format!("/proc/{process}/smaps")).expect("it runs");
    let flags = text.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    assert!(!flags.flat_map(|line| line.split(' ')).any(|flag| flag == "um" || flag == "uw"), "{text}");
    assert!(!text.contains("memfd:farmem"), "{text}");
    assert_eq!(helpers_of(process), Vec::<String>::new());
}

/// Pagers of the process, and puppets in it. Those that have ended and that nobody has asked about are none.
fn helpers_of(process: u32) -> Vec<String> {
    let memory = mappings(process);
    let numbers = fs::read_dir("/proc").expect("it is mounted").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let helps = |number: u32| {
        let read = |what: &str| fs::read_to_string(format!("/proc/{number}/{what}")).unwrap_or_default();
        let words = read("cmdline");
        let is_pager = words.split('\0').collect::<Vec<_>>() == ["farmem", "pager", &process.to_string(), ""];
        // A puppet's mappings are those of its program.
        let is_puppet = read("comm").trim_end() == "farmem-puppet" && mappings(number) == memory;
        (is_pager || is_puppet).then(|| format!("{number}: {words}"))
    };
    numbers.filter_map(helps).collect()
}

/// Where the memory begins and ends that a process has.
fn mappings(process: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

/// Where a process has memory, whatever mappings that is divided into.
fn addresses(process: u32) -> Vec<(String, String)> {
    let mut joined: Vec<(String, String)> = Vec::new();
    for mapping in mappings(process) {
        let (start, end) = mapping.split_once('-').expect("two addresses");
        match joined.last_mut() {
            Some(last) if last.1 == start => last.1 = end.to_owned(),
            _ => joined.push((start.to_owned(), end.to_owned())),
        }
    }
    joined
}

fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).expect("it runs");
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn a_running_program_is_attached_shrinks_is_detached_and_attached_again() {
    if !managed_runner() {
        return;
    }
    let (resident, name) = (Resident::start(64, 60, 0), unique("resident"));
    let before = addresses(resident.child.id());
    for _ in 0..2 {
        assert_within(&attached(&name, "32M", &[&resident.number()]), 32 * MIB, 1);
        assert!(figure(&name, "far_pages") > 0);
        // It works for a while.
        let faults = figure(&name, "faults");
        wait_for("faults", || (figure(&name, "faults") > faults + 100).then_some(()));
        detach(&name, &[resident.child.id()]);
        assert_eq!(addresses(resident.child.id()), before, "it has the addresses that it had");
    }
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn a_program_is_whole_that_is_detached_while_it_works_on_all_that_it_has() {
    if !managed_runner() {
        return;
    }
    let (resident, name) = (Resident::start(48, 100, 0), unique("working"));
    for _ in 0..3 {
        attached(&name, "24M", &[&resident.number()]);
        detach(&name, &[resident.child.id()]);
    }
    assert_eq!(resident.wrong(), 0);
}

/// The kernel reports nothing of its memory by the process's own number.
#[test]
fn a_program_whose_first_thread_has_ended_is_attached_and_detached() {
    if !managed_runner() {
        return;
    }
    let (resident, name) = (Resident::start_alone(48, 60), unique("alone"));
    let number = resident.child.id();
    assert!(mappings(number).is_empty(), "its first thread has ended");
    assert_within(&attached(&name, "24M", &[&resident.number()]), 24 * MIB, 1);
    detach(&name, &[]);
    let threads = fs::read_dir(format!("/proc/{number}/task")).expect("it runs").flatten();
    let flags = threads.filter_map(|thread| fs::read_to_string(thread.path().join("smaps")).ok());
    let flags = flags.collect::<String>();
    assert!(flags.contains("VmFlags:") && !flags.split_whitespace().any(|flag| flag == "um"), "{flags}");
    assert_eq!(resident.wrong(), 0);
}

/// A program that is in one call, which writes all of this to a pipe, and then says on standard error what
/// the call has returned.
struct Writer(Resident);

impl Writer {
    const BYTES: usize = 24 << 20;

    /// It waits until somebody reads.
    fn start() -> Self {
        let script = format!(
            "import os, sys\nwritten = os.write(1, os.urandom({}))\nsys.stderr.write(str(written))",
            Self::BYTES
        );
        let mut command = Command::new(crate::python());
        command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let call = format!("/proc/{}/syscall", child.id());
        let writer = Self(Resident { child, folder: Scratch::new() });
        let waits = || fs::read_to_string(&call).expect("it runs").starts_with("1 0x1 ").then_some(());
        wait_for("a write that waits", waits);
        writer
    }

    /// Reads all: how much that was, and what its call has returned.
    fn read(mut self) -> (usize, usize) {
        let mut all = Vec::new();
        let output = self.0.child.stdout.as_mut().expect("a pipe");
        output.read_to_end(&mut all).expect("it can be read");
        let said = std::io::read_to_string(self.0.child.stderr.as_mut().expect("a pipe"));
        (all.len(), said.expect("it can be read").parse().expect("a number"))
    }
}

#[test]
fn a_call_that_a_stop_has_cut_short_is_finished_before_its_program_is_left() {
    if !managed_runner() {
        return;
    }
    let (writer, name) = (Writer::start(), unique("writer"));
    attached(&name, "16M", &[&writer.0.number()]);
    let mut detaching = farmem(&["detach", &name]).stdout(Stdio::null()).spawn().expect("farmem starts");
    // All but zeros is back, and the pager would leave.
    const FEW: u64 = 256;
    let is_back = || application(&name).is_none_or(|now| now["far_pages"].as_u64() < Some(FEW));
    wait_for("what was far", || is_back().then_some(()));
    std::thread::sleep(Duration::from_millis(100));

    assert_eq!(writer.read(), (Writer::BYTES, Writer::BYTES));

    assert!(end_of(&mut detaching).success());
}

#[test]
fn a_call_that_does_not_end_keeps_nobody_from_leaving_its_program() {
    if !managed_runner() {
        return;
    }
    let (writer, name) = (Writer::start(), unique("waiter"));
    attached(&name, "16M", &[&writer.0.number()]);

    // The program ends then, so nothing can be left of Farmem there.
    detach(&name, &[]);

    let (read, written) = writer.read();
    assert_eq!(read, written, "it was told what it has written by then");
}

#[test]
fn children_are_attached_with_their_parent_and_detached_with_it() {
    if !managed_runner() {
        return;
    }
    let (resident, name) = (Resident::start(24, 30, 3), unique("family"));
    let parent = resident.child.id();
    assert_within(&attached(&name, "48M", &[&resident.number()]), 48 * MIB, 4);
    let mut all = children(parent);
    assert_eq!(all.len(), 3);
    all.push(parent);
    detach(&name, &all);
    assert_eq!(resident.wrong(), 0);
}

/// It forks while it pages: children that come while it is left are whole as well.
const FORKING: &str = r#"
import hashlib, mmap, os, sys, time
folder = sys.argv[1]
def content(nth, age): return hashlib.sha256(b"%d %d" % (nth, age)).digest() * 128
pages = [bytearray(content(nth, 0)) for nth in range(8000)]
def wrong(): return sum(page != content(nth, 0) for nth, page in enumerate(pages))
open(folder + "/ready", "w")
bad = 0
while not os.path.exists(folder + "/end"):
    child = os.fork()
    if child == 0:
        pages[7] = b""
        os._exit(min(wrong() - 1, 100))
    bad += os.waitpid(child, 0)[1] != 0
open(folder + "/result", "w").write(str(bad + wrong()))
"#;

#[test]
fn a_program_that_forks_all_the_time_is_left_and_its_children_are_whole() {
    if !managed_runner() {
        return;
    }
    let (folder, name) = (Scratch::new(), unique("forking"));
    let mut command = Command::new("python3");
    command.args(["-c", FORKING]).arg(folder.path());
    let resident = Resident::begin(command, folder);
    for _ in 0..2 {
        attached(&name, "20M", &[&resident.number()]);
        wait_for("pages that leave", || (figure(&name, "evicted") > 0).then_some(()));
        detach(&name, &[resident.child.id()]);
    }
    assert_eq!(resident.wrong(), 0);
}

/// A control group of the test's own.
pub(crate) struct Group(PathBuf);

impl Group {
    /// `None` where none can be made.
    pub(crate) fn new(name: &str) -> Option<Self> {
        Self::called(&unique(name))
    }

    /// The same of exactly that name.
    pub(crate) fn called(name: &str) -> Option<Self> {
        let folder = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
            .iter()
            .map(|root| Path::new(root).join(name))
            .find(|folder| fs::create_dir(folder).is_ok())?;
        let group = Self(folder);
        if group.0.join("cgroup.procs").exists() {
            return Some(group);
        }
        eprintln!("skipped: no control group can be made here");
        None
    }

    pub(crate) fn add(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).expect("the group is the test's own");
    }

    fn path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    /// Limits its memory to what it uses now and so much more; whether it can be.
    fn limit(&self, more: u64) -> bool {
        let used = ["memory.usage_in_bytes", "memory.current"]
            .iter()
            .find_map(|file| fs::read_to_string(self.0.join(file)).ok()?.trim().parse::<u64>().ok());
        let limit = used.unwrap_or_default() + more;
        let files = ["memory.limit_in_bytes", "memory.max"];
        used.is_some()
            && files.iter().any(|file| {
                let file = self.0.join(file);
                file.exists() && fs::write(file, limit.to_string()).is_ok()
            })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A thread that was in there may still be on the way out.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn all_of_a_control_group_is_attached_by_its_path_or_by_its_name() {
    if !managed_runner() {
        return;
    }
    let Some(group) = Group::new("farmem-test") else { return };
    let empty = assert_refusal(2, &mut attach("none", "32M", &["--cgroup", &group.path()]));
    assert!(empty.contains("has no process"), "{empty}");
    let below = Group(group.0.join("below"));
    fs::create_dir(&below.0).expect("the group is the test's own");
    let residents = [Resident::start(32, 30, 0), Resident::start(32, 30, 0)];
    group.add(residents[0].child.id());
    below.add(residents[1].child.id());
    let numbers = residents.each_ref().map(|resident| resident.child.id());
    let (name, folder) =
        (unique("group"), group.0.file_name().expect("it has one").to_string_lossy().into_owned());

    for subject in [["--cgroup", &group.path()], ["--unit", &folder], ["--container", &folder]] {
        assert_within(&attached(&name, "40M", &subject), 40 * MIB, 2);
        detach(&name, &numbers);
    }

    for resident in residents {
        assert_eq!(resident.wrong(), 0);
    }
    drop(below);
}

#[test]
fn a_program_is_not_left_without_memory_for_what_it_has_far() {
    if !managed_runner() {
        return;
    }
    let (resident, name) = (Resident::start(48, 20, 0), unique("short"));
    let mut command = attach(&name, "24M", &[&resident.number()]);
    let output = command.envs([injection("no-memory")]).output().expect("farmem starts");
    assert!(output.status.success(), "{}", said(&output));
    let refused = assert_refusal(2, &mut farmem(&["detach", &name]));
    assert!(refused.contains("are far and 0 MiB of memory are free; free"), "{refused}");
    assert!(figure(&name, "far_pages") > 0, "it is managed as before");
    // With its program its supervisor ends.
    assert_eq!(resident.wrong(), 0);
    wait_for("the supervisor's end", || application(&name).is_none().then_some(()));
}

#[test]
fn a_program_is_not_left_without_room_in_its_control_group() {
    if !managed_runner() {
        return;
    }
    let Some(group) = Group::new("farmem-test-room") else { return };
    // Memory that was taken before counts elsewhere.
    let folder = Scratch::new();
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec {} {} 64 20 0",
        group.path(),
        env!("PROGRAM_RESIDENT"),
        folder.path().display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let resident = Resident::begin(command, folder);
    let name = unique("room");
    attached(&name, "32M", &[&resident.number()]);
    if group.limit(8 * MIB) {
        let refused = assert_refusal(2, &mut farmem(&["detach", &name]));
        assert!(
            refused.contains("control group") && refused.contains("raise its memory limit by"),
            "{refused}"
        );
        assert!(group.limit(256 * MIB));
    }
    detach(&name, &[resident.child.id()]);
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn what_cannot_be_attached_to_is_refused_in_a_sentence() {
    if !managed_runner() {
        return;
    }
    let refused = |subject: &[&str]| assert_refusal(2, &mut attach("refused", "1G", subject));
    let cases: [(&[&str], &str); 9] = [
        (&["4194303"], "no process has the number 4194303; `ps -e` lists"),
        (&[], "not provided: <PID|--cgroup"),
        (&["0"], "invalid value '0'"),
        (&["--cgroup", "/nonexistent"], "/nonexistent doesn't exist; name the folder of one"),
        (&["--cgroup", "/tmp"], "/tmp is not a control group; name the folder of one"),
        (&["--unit", "no-such-unit"], "no unit named no-such-unit runs; `systemctl list-units`"),
        (
            &["--container", "0123456789ab"],
            "no container with the ID 0123456789ab has a control group here; `docker ps`",
        ),
        (&["1", "--unit", "some"], "cannot be used with"),
        (&["--container", ""], "invalid value"),
    ];
    for (subject, expected) in cases {
        let sentence = refused(subject);
        assert!(sentence.contains(expected), "{subject:?}: {sentence}");
    }
    if let Some(thread) = kernel_thread() {
        let sentence = refused(&[&thread.to_string()]);
        assert!(sentence.contains("is a thread of the kernel; name a program's process"), "{sentence}");
    }
    let unknown = assert_refusal(2, &mut farmem(&["detach", "no-such-application"]));
    assert!(unknown.contains("no application named no-such-application runs under Farmem"), "{unknown}");
}

/// Its filter is in nobody's way until it is attached to.
#[test]
fn a_program_that_nothing_can_be_managed_of_is_refused_with_the_reason() {
    if !managed_runner() {
        return;
    }
    let mut command = Command::new(env!("PROGRAM_UNAWARE"));
    let mut child = command.arg("forbids_ioctl").stdout(Stdio::null()).spawn().expect("the program starts");
    let resident = || std::fs::read_to_string(format!("/proc/{}/statm", child.id())).expect("it lives");
    let is_full = |text: &str| text.split(' ').nth(1).and_then(|pages| pages.parse().ok()) > Some(12_000_u64);
    wait_for("the program's memory", || is_full(&resident()).then_some(()));

    let output = attach(&unique("filtered"), "16M", &[&child.id().to_string()]).output().expect("it starts");

    let refused = said(&output);
    assert_eq!(output.status.code(), Some(2), "{refused}");
    assert!(refused.contains("nothing can be managed") && refused.contains("forbids futex"), "{refused}");
    assert!(end_of(&mut child).success());
}

fn kernel_thread() -> Option<u32> {
    let text = fs::read_to_string("/proc/2/stat").ok()?;
    text.contains("(kthreadd)").then_some(2)
}

#[test]
fn a_process_that_has_ended_and_nobody_has_asked_about_is_refused() {
    if !managed_runner() {
        return;
    }
    let mut ended = Command::new("true").spawn().expect("the program starts");
    let stat = format!("/proc/{}/stat", ended.id());
    wait_for("its end", || fs::read_to_string(&stat).ok()?.contains(") Z ").then_some(()));
    let sentence = assert_refusal(2, &mut attach("ended", "8M", &[&ended.id().to_string()]));
    ended.wait().expect("it is a child");
    assert!(
        sentence.contains(&format!("process {} has ended; name one that runs", ended.id())),
        "{sentence}"
    );
}

/// It does nothing but wait, and needs no library.
const NARROW: &str =
    "void _start(void) { for (;;) __asm__ volatile(\"int $0x80\" : : \"a\"(29) : \"memory\"); }";

#[test]
fn a_program_of_32_bits_is_refused_and_goes_on() {
    if !managed_runner() {
        return;
    }
    let folder = Scratch::new();
    let (source, file) = (folder.file("narrow.c"), folder.file("narrow"));
    fs::write(&source, NARROW).expect("the folder is the test's own");
    let mut compiler = Command::new("cc");
    compiler.args(["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-o"]).arg(&file).arg(&source);
    let is_built = compiler.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    let started = Command::new(&file).stdin(Stdio::null()).spawn();
    let (true, Ok(mut narrow)) = (is_built, started) else {
        eprintln!("skipped: programs of 32 bits can't be built, or can't run here");
        return;
    };
    let sentence = assert_refusal(2, &mut attach("narrow", "8M", &[&narrow.id().to_string()]));
    let is_running = narrow.try_wait().expect("it is a child").is_none();
    narrow.kill().expect("it is a child");
    narrow.wait().expect("it ends");
    assert!(is_running, "it has ended");
    assert!(sentence.contains("runs a 32-bit program; Farmem manages only 64-bit programs"), "{sentence}");
}

#[test]
fn another_users_process_is_refused_to_who_has_no_right_to_it_and_goes_on() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let resident = Resident::start(16, 30, 0);
    let folder = Scratch::new();
    fs::copy(farmem_binary(), folder.file("farmem")).expect("a built file can be copied");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"]);
    command.arg(folder.file("farmem")).args(["attach", "--host", "none", "--local", "8M"]);
    let sentence = assert_refusal(2, command.arg(resident.number()));
    let expected =
        format!("this user may not manage process {}; run `farmem attach` as root", resident.number());
    assert!(sentence.contains(&expected), "{sentence}");
    assert_left(resident.child.id());
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn who_is_managed_already_is_named_and_farmems_own_is_left_alone() {
    if !managed_runner() {
        return;
    }
    let (resident, name) = (Resident::start(32, 30, 0), unique("managed"));
    attached(&name, "16M", &[&resident.number()]);
    let sentence = assert_refusal(2, &mut attach("other", "16M", &[&resident.number()]));
    assert!(sentence.contains(&format!("managed already, by application {name}")), "{sentence}");
    let pager = wait_for("its pager", || {
        helpers_of(resident.child.id()).into_iter().find(|helper| helper.contains("pager"))
    });
    let (number, _) = pager.split_once(':').expect("a number");
    let sentence = assert_refusal(2, &mut attach("other", "16M", &[number]));
    assert!(sentence.contains("is Farmem's own"), "{sentence}");
    detach(&name, &[resident.child.id()]);
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn a_process_that_somebody_traces_is_refused_with_the_tracers_number() {
    if !managed_runner() {
        return;
    }
    let resident = Resident::start(16, 30, 0);
    // A tracer of its own, that holds it until it is ended.
    let script = "import ctypes, sys, time\n\
                  libc = ctypes.CDLL(None, use_errno=True)\n\
                  libc.ptrace.argtypes = [ctypes.c_long] * 4\n\
                  print(libc.ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True)\n\
                  time.sleep(60)\n";
    let mut tracer = Command::new("python3")
        .args(["-c", script, &resident.number()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("python3 starts");
    let status = format!("/proc/{}/status", resident.child.id());
    let wanted = format!("TracerPid:\t{}", tracer.id());
    wait_for("the tracer", || fs::read_to_string(&status).ok()?.contains(&wanted).then_some(()));
    let sentence = assert_refusal(2, &mut attach("traced", "8M", &[&resident.number()]));
    tracer.kill().expect("it is a child");
    tracer.wait().expect("it ends");
    assert!(
        sentence.contains(&format!("is traced by process {} (python3); end that", tracer.id())),
        "{sentence}"
    );
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn a_program_that_was_started_with_a_pager_beside_it_can_be_left_as_well() {
    if !managed_runner() {
        return;
    }
    let (folder, name) = (Scratch::new(), unique("started"));
    let mut command =
        farmem(&["run", "--host", "none", "--pool", "1G", "--local", "24M", "--name", &name, "--"]);
    command.arg(env!("PROGRAM_RESIDENT")).arg(folder.path()).args(["48", "30", "0"]);
    let resident = Resident::begin(command, folder);
    wait_for("pages that leave", || (figure(&name, "far_pages") > 0).then_some(()));
    detach(&name, &[resident.child.id()]);
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn progress_is_shown_where_it_is_asked_for() {
    if !managed_runner() {
        return;
    }
    let (resident, name) = (Resident::start(48, 30, 0), unique("progress"));
    let mut command = attach(&name, "24M", &[&resident.number()]);
    let output = command.arg("--progress").output().expect("farmem starts");
    assert!(output.status.success(), "{}", said(&output));
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(shown.starts_with(&format!("{name}: ")) && shown.contains(" processes, local "), "{shown}");
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        line.starts_with(&format!("{name} (process {}): 1 process, 1 with a pager", resident.number())),
        "{line}"
    );
    detach(&name, &[resident.child.id()]);
    assert_eq!(resident.wrong(), 0);
}
